"""Kernels that a program gives torch's own ops (torch.library): compiled calls run plainly while there is one."""
import contextlib
import warnings

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit import _framejit
from check import backend, fresh  # noqa: F401

WEIGHT = torch.eye(4)
# op: dispatch key, what takes its place, a program
REPLACED = {
    "relu": ("CPU", lambda x: x * 100, lambda x: torch.relu(x) + 1),
    "clamp_min": ("CPU", lambda x, least: x * 100, lambda x: torch.relu(x) + 1),  # relu calls it
    "elu": ("CPU", lambda x, *numbers: x * 100, lambda x: F.celu(x) + 1),  # so does celu
    "silu": ("AutogradCPU", lambda x: x * 100, lambda x: F.silu(x) + 1),
    "mish": ("Autograd", lambda x: x * 100, lambda x: F.mish(x) + 1),
    "linear": ("CompositeImplicitAutograd", lambda x, w, bias=None: x * 100, lambda x: F.linear(x, WEIGHT) + 1),
    "add.Tensor": ("CPU", lambda x, y, alpha=1: x * y, lambda x: (x + x).sin()),
}


@contextlib.contextmanager
def replaced(op, key, kernel, calls):
    library = torch.library.Library("aten", "IMPL")

    def counted(*args, **kwargs):
        calls.append(op)
        return kernel(*args, **kwargs)
    with warnings.catch_warnings(action="ignore"):
        library.impl(op, counted, key)
    try:
        yield
    finally:
        library._destroy()


def same_calls(f, compiled, x, calls):
    """Compares results, and how often the kernel was called."""
    calls.clear()
    want, counted = f(x), len(calls)
    calls.clear()
    assert torch.equal(compiled(x), want) and len(calls) == counted
    return counted


@pytest.mark.breaks(modes_unsupported=1)
@pytest.mark.parametrize("op", REPLACED)
@pytest.mark.parametrize("compiled_before", [False, True])
def test_a_kernel_that_the_program_registers(op, compiled_before, backend):
    key, kernel, f = REPLACED[op]
    compiled, x, calls = framejit.compile(f, backend=backend), torch.tensor([[-1.0, 0.5, 2.0, -3.0]]), []
    if compiled_before:
        torch.testing.assert_close(compiled(x), f(x))
    with replaced(op, key, kernel, calls):
        for _ in range(3):
            assert same_calls(f, compiled, x, calls), "the kernel is not called"
    for _ in range(2):
        torch.testing.assert_close(compiled(x), f(x))
    assert framejit.stats()["graphs"] == 1


@pytest.mark.breaks(modes_unsupported=1)
def test_a_kernel_takes_the_place_of_another(backend):
    def f(x):
        return torch.relu(x) + 1
    compiled, x, calls = framejit.compile(f, backend=backend), torch.randn(4), []
    torch.testing.assert_close(compiled(x), f(x))
    for factor in (3, 5):
        with replaced("relu", "CPU", lambda x: x * factor, calls):
            assert same_calls(f, compiled, x, calls)
            with replaced("relu", "CPU", lambda x: x * 7, calls):
                assert same_calls(f, compiled, x, calls)
            assert same_calls(f, compiled, x, calls)
    torch.testing.assert_close(compiled(x), f(x))


@pytest.mark.breaks(modes_unsupported=1)
@pytest.mark.nothing_captured
def test_a_replaced_formula_of_gradients(backend):
    compiled, calls = framejit.compile(lambda x: torch.relu(x) + 1, backend=backend), []
    x = torch.randn(4, requires_grad=True)
    with torch.enable_grad(), replaced("threshold_backward", "CPU", lambda g, x, n: g * 9, calls):
        compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 9.0)) and calls == ["threshold_backward"]


@pytest.mark.parametrize("op, key", [("relu", "Meta"), ("relu", "XLA"), ("relu", "SparseCPU"), ("relu", "Batched")])
def test_kernels_for_other_tensors_do_not_count(op, key, backend):
    compiled, x = framejit.compile(lambda x: torch.relu(x) + 1, backend=backend), torch.randn(4)
    with replaced(op, key, torch.empty_like, []):
        torch.testing.assert_close(compiled(x), torch.relu(x) + 1)


def test_an_op_of_the_program_in_torchs_namespace(backend):
    library = torch.library.Library("aten", "FRAGMENT")
    library.define("framejit_tests_thrice(Tensor x) -> Tensor")
    library.impl("framejit_tests_thrice", lambda x: x * 3, "CPU")
    library.impl("framejit_tests_thrice", torch.empty_like, "Meta")
    compiled, x = framejit.compile(lambda x: torch.relu(x) + 1, backend=backend), torch.randn(4)
    torch.testing.assert_close(compiled(x), torch.relu(x) + 1)
    library._destroy()


@pytest.mark.breaks(modes_unsupported=1)
@pytest.mark.nothing_captured
@pytest.mark.parametrize("register", [
    lambda kernel, library: torch.library.register_kernel("aten::relu", "cpu", kernel, lib=library),
    lambda kernel, library: torch.library.impl("aten::relu", "CPU", kernel, lib=library)], ids=["kernel", "impl"])
def test_the_log_names_the_kernel(register):
    library, seen = torch.library.Library("aten", "IMPL"), []
    token = _framejit.add_listener(lambda e: e["event"] == "Break" and seen.append(e["fields"]["detail"]))
    with warnings.catch_warnings(action="ignore"):
        register(lambda x: x * 100, library)
    assert torch.equal(framejit.compile(torch.relu)(torch.ones(2)), torch.full((2,), 100.0))
    library._destroy()
    _framejit.remove_listener(token)
    assert seen == ["a kernel of aten::relu (CPU) that the program has registered is active"]


SCALE = 2.0


@pytest.mark.parametrize("key, breaks", [("CompositeImplicitAutograd", 1), ("AutogradCPU", 1), ("CPU", 0),
                                         ("CompositeExplicitAutograd", 0)])
def test_python_code_of_an_op_of_the_program_runs_in_each_call(key, breaks, backend):
    global SCALE
    library, calls = torch.library.Library("framejit_python_kernels", "FRAGMENT"), []

    def kernel(x):
        calls.append(key)
        return x * SCALE
    library.define(f"{key}(Tensor x) -> Tensor")
    library.impl(key, kernel, key)
    if key == "CPU":
        library.impl(key, torch.empty_like, "Meta")
    op = getattr(torch.ops.framejit_python_kernels, key)
    compiled, x = framejit.compile(lambda x: op(x + 1).sin(), backend=backend), torch.randn(4)
    compiled(x)  # where there is no shape function, the kernel gives the shape too
    for SCALE in (2.0, 2.0, 3.0):
        assert same_calls(lambda x: op(x + 1).sin(), compiled, x, calls) == 1
    assert framejit.stats()["graph_breaks"] == breaks and framejit.stats()["graphs"] == 1 + breaks
    library._destroy()
