"""Products of bfloat16, computed in float32 and by the library's own op: they equal eager, and the plan makes the
expected calls."""
import os
import sys

import pytest

import programs

PROGRAM = """
import torch
import torch.nn.functional as F
import framejit
from check import exactly_as, same, same_as

def make(*sizes):
    return torch.randn(*sizes).bfloat16()

torch.manual_seed(0)
CASES = {
    "mm": (lambda x, w: x @ w, (make(40, 64), make(64, 48))),
    "mm of a transposed weight": (lambda x, w: torch.relu(x @ w.t()), (make(40, 64), make(48, 64))),
    "addmm": (lambda b, x, w: torch.addmm(b, x, w), (make(48), make(40, 64), make(64, 48))),
    "addmm of a matrix": (lambda b, x, w: torch.addmm(b, x, w), (make(40, 48), make(40, 64), make(64, 48))),
    "bmm": (lambda x, w: x @ w, (make(3, 40, 64), make(3, 64, 48))),
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (make(2, 20, 64), make(48, 64), make(48))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, 2, 1), (make(2, 16, 13, 13), make(32, 16, 3, 3), make(32))),
    "conv2d, channels last": (lambda x, w, b: F.conv2d(x, w, b), (make(2, 16, 13, 13).to(
        memory_format=torch.channels_last), make(32, 16, 3, 3), make(32))),
    "conv2d, groups": (lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 2), (make(2, 16, 13, 13), make(32, 8, 3, 3))),
    "conv_transpose2d": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2), (make(2, 16, 13, 13), make(16, 32, 3, 3),
        make(32))),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b), (make(2, 16, 64), make(32, 16, 5), make(32))),
    "infinities and NaN": (lambda x, w: x @ w, (make(40, 64).index_fill(0, torch.tensor([1, 5]),
        float("inf")).index_fill(1, torch.tensor([3]), float("nan")), make(64, 48))),
    "a bias that cancels": (F.linear, (make(4, 512).abs(), make(48, 512).abs(), None)),
    "a matrix that cancels": (torch.addmm, (None, make(8, 512).abs(), make(512, 8).abs())),
    "matrices that cancel": (torch.baddbmm, (None, make(3, 8, 512).abs(), make(3, 512, 8).abs())),
    "overflow": (lambda x, w: x @ w, (make(40, 64).abs() * 1e30, make(64, 48).abs() * 1e30)),
    "few rows": (lambda x, w: x @ w, (make(1, 64), make(64, 48))),
}
def cancelled(fn, args):
    # What is None is near the negative of the product.
    a, b = (t.float() for t in args if t is not None)
    product = a @ (b.t() if fn is F.linear else b)
    other = (-product.mean(0) if fn is F.linear else -product * (1 + torch.rand_like(product) * 1e-3)).bfloat16()
    return tuple(other if t is None else t for t in args)
CASES = {name: (fn, cancelled(fn, args) if None in [t if t is None else 0 for t in args] else args) for name, (fn,
    args) in CASES.items()}
# The same convolution after more and more ops: wherever the values of the graph would move in memory while it is
# widened.
def behind(n, x, w, b):
    for _ in range(n):
        x = torch.relu(x)
    return F.conv2d(x, w, b, 2, 1)

with torch.no_grad():
    args = CASES["conv2d"][1]
    for n in range(40):
        framejit.reset()
        same_as(behind, framejit.compile(behind)(n, *args), n, *args)
        assert framejit.stats()["fallbacks"] == 0, n
    framejit.reset()

with torch.no_grad():
    for name, (fn, args) in CASES.items():
        expected, got = fn(*args), framejit.compile(fn)(*args)
        assert got.dtype == expected.dtype and got.stride() == expected.stride(), name
        # 1 + erf(x) cancels inside of gelu.
        same(got, expected, exactly_as(lambda: fn(*args)), luck="terms" if name == "linear" else None)
        print(name, framejit.stats()["graphs"], flush=True)
    x, w = torch.randn(40, 64), torch.nn.Parameter(torch.randn(48, 64))
    fn = lambda x: F.linear(x, w)
    with torch.autocast("cpu", torch.bfloat16):
        same_as(fn, framejit.compile(fn)(x), x)
assert framejit.stats()["graphs"] == len(CASES) + 1, framejit.stats()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wide", "native", "auto"])
@pytest.mark.nothing_captured  # in this process
def test_products_equal_eager(tmp_path, how):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = programs.run(file=path, env=dict(os.environ, FRAMEJIT_BF16_PRODUCTS=how,
                                   PYTHONPATH=os.pathsep.join(filter(None, sys.path))))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("how,wide", [("wide", True), ("native", False)])
@pytest.mark.nothing_captured  # in this process
def test_what_the_kernels_round(tmp_path, how, wide):
    program = ("import torch, framejit\nwith torch.no_grad(): framejit.compile(lambda x, w: x @ w)(*torch.ones(2, 64, "
               "64).bfloat16())\n")
    path = tmp_path / "program.py"
    path.write_text(program)
    done = programs.run(file=path, env=dict(os.environ, FRAMEJIT_BF16_PRODUCTS=how, FRAMEJIT_LOGS="schedule"))
    assert done.returncode == 0, done.stderr
    assert "extern 0 mm" in done.stderr if not wide else "extern 2 mm" in done.stderr, done.stderr
    assert ("kernel k0" in done.stderr) == wide, done.stderr
