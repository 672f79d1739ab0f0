"""Matrix products by kernels instead of the library: FRAMEJIT_PRODUCTS=kernels takes every product of that form, on
every CPU."""
import os
import re
import sys

import pytest
import torch
import torch.nn.functional as F

import framejit
import programs
from check import check, fresh, same_as, threads  # noqa: F401

ROWS, TERMS, COLUMNS = 37, 300, 100
PROGRAMS = {
    "linear": lambda x, w: F.linear(x, w),
    "bias and activation": lambda x, w: F.gelu(F.linear(x, w, w[:, 0])) + 1,
    "two that share an operand": lambda x, w: F.linear(x, w) * torch.sigmoid(F.linear(x, w + 1)),
    "part of a weight": lambda x, w: F.linear(x, w[10:50]) + F.linear(x[:, 20:], w[:40, 20:]),
    "rows apart": lambda x, w: F.linear(x[::2], w[::3]).relu(),
    "three dimensions": lambda x, w: F.linear(x[:36].view(3, 12, TERMS), w).softmax(-1),
    "transposed result": lambda x, w: F.linear(x, w).t() + 1,
    "result returned twice": lambda x, w: (lambda y: (y, y.relu(), y[3:].t()))(F.linear(x + 1, w)),
    "written to an argument": lambda x, w: x[:, :COLUMNS].copy_(F.linear(x, w)).relu(),
    "computed weight": lambda x, w: F.linear(x, torch.tanh(w)),
    "square chain": lambda x, w: F.linear(F.linear(F.linear(x[:, :COLUMNS] * 2, w[:, :100]), w[:, 100:200]),
                                          w[:, 200:300]) + 1,
    "other forms beside it": lambda x, w: (x @ w.t()) + (x.t().contiguous().t() @ w.t()) + (x @ w.t().contiguous()),
}


def operands():
    torch.manual_seed(0)
    return torch.randn(ROWS, TERMS), torch.randn(COLUMNS, TERMS) / TERMS ** 0.5


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal(name):
    """At these sizes, cost models choose kernels on CPUs with AVX2, and with AVX-512 if they are not Intel's."""
    check(PROGRAMS[name], *operands(), breaks=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype):
    check(PROGRAMS["bias and activation"], *(t.to(dtype) for t in operands()), breaks=0)


@pytest.mark.parametrize("rows", [1, 3, 37])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("weights", [torch.int8, torch.uint8])
def test_weights_of_a_byte(weights, dtype, rows):
    """As models are quantised by weights alone: every weight in bytes, a scale for each output."""
    x, w = operands()
    w = (w.abs() * 80 if weights == torch.uint8 else w * 40).round().clamp(-128, 255).to(weights)
    check(lambda x, w, scales: F.linear(x, w.to(x.dtype)) * scales, x[:rows].to(dtype), w,
          torch.rand(COLUMNS).to(dtype) / 40, breaks=0)


def test_values_that_are_not_finite():
    x, w = operands()
    x[3, 5], x[4, 299], x[5, 0], w[7, 11] = torch.nan, torch.inf, -torch.inf, torch.inf
    x[6], w[9] = 1e-42, 1e-3
    check(PROGRAMS["linear"], x, w, breaks=0)


def rows_that_change():
    w = operands()[1]
    f = framejit.compile(PROGRAMS["bias and activation"])
    for rows in (37, 5, 2, 33, 1, 0, 300):
        x = torch.randn(rows, TERMS)
        same_as(PROGRAMS["bias and activation"], f(x, w), x, w)


def bits_do_not_depend_on_threads():
    x, w = torch.randn(100, 700), torch.randn(1001, 700)
    f, results = framejit.compile(PROGRAMS["bias and activation"]), []
    for count in (1, 2, 3):
        with threads(count):
            results.append(f(x, w))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_rows_that_change():
    rows_that_change()


def test_bits_do_not_depend_on_threads():
    bits_do_not_depend_on_threads()


def test_errors_are_those_of_eager():
    x, w = operands()
    check(lambda x, w: F.linear(x, w[:, 1:]), x, w)


PROGRAM = """
import sys, torch, framejit
sys.path.insert(0, {tests!r})
import test_products as t
from check import check
with torch.no_grad():
    for name, program in t.PROGRAMS.items():
        check(program, *t.operands(), breaks=0)
    for more in t.rows_that_change, t.bits_do_not_depend_on_threads:
        print(more.__name__, file=sys.stderr, flush=True)
        framejit.reset()
        more()
"""


@pytest.mark.cpu_only("kernels for products are those of the CPU")
@pytest.mark.nothing_captured  # here: only in the processes that it starts
@pytest.mark.parametrize("how, features", [("kernels", "auto"), ("kernels", "generic"), ("library", "auto")])
def test_the_setting(how, features, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(tests=os.path.dirname(__file__)))
    env = dict(os.environ, FRAMEJIT_PRODUCTS=how, FRAMEJIT_CPU_FEATURES=features, FRAMEJIT_LOGS="schedule",
               PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = programs.run(file=path, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    for part in done.stderr.split("rows_that_change")[0], *re.split("rows_that_change|bits_do_not_depend_on_threads",
                                                                    done.stderr)[1:]:
        assert (" product\n" in part) == (how == "kernels"), part[-2000:]
    rows = done.stderr.split("rows_that_change")[1].split("bits_do_not")[0]
    assert bool(re.search(r"nest product \(.*\bs\d", rows)) == (how == "kernels"), "rows by a symbol"
