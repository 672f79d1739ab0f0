"""Operands and results of library calls: large ones are in memory that a plan keeps, unless somebody else may hold
them."""
import os
import re
import resource

import pytest
import torch
import torch.nn.functional as F

import framejit
import programs
from check import check, fresh, same_as  # noqa: F401

STEPS = {**os.environ, "FRAMEJIT_LOGS": "steps", "PYTHONPATH": os.path.dirname(__file__)}

SIZE = 256  # a matrix of it is large enough for the arena
KEPT = []


@torch.library.custom_op("framejit_tests::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x)
    return x * 2


@keep.register_fake
def _(x):
    return torch.empty_like(x)


def matrices(count, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(SIZE, SIZE).to(dtype) for _ in range(count)]


PROGRAMS = {
    "chain": lambda x, w: torch.relu(torch.relu(x * 2) @ w) @ w + 1,
    "scaled": lambda x, w: torch.addmm(x * 2, x + 1, w, beta=0.5, alpha=2) * 3,
    "bias": lambda x, w: torch.relu(F.linear(torch.tanh(x), w, x[0])) - 1,
    "batched": lambda x, w: torch.relu(torch.bmm((x - 1).view(4, 64, SIZE), (w + 1).expand(4, -1, -1))) + 1,
    "batched, added": lambda x, w: torch.baddbmm((x + w).view(4, 64, SIZE), (x - 1).view(4, 64, SIZE),
                                                 (w + 1).expand(4, -1, -1)).relu(),
    "transposed operands": lambda x, w: (((x + 1).t() @ (w + 1).t()).t() @ (x - 1)[:, ::2]).relu(),
    "operand returned": lambda x, w: (lambda y: (y, (y @ w).relu()))(x * 2),
    "result returned": lambda x, w: (lambda y: (y, y.relu()))((x * 2) @ w),
    "view of an operand returned": lambda x, w: (lambda y: (y[2:].t(), (y @ w).relu()))(x * 2),
    "view of a result returned": lambda x, w: (lambda y: (y.view(-1), y.relu()))((x * 2) @ w),
    "result written to an argument": lambda x, w: x.copy_((x * 2) @ w).relu(),
    "convolution": lambda x, w: F.max_pool2d(F.conv2d((x + 1).view(1, 16, 64, 64), (w - 1).view(64, 16, 8, 8)).relu()
                                             + 1, 2),
    "views made by the library": lambda x, w: torch.ops.aten.as_strided((x * 2) @ w, [8, 8], [3, 5])
    + torch.narrow((x + 2) @ w, 0, 3, 8)[:, :8],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal(name, dtype):
    check(PROGRAMS[name], *matrices(2, dtype), breaks=0)


CONVOLUTIONS = {  # what is computed from a result of the library, and how many kernels write over it
    "read by the next": ("y = c(x).relu()\n    return c(y)", 1),
    "two, one after the other": ("y = c(x).relu()\n    y = y.tanh() + c(y)\n    return c(y)", 2),
    "read again later": ("y = c(x)\n    return c(y.relu()) + y", 0),
    "returned": ("y = c(x)\n    return y, c(y.relu())", 0),
    "a view of it returned": ("y = c(x)\n    return y[0, 1:], c(y.relu())", 0),
    "what is made of it returned": ("return c(x).relu()", 0),
    "in another layout": ("return c(c(x).mT.contiguous() * 2)", 0),
    "through another dtype": ("return c(c(x).double().exp().float())", 1),
    "a part of it": ("return c(c(x)[:, :, 2:].sigmoid())", 0),
    "moved": ("return c(c(x).flip(3))", 0),
}
OVER_RESULTS = """
import torch, framejit
from check import same_as
import torch.nn.functional as F
torch.manual_seed(0)
w, x = torch.randn(16, 16, 3, 3), torch.randn(2, 16, 24, 24)
def c(x):
    return F.conv2d(x, w, padding=1)
def f(x):
    {body}
with torch.no_grad():
    compiled = framejit.compile(f)
    for scale in (1, 2):
        got, again = compiled(x * scale), compiled(x)
        same_as(f, got, x * scale)
assert framejit.stats()["fallbacks"] == 0
"""


@pytest.mark.nothing_captured("a process of its own captures")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_kernels_write_over_what_a_library_call_has_made(name):
    body, over = CONVOLUTIONS[name]
    done = programs.run(OVER_RESULTS.format(body=body), env=STEPS)
    assert done.returncode == 0, done.stderr
    made = set(re.findall(r"(b\d+) = convolution", done.stderr))
    kernels = re.findall(r"kernel k\d+\(([^)]*)\)", done.stderr)
    written = [k for k in kernels if k.split(", ")[-1] in made]
    assert len(written) == over, done.stderr


SUMS = {  # what is added to a convolution, and whether the library adds it in place
    "ends there": ("y = a(x).relu()\n    return (b(a(y).relu()) + y).relu().mean((2, 3))", 1),
    "the other operand": ("y = a(x).relu()\n    return (y + b(a(y).relu())).relu().mean((2, 3))", 1),
    "two, one after the other":
        ("y = a(x)\n    y = b(a(y).sin()) + y\n    return (a(b(y).sin()) + y).relu().mean((2, 3))", 2),
    "of another library call": ("return (b(x) + a(x)).relu().mean((2, 3))", 1),
    "read by the same call": ("y = a(x).relu()\n    return (b(y) + y).relu().mean((2, 3))", 0),
    "read again later": ("y = a(x).relu()\n    z = b(a(y).relu()) + y\n    return (z * y).relu().mean((2, 3))", 0),
    "returned": ("y = a(x).relu()\n    return b(a(y).relu()) + y, y", 0),
    "a view of it returned": ("y = a(x).relu()\n    return (b(a(y).relu()) + y).relu().mean((2, 3)), y[0, 1:]", 0),
    "an input": ("return (b(a(x).relu()) + x).relu().mean((2, 3))", 0),
    "returned itself": ("y = a(x).relu()\n    return b(a(y).relu()) + y", 0),
}
OVER_ADDED = """
import torch, framejit
from check import same_as
torch.manual_seed(0)
a, b = (torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
x = torch.randn(2, 16, 24, 24).to(memory_format=torch.channels_last)
def f(x):
    {body}
with torch.no_grad():
    compiled = framejit.compile(f, options=dict(freezing=True))
    for scale in (1, 2, 3, 4, 5, 6, 7):
        given = x * scale
        got, again = compiled(given), compiled(x)
        assert torch.equal(given, x * scale)
        same_as(f, got, x * scale)
stats = framejit.stats()
assert stats["fallbacks"] == 0 and stats["derived_values"] > 0, stats
"""


@pytest.mark.nothing_captured("a process of its own captures")
@pytest.mark.parametrize("name", SUMS)
def test_the_library_adds_to_what_ends(name):
    body, over = SUMS[name]
    done = programs.run(OVER_ADDED.format(body=body), env=STEPS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("call mkldnn::_convolution_pointwise_.binary") == over, done.stderr


def test_sizes_that_change():
    f = framejit.compile(lambda x, w: torch.relu((x * 2) @ w) @ w, dynamic=True)
    w = torch.randn(SIZE, SIZE)
    for rows in (SIZE, 300, 128):
        x = torch.randn(rows, SIZE)
        same_as(lambda x, w: torch.relu((x * 2) @ w) @ w, f(x, w), x, w)


def test_an_operator_that_keeps_its_operand():
    f = framejit.compile(lambda x, w: keep(torch.relu(x @ w)) @ w)
    x, w = matrices(2)
    KEPT.clear()
    for scale in (1, 2, 3):
        f(x * scale, w)
    assert len(KEPT) >= 3
    for kept, scale in zip(KEPT[-3:], (1, 2, 3)):
        same_as(lambda x, w: torch.relu(x @ w), kept, x * scale, w)


def test_results_of_earlier_calls_stay():
    f = framejit.compile(lambda x, w: torch.relu(x @ w) @ w)
    x, w = matrices(2)
    got = [f(x * scale, w) for scale in (1, 2, 3)]
    for result, scale in zip(got, (1, 2, 3)):
        same_as(lambda x, w: torch.relu(x @ w) @ w, result, x * scale, w)


def test_memory_of_intermediate_results_is_mapped_once():
    x, w = torch.randn(2048, 1024), torch.randn(1024, 1024)  # eight megabytes per result

    def f(x, w):
        for _ in range(4):
            x = torch.relu(x @ w)
        return x.sum()

    def faults(f):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        f(x, w)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    compiled = framejit.compile(f)
    compiled(x, w), compiled(x, w)
    assert min(faults(compiled) for _ in range(5)) < 64  # the system may take pages back now and then


@pytest.mark.breaks(unknown_callable=1)
def test_a_property_that_pybind11_made_is_named_by_its_class():
    """Its getter has no name."""
    schema = torch.ops.aten.add.Tensor._schema
    with torch.no_grad():
        explanation = framejit.explain(lambda x: (x + 1, schema.name))(torch.ones(2))
    details = [e.fields["detail"] for e in explanation.breaks]
    assert details == ["call of a property of torch._C.FunctionSchema, which is not known to be safe to trace"]
    assert framejit.stats()["graphs"] == 1
