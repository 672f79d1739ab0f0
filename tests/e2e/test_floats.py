"""Python floats that differ from call to call: at most two compiles, wherever torch takes a number, and every result
equals eager's."""
import math

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import backend, exactly_as, fresh, same  # noqa: F401
from stated import RUN_ERRORS

FLOATS = (0.5, 1.5, 2.0, 3.25, 1.0, -2.0, 0.75)
SPECIAL = (0.5, -0.5, 0.0, -0.0, 1.0, 2.0, 3.0, -1.0, -2.0, math.inf, -math.inf, math.nan)


def runs(fn, x, floats, backend, **options):
    """Compares every call with eager; returns the number of compiled graphs."""
    compiled = framejit.compile(fn, backend=backend, **options)
    for k in floats:
        same(compiled(x.clone(), k), fn(x.clone(), k), exactly_as(lambda: fn(x.clone(), k)))
    assert framejit.stats()["fallbacks"] == 0 and framejit.stats()["graph_breaks"] == 0
    return framejit.stats()["graphs"]


NUMBERS = {
    "operator pow": lambda x, k: x.abs() ** k,
    "pow": lambda x, k: torch.pow(x, k),
    "pow keyword": lambda x, k: x.pow(exponent=k),
    "pow of a number": lambda x, k: torch.pow(k, x),
    "operator mod": lambda x, k: x % k,
    "operator pow of a number": lambda x, k: k ** x,
    "operator mod of a number": lambda x, k: k % x,
    "fmod": lambda x, k: x.fmod(k),
    "clamp min": lambda x, k: x.clamp(min=k),
    "clamp max": lambda x, k: torch.clamp(x, -1.0, k),
    "clamp both": lambda x, k: x.clamp(k, max=k * 2),
    "clamp_": lambda x, k: x.clamp_(min=k) + 1,
    "clamp_min": lambda x, k: x.clamp_min(k),
    "full": lambda x, k: torch.full((3,), k) + x,
    "full of a dtype": lambda x, k: torch.full((3,), k, dtype=torch.float64),
    "full_like": lambda x, k: torch.full_like(x, k),
    "new_full": lambda x, k: x.new_full((2,), k),
    "fill_": lambda x, k: (x.fill_(k), x + 1),
    "alpha": lambda x, k: torch.add(x, x.sin(), alpha=k),
    "moving average in place": lambda x, k: x.mul_(k).add_(x.sin(), alpha=1 - k),
    "lerp": lambda x, k: x.lerp(x.sin(), k),
    "addcmul": lambda x, k: torch.addcmul(x, x, x, value=k),
    "addmm": lambda x, k: torch.addmm(x, x, torch.ones(3, 3), beta=k, alpha=2 * k),
    "leaky_relu": lambda x, k: F.leaky_relu(x, k),
    "elu": lambda x, k: F.elu(x, k),
    "softplus": lambda x, k: F.softplus(x, abs(1.5), k),
    "threshold": lambda x, k: F.threshold(x, k, k),
    "softshrink of a sum": lambda x, k: F.hardshrink(x, k + 3),
    "0-dim": lambda x, k: x.sum() ** k,
    "integers": lambda x, k: (x.long().clamp(max=k), x.long() % k),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_compiles_twice(name, backend):
    x = torch.tensor([[0.25, -1.5, 2.0], [0.0, 3.5, -0.75], [-4.0, 1.0, 0.5]])
    assert runs(NUMBERS[name], x, FLOATS, backend) == 2


@pytest.mark.parametrize("name", ["operator pow", "pow", "clamp min", "clamp max", "alpha", "full", "operator mod",
                                  "leaky_relu", "operator pow of a number", "operator mod of a number"])
def test_special_numbers_are_eagers(name, backend):
    x = torch.tensor([[0.0, -0.0, 1.0], [math.inf, -math.inf, math.nan], [2.0, -3.0, 0.5]])
    assert runs(NUMBERS[name], x, SPECIAL, backend) == 2
    runs(NUMBERS[name], x.to(torch.bfloat16), SPECIAL, backend)
    runs(NUMBERS[name], x.half(), SPECIAL, backend)


BESIDE_INTEGERS = {
    "arithmetic": lambda x, k: (x + k, k - x.long(), x * k, x / k, k / x),
    "floor division": lambda x, k: x // k,
    "comparison": lambda x, k: (x < k, x >= k, x == k, k != x, torch.eq(x, k)),
    "a sum": lambda x, k: (x.sum() * k, k - x.float().sum(), x.double().sum() / k, x.max() < k),
}


@pytest.mark.parametrize("dtype", (torch.int64, torch.uint8, torch.bool))
@pytest.mark.parametrize("name", BESIDE_INTEGERS)
def test_special_numbers_beside_integers(name, dtype, backend):
    x = torch.tensor([[0, 1, 2], [3, 100, 254]]).to(dtype)
    assert runs(BESIDE_INTEGERS[name], x, (*SPECIAL, 1e300, -1e300, 1e-46, 16777217.0, 0.1), backend) == 2


def test_the_default_dtype_promotes(backend):
    torch.set_default_dtype(torch.float64)
    try:
        assert runs(lambda x, k: x * k, torch.tensor([1, 2, 3]), (0.1, 0.2, 0.3), backend) == 2
    finally:
        torch.set_default_dtype(torch.float32)
    runs(lambda x, k: x * k, torch.tensor([1, 2, 3]), (0.1, 0.2, 0.3), backend)


ARITHMETIC = {
    "sum": lambda x, k: x * (k + 1) + (3 - k),
    "product": lambda x, k: x / (2 * k * k + 1),
    "quotient": lambda x, k: x * (k / 4),
    "negative": lambda x, k: x - (-k),
    "moving average": lambda x, k: x * k + (1.0 - k) * x.sin(),
    "leaves the trace": lambda x, k: (x * (k * 3), k * 3 - 1, [k + 0.5]),
    "leaves without a tensor": lambda x, k: (x + 1, -k * 7),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_stays_open(name, backend):
    assert runs(ARITHMETIC[name], torch.randn(4, 3), FLOATS + (math.inf, -0.0, 0.0), backend) == 2


def test_open_at_once(backend):
    assert runs(lambda x, k: (x ** k, x * (1 - k), k - 1), torch.rand(3, 2), FLOATS, backend, dynamic=True) == 1


def test_never_open(backend):
    assert runs(lambda x, k: x.clamp(min=k), torch.rand(3, 2), FLOATS[:4], backend, dynamic=False) == 4


@pytest.mark.parametrize("fn", [
    lambda x, k: x ** k if k > 1 else x.clamp(max=k),
    lambda x, k: F.layer_norm(x, (3,), eps=abs(k)),
    lambda x, k: x * int(k * 2),
    lambda x, k: x + {0.5: 1, 1.5: 2}.get(k, 3),
    lambda x, k: x * (1 / k),
    lambda x, k: x * math.sqrt(abs(k)),
    lambda x, k: (x + 1, f"{k * 2:.2f}"),
], ids=["branch", "eps", "int", "key", "divisor", "math", "text"])
def test_who_asks_for_the_number_guards_it(fn, backend):
    assert runs(fn, torch.rand(4, 3), FLOATS, backend) <= len(FLOATS)


@pytest.mark.breaks(exception_raised=1)
def test_a_division_by_zero_is_pythons(backend):
    def f(x, k):
        return x * (1 / k)
    compiled, x = framejit.compile(f, backend=backend), torch.ones(2)
    for k in (0.5, 0.25, 2.0):
        same(compiled(x, k), f(x, k))
    with pytest.raises(ZeroDivisionError):
        compiled(x, 0.0)


def test_another_type_is_another_entry(backend):
    def f(x, k):
        return x.clamp(min=k), k * 2
    compiled, x = framejit.compile(f, backend=backend), torch.tensor([1.5, -2.0, 3.0])
    for k in (0.5, 1.5, 2, 2.5, True, 3.5, 4):
        same(compiled(x, k), f(x, k))


@pytest.mark.breaks(exception_raised=1)
def test_an_error_that_the_number_causes_is_eagers(backend):
    def f(x, k):
        return torch.add(x, x, alpha=k)
    compiled = framejit.compile(f, backend=backend)
    for k in (0.5, 1.5, 2.5):
        same(compiled(torch.ones(2), k), f(torch.ones(2), k))
        for whole in (torch.int64, torch.bool):
            with pytest.raises(RuntimeError, match="argument alpha must not be a floating point number"):
                compiled(torch.ones(2, dtype=whole), k)


def test_the_captured_graph_names_the_float(backend):
    compiled = framejit.compile(lambda x, k: x.clamp(min=k), backend=backend)
    events = []
    token = framejit._framejit.add_listener(lambda e: e["event"] == "Graph" and events.append(e["artefact"]))
    for k in (0.5, 1.5):
        compiled(torch.ones(2), k)
    framejit._framejit.remove_listener(token)
    assert "L['k']" not in events[0] and "%L_k = L['k'] : f64[]" in events[1] and "min=%L_k" in events[
        1] and "framejit::clamp" in events[1]


def test_a_module_attribute():
    class Averaged(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.decay = 0.5
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean.mul_(self.decay).add_(x, alpha=1 - self.decay)
            return self.mean + 1
    ours, plain = Averaged(), Averaged()
    compiled = framejit.compile(ours)
    for step in range(8):
        x = torch.randn(3)
        ours.decay = plain.decay = 1 - 0.5 / (step + 1)
        same(compiled(x), plain(x))
        same(ours.mean, plain.mean)
    assert framejit.stats()["graphs"] == 2


CHECKED = {
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill of a tensor": lambda x, n: x.masked_fill(x > 0,
                                                          torch.scalar_tensor(n, dtype=torch.float64
                                                              if isinstance(n, float) else torch.int64)),
    "clamp": lambda x, n: x.clamp(min=n),
    "clamp both": lambda x, n: x.clamp(-1, n),
    "clip": lambda x, n: torch.clip(x, max=n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype),
    "full_like": lambda x, n: torch.full_like(x, n),
    "new_full": lambda x, n: x.new_full((2,), n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "where": lambda x, n: torch.where(x > 0, n, x),
    "where not": lambda x, n: torch.where(x > 0, x, n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "threshold": lambda x, n: F.threshold(x, 0, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "unchecked": lambda x, n: (x + n, x * n, x == n),
}
OVERFLOWING = {
    torch.uint8: (256, -256, 2**40, -1.5, 300.0), torch.int8: (128, -129, 2**31, 200.0, math.inf),
    torch.int32: (2**31, -(2**31) - 1, 2.0**31, math.nan), torch.float16: (65505, -(2**40), 65505.0, 1e39, math.inf),
    torch.bfloat16: (2**63 - 1, 3.4e38, -1e39, math.nan), torch.float32: (2**63 - 1, 3.41e38, -1e300, -math.inf),
}


class TestNumbersThatDoNotFit:
    """Eager checks numbers against the result's dtype. So does a graph, whether a number has become an input or is part
    of the graph."""

    @pytest.mark.breaks(exception_raised=range(3))  # how many depends on the op, the dtype and `dynamic`
    @pytest.mark.fallbacks(kernel_check=range(6), run_failed=range(6), entry_limit=range(6))
    @pytest.mark.parametrize("dynamic", [None, True, False])
    @pytest.mark.parametrize("dtype", OVERFLOWING, ids=str)
    @pytest.mark.parametrize("name", CHECKED)
    def test_raises_as_eager(self, name, dtype, dynamic, backend):
        if name.startswith("where") and dtype == torch.float32 and backend == "eager":
            # next to float32, the number is a 0-dim tensor there, which eager's where() does not check
            dtype = torch.float64
        fn, x = CHECKED[name], torch.ones(2).to(dtype)
        for kind in (int, float):
            compiled = framejit.compile(fn, backend=backend, dynamic=dynamic)
            for n in (5, 6, 7) + tuple(v for v in OVERFLOWING.get(dtype, ()) if type(v) is kind) + (8,):
                n = n if type(n) is kind else kind(n)
                try:
                    expected = fn(x, n)
                except RuntimeError as error:
                    with pytest.raises(RuntimeError) as raised:
                        compiled(x, n)
                    assert str(raised.value) == str(error)
                else:
                    same(compiled(x, n), expected)
        # what raises runs plainly; each number is an entry of its own if none may become an input
        reasons = RUN_ERRORS | ({"entry_limit"} if dynamic is False else set())
        stats = framejit.stats()
        assert stats["graphs"] in (range(2, 10) if dynamic is not True else range(1, 9)), stats
        assert set(stats["fallback_reasons"]) <= reasons, stats
