"""What the log and explain() show about a training step."""
import torch

import framejit
from check import fresh  # noqa: F401


def test_the_captured_graph_is_the_forward():
    """Every value that it names is one of its inputs or results: nothing of the backward is left in it."""
    w = torch.ones(3, requires_grad=True)

    def f(x):
        return (x * w).sum(), x + w
    text = str(framejit.explain(f)(torch.ones(3)))
    lines = [line.strip("| ") for line in text.split("guards")[0].splitlines() if line.strip().startswith("|")]
    made = {word.strip(",:") for line in lines for word in line.split(" = ")[0].split() if word.startswith("%")}
    used = {word.strip(",()") for line in lines for word in line.split("   #")[0].replace("(", " ").split()
            if word.startswith("%")}
    assert "tangent" not in text and len(lines) == 6 and used <= made | {""}, text
    assert lines[-1].count("%") == 2
