"""Long programs: kernels stay small, and kernels that differ only in where they begin are one. Exponents:
benchmarks/growth.py."""
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import growth  # noqa: E402


def kernels_of(fn, *args):
    framejit.reset()
    check(fn, *args)
    framejit.reset()
    framejit.compile(fn)(*args)
    assert framejit.stats()["graphs"] == 1
    return framejit.stats()["kernels"]


def chain(body, n):
    def f(x):
        for _ in range(n):
            x = body(x)
        return x
    return f


SHAPES = [(64, 64), (70, 131), (9001,), (3, 5, 77)]
BODIES = {
    "sin": lambda x: torch.sin(x) * 1.01 + 0.1,
    "sigmoid": lambda x: torch.sigmoid(x) * 1.01 + 0.1,
    "gelu": lambda x: F.gelu(x) * 1.01 + 0.1,
    "pow": lambda x: torch.pow(x.abs() + 0.5, 1.3) * 0.7,
    "hardswish": lambda x: F.hardswish(x) + 0.3,
    "halves": lambda x: torch.tanh(x.bfloat16()).float() * 1.01,
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_chain_is_cut_into_equal_kernels(name, shape):
    # 100 steps, but few distinct kernels: first, middle, last
    assert kernels_of(chain(BODIES[name], 100), torch.randn(shape)) <= 4


@pytest.mark.parametrize("name", BODIES)
def test_kernels_stay_short(name):
    """The time of LLVM grows faster than the code: kernels must not grow with the chain."""
    def longest(n):
        report = framejit.explain(chain(BODIES[name], n))(torch.randn(64, 64))
        return max(event.artefact.count("\n") for event in report.events
                   if event.event == "Kernel" and " as kernel_ir, " in event.text)
    assert longest(200) <= longest(100) * 1.1


def test_a_small_chain_is_one_kernel():
    assert kernels_of(chain(BODIES["sin"], 8), torch.randn(64, 64)) == 1


@pytest.mark.parametrize("steps", [3, 24])
def test_unrolled_cells_share_their_kernels(steps):
    f, args = growth.cells(steps)
    assert kernels_of(f, *args) <= 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool],
                         ids=str)
@pytest.mark.parametrize("length", [1, 16, 37])
def test_slices_of_one_tensor_share_a_kernel(dtype, length):
    def f(x):  # separate results, so that none of them merge; matrices keep them apart
        return [(x[i * length:(i + 1) * length] == x[(i + 1) * length:(i + 2) * length]).sum() for i in range(12)]
    kernels = kernels_of(f, torch.randn(13 * length).mul(3).to(dtype))
    assert kernels <= 12  # one, if all are nests of one kernel

    def g(x):
        parts = []
        for i in range(12):
            part = torch.mm(x[i * length:(i + 1) * length].float().view(1, length), torch.ones(length, length))
            parts.append(x[i * length:(i + 1) * length].float() + part[0])
        return parts
    assert kernels_of(g, torch.randn(13 * length).mul(3).to(dtype)) <= 5


OFFSETS = {
    "flipped": lambda x: [x[i:i + 20].flip(0) * 2 for i in range(5)],
    "padded": lambda x: [F.pad(x[i * 3:i * 3 + 9], (2, 3)) + 1 for i in range(5)],
    "two places of one": lambda x: [x[i:i + 20] * x[i + 7:i + 27] for i in range(5)],
    "rows and columns": lambda x: [x.view(10, 10)[i] + x.view(10, 10)[:, i] for i in range(10)],
    "diagonals": lambda x: [x.view(10, 10).diagonal(k) * 2 for k in range(-3, 4)],
    "strided": lambda x: [x[i::7] - 1 for i in range(7)],
    "gathered": lambda x: [x[10 * i:10 * i + 10][torch.tensor([3, 1, 9])] for i in range(5)],
    "reduced": lambda x: [x[10 * i:10 * i + 10].softmax(0) for i in range(10)],
    "scanned": lambda x: [x[10 * i:10 * i + 10].cumsum(0) for i in range(10)],
    "written": lambda x: [x.clone()[i:].mul_(i + 1).add_(x[:100 - i]) - 1 for i in range(6)],
    "empty": lambda x: [x[i:i] + 1 for i in range(90, 100)],
}


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("offset", [0, 1, 16])
def test_offsets(name, offset):
    base = torch.randn(200)
    check(OFFSETS[name], base[offset:offset + 100])
    check(lambda x: OFFSETS[name](torch.sin(x)), base[offset:offset + 100])


def test_rows_of_an_input_are_written_where_they_are():
    def f(cache, x):
        for i in range(6):
            cache[i * 2 + 1] = torch.sin(x[i]) + cache[i * 2]
        return cache.sum()
    check(f, torch.randn(13, 33), torch.randn(6, 33))


@pytest.mark.parametrize("family", [growth.doubling, growth.doubling_across])
def test_reuse_does_not_multiply(family):
    f, args = family(40)
    kernels_of(f, *args)
