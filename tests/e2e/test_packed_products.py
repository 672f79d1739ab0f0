"""Products with weights that are packed before the call: which are left alone, and what the log says."""
import os

import pytest
import torch

import framejit
import programs
from check import fresh  # noqa: F401
from test_derived_weights import CALLS, check, derived, skip_without_packed_bfloat16, watch_is_refused

pytestmark = pytest.mark.skipif(watch_is_refused(),
                                reason="not tested: this system has no write watch, so nothing is derived")

WIDTHS = """
import torch
import framejit

class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        {weight}

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight.to(torch.bfloat16)).relu()

x, layers = torch.randn(4, 64, dtype=torch.bfloat16), []
with torch.no_grad():
    for width in (768, 1024, 1280):
        layers.append(Layer(width).eval())
        compiled = framejit.compile(layers[-1])
        for _ in range(6):
            compiled(x)
print(framejit.stats()["derived_values"], framejit.stats()["recompiles"])
"""


@pytest.mark.nothing_captured("a process of its own captures")
@pytest.mark.parametrize("weight, derived_and_recompiled", [
    ("self.weight = torch.nn.Parameter(torch.randn(width, 64))", "3 2"),
    ('self.register_buffer("weight", torch.randn(width, 64))', "1 1"),
], ids=["parameter", "buffer"])
def test_parameters_of_another_size_are_compiled_for_and_buffers_are_symbols(weight, derived_and_recompiled):
    done = programs.run(WIDTHS.replace("{weight}", weight), timeout=120, env={**os.environ, "FRAMEJIT_LOGS": "derived"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == derived_and_recompiled.split(), done.stdout + done.stderr
    says = "sizes of its weights vary between calls" in done.stderr
    assert says == ("buffer" in weight), done.stderr


# MKL allocates 1.4 to 1.8 times as much, and leaves the rest untouched.
SQUARES = """
import torch
import framejit
from framejit import _framejit

_framejit.replace_costs("packed_rows=16")
layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).eval()
compiled, x = framejit.compile(layers), torch.randn(64, 1024)
with torch.no_grad():
    for _ in range(6):
        compiled(x)
stats = framejit.stats()
print(stats["derived_values"], stats["derived_bytes"] / sum(layer.weight.nbytes for layer in layers))
"""


@pytest.mark.nothing_captured("a process of its own captures")
def test_bytes_of_packed_weights_are_those_that_the_system_has_given():
    done = programs.run(SQUARES, timeout=120)
    assert done.returncode == 0, done.stderr
    values, taken = done.stdout.split()
    assert int(values) == 4 and 0.95 <= float(taken) <= 1.25, done.stdout


@pytest.mark.parametrize("rows, is_packed", [(1, False), (4, True)])
def test_little_work_is_not_worth_a_packed_call(rows, is_packed):
    skip_without_packed_bfloat16()
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64, dtype=torch.bfloat16) for _ in range(12)))
    compiled, x = framejit.compile(layers), torch.randn(rows, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(CALLS):
            check(layers, compiled, x)
    assert derived() == (12 if is_packed else 0)
