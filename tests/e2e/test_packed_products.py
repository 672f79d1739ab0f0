"""Products with weights that are packed before the call: which are left alone, and what the log says."""
import os
import subprocess
import sys

import pytest
import torch

import framejit
from check import fresh  # noqa: F401
from test_derived_weights import CALLS, check, derived, watch_is_refused

pytestmark = pytest.mark.skipif(watch_is_refused(), reason="this system has no write watch, so nothing is derived")

TWO_WIDTHS = """
import torch
import framejit

class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(64, width)

    def forward(self, x):
        return self.linear(x).relu()

x = torch.randn(4, 64)
with torch.no_grad():
    for width in (96, 160):
        compiled = framejit.compile(Layer(width).eval())
        for _ in range(6):
            compiled(x)
"""


@pytest.mark.nothing_captured("a process of its own captures")
def test_the_log_says_that_sizes_of_weights_vary():
    done = subprocess.run([sys.executable, "-c", TWO_WIDTHS], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "FRAMEJIT_LOGS": "derived"})
    assert done.returncode == 0, done.stderr
    assert "sizes of its weights vary between calls" in done.stderr, done.stderr


@pytest.mark.parametrize("rows, is_packed", [(1, False), (4, True)])
def test_little_work_is_not_worth_a_packed_call(rows, is_packed):
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64, dtype=torch.bfloat16) for _ in range(12)))
    compiled, x = framejit.compile(layers), torch.randn(rows, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(CALLS):
            check(layers, compiled, x)
    assert derived() == (12 if is_packed else 0)
