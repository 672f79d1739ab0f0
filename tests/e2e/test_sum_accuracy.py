"""Sums are as exact as eager's: at most twice its error against float64, for all lengths, fixed and symbolic, and the
same bits on one thread and on two.

Errors are root mean squares over what a call returns and over several draws; half a unit in the last place of the
result is free, because eager is sometimes exact by luck. All numbers are positive, so that nothing cancels: every
rounding of a long chain shows.
"""
import pytest
import torch

import framejit
from check import threads

LENGTHS = [1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 65, 100, 127, 129, 255, 257, 511, 769, 1000, 1023, 1537, 1999, 2000]
SHORT = [1, 33, 127, 769, 2000]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]

REDUCTIONS = {
    "row sum": (lambda x: x.sum(-1), lambda n: (37, n)),
    "column sum": (lambda x: x.sum(0), lambda n: (n, 37)),
    "middle sum": (lambda x: x.sum(1), lambda n: (3, n, 5)),
    "outer and inner sum": (lambda x: x.sum((0, 2)), lambda n: (n, 5, 3)),
    "full sum": (lambda x: x.sum(), lambda n: (n, 61)),
    "row mean": (lambda x: x.mean(-1), lambda n: (37, n)),
    "column mean": (lambda x: x.mean(0), lambda n: (n, 37)),
    "full mean": (lambda x: x.mean(), lambda n: (61, n)),
    "row variance": (lambda x: x.var(-1, correction=0), lambda n: (37, n)),
    "column deviation": (lambda x: x.std(0, correction=0), lambda n: (n, 37)),
    "full variance": (lambda x: x.var(correction=0), lambda n: (n, 61)),
    "row norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), lambda n: (37, n)),
    "column norm": (lambda x: torch.linalg.vector_norm(x, dim=0), lambda n: (n, 37)),
    "full norm": (lambda x: torch.linalg.vector_norm(x), lambda n: (61, n)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), lambda n: (37, n)),
    "softmax": (lambda x: torch.softmax(x, -1), lambda n: (37, n)),
}


def rms(values):
    return values.double().pow(2).mean().sqrt().item()


def check_accuracy(fn, compiled, shape, dtype, draws=4):
    eager_error = own_error = size = 0
    for seed in range(draws):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
        truth = fn(x.double())
        eager_error += rms(fn(x).double() - truth)
        own_error += rms(compiled(x).double() - truth)
        size += rms(truth)
    assert own_error <= 2 * eager_error + 0.5 * torch.finfo(
        dtype).eps * size, f"{shape}: {own_error / draws}, eager {eager_error / draws}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_symbolic_lengths(name, dtype):
    fn, shape = REDUCTIONS[name]
    compiled = framejit.compile(fn, dynamic=True)
    with torch.no_grad():
        for n in LENGTHS:
            check_accuracy(fn, compiled, shape(n), dtype)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_fixed_lengths(name):
    fn, shape = REDUCTIONS[name]
    with torch.no_grad():
        for n in SHORT:
            framejit.reset()
            check_accuracy(fn, framejit.compile(fn, dynamic=False), shape(n), torch.float32)


@pytest.mark.parametrize("shape, dims", [((9, 200_003), -1), ((200_003, 9), 0), ((1000, 1000), (0, 1)),
                                         ((300_007,), 0)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_very_long_sums(shape, dims, dynamic):
    def fn(x):
        return x.sum(dims)
    with torch.no_grad():
        check_accuracy(fn, framejit.compile(fn, dynamic=dynamic), shape, torch.float32, draws=6)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_long_sums_of_infinities(value):
    compiled = framejit.compile(lambda x: (x.sum(0), x.sum(1)))
    x = torch.rand(3001, 2999)
    x[1234, 987] = value
    with torch.no_grad():
        for own, eager in zip(compiled(x), (x.sum(0), x.sum(1))):
            torch.testing.assert_close(own, eager, equal_nan=True)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_bits_do_not_depend_on_threads(name):
    fn, shape = REDUCTIONS[name]
    for dynamic in (False, True):
        framejit.reset()
        compiled = framejit.compile(fn, dynamic=dynamic)
        for n in (769, 9999):
            x, results = torch.rand(shape(n)), []
            for count in (1, 2):
                with threads(count), torch.no_grad():
                    results.append(compiled(x))
            assert torch.equal(results[0], results[1])


LEFT_OVER = {
    "sum": lambda x: x.sum(), "prod": lambda x: (x * 1e-9 + 1).prod(), "amax": lambda x: x.amax(),
    "amin": lambda x: x.amin(), "any": lambda x: (x > 1e9).any(), "all": lambda x: (x < 1e9).all(),
    "count": lambda x: (x > 0).sum(),
}


@pytest.mark.parametrize("name", LEFT_OVER)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_parts_leave_over(name, dynamic):
    """A length that the number of parts does not divide: its last elements decide the result."""
    fn = LEFT_OVER[name]
    compiled = framejit.compile(fn, dynamic=dynamic)
    for n in (1_000_003, 65_537, 65_539):
        for at, value in ((n - 1, 2e9), (n - 1, -2e9), (0, 2e9), (n // 2, 0.0)):
            x = torch.ones(n)
            x[at] = value
            expected, results = fn(x.double() if name == "sum" else x), []
            for count in (1, 2):
                with threads(count), torch.no_grad():
                    results.append(compiled(x))
            torch.testing.assert_close(results[0].to(expected.dtype), expected, rtol=1e-5, atol=1e-5)
            assert torch.equal(results[0], results[1])


@pytest.mark.parametrize("count", [3, 12, 25, 64])
def test_short_sums_of_large_terms_are_rounded_once(count):
    compiled = framejit.compile(lambda x: (x.sum(), x.view(1, -1).sum(1), x[:, None].sum(0)))
    for seed in range(20):
        torch.manual_seed(seed)
        x = torch.randn(count) * 100
        exact = x.double().sum().float()
        for got in compiled(x):
            assert torch.equal(got.reshape(()), exact), (seed, got, exact)
