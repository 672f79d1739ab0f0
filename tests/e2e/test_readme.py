"""The example of README.md prints what README.md says."""
import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
[PROGRAM] = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)


def run(tmp_path, program, **environment):
    (tmp_path / "example.py").write_text(program)
    env = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")} | environment
    return subprocess.run([sys.executable, "example.py"], cwd=tmp_path, env=env, capture_output=True, text=True)


def test_the_example_prints_what_stands_below_it(tmp_path):
    printed = README.split(PROGRAM)[1].split("```\n")[2]
    done = run(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stderr

    def parts(text):
        before, guards = re.sub(r"compiled in \d+\.\d{3} s", "compiled in SECONDS", text).split("\nguards ")
        return before.splitlines(), guards.splitlines()
    (shown, shown_guards), (real, real_guards) = parts(printed), parts(done.stdout)
    assert shown == real and "compiled in SECONDS" in shown[3]
    assert shown_guards[0] == real_guards[0] and len(shown_guards) > 1
    positions = [real_guards.index(guard) for guard in shown_guards]
    assert positions == sorted(positions)


def test_the_list_of_channels_is_that_of_help(tmp_path):
    known = re.findall(r"^  (\w+) ", run(tmp_path, "import framejit", FRAMEJIT_LOGS="help").stderr, re.M)
    section = README.split("## Reading the logs")[1].split("; `all`")[0]
    assert len(known) > 10 and sorted(re.findall(r"`(\w+)`", section)) == sorted(["FRAMEJIT_LOGS", *known])


def test_the_log_lines_are_those_of_the_example(tmp_path):
    """And of a call with another size."""
    program = PROGRAM.replace("print(framejit.explain(scores)(torch.tensor([1.0, 2.0, 6.0]), 2))",
                              "scores(torch.ones(5), 2)")
    log = run(tmp_path, program, FRAMEJIT_LOGS="graph_breaks,recompiles,graph").stderr.splitlines()
    section = README.split("## Reading the logs")[1]
    shown = [line for block in re.findall(r"^```\n(.*?)^```$", section, re.M | re.S) for line in block.splitlines()]
    assert len(shown) == 7
    assert [line for line in shown if line not in log] == [], log
