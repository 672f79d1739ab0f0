"""Numbers that differ from call to call, in arithmetic, math, comparisons and texts: compiled a few times (a number
that varies, the side of a branch), but never run plainly."""
import math

import pytest
import torch

import framejit
from check import backend, fresh, same, same_as  # noqa: F401

X = torch.arange(1.0, 5.0)

OF_INTS = {
    "times a float": lambda x, i: x * (i * 0.1),
    "quotient": lambda x, i: x * (i / 10),
    "difference": lambda x, i: x * (1.5 - i),
    "float()": lambda x, i: x * float(i),
    "bias correction": lambda x, i: x / (1 - 0.9 ** (i + 1)),
    "power": lambda x, i: x * i ** 2,
    "negative power": lambda x, i: x * (i + 1) ** -0.5,
    "power of two": lambda x, i: x * 2 ** i,
    "abs()": lambda x, i: x * abs(i - 8),
    "bits": lambda x, i: x * (i & 3) + (i << 1) + (i | 8) - (i ^ 5) + (i >> 1) + ~i,
    "cosine schedule": lambda x, i: x * (0.5 * (1 + math.cos(math.pi * i / 20))),
    "decay": lambda x, i: x * math.exp(-i / 2000),
    "atan2 and hypot": lambda x, i: x * math.atan2(i, 3) + math.hypot(i, 4.0),
    "ramp": lambda x, i: x * min(1.0, i / 10),
    "warm-up": lambda x, i: x * (i / 8 if i < 8 else 1.0),
    "compared with a float": lambda x, i: x * 2 if i > 6.5 else x,
    "a number comes back": lambda x, i: (i * 0.1 + 1, i ** 2, math.sqrt(i), -i / 2, x + 1),
    "a slice by a ratio": lambda x, i: x[:int(x.shape[0] * (i / 14))],
    "a text that nobody reads": lambda x, i: (f"{i / 3:.2f}", x * 2)[1],
    "divmod": lambda x, i: x * divmod(i, 3)[1] + (i + 0.5) // 2 + (i + 0.5) % 2,
}

OF_FLOATS = {
    "guidance": lambda x, g: x * g if g > 1.0 else x,
    "equal to zero": lambda x, g: x * g if g == 0.0 else x + g,
    "truth": lambda x, g: x * g if g else x + g,
    "not": lambda x, g: x if not g else x * g,
    "annealing": lambda x, g: x * max(g * 0.9, 7.5) + min(g, 4.5),
    "reciprocal": lambda x, g: x * (1 / g),
    "quotient of two": lambda x, g: x * ((g + 1) / (g * 2)),
    "square": lambda x, g: x * g ** 2 + abs(g - 5),
    "root": lambda x, g: x * math.sqrt(1 - (g / 100) * (g / 100)),
    "rounded": lambda x, g: x * round(g * 3) + math.ceil(g) + math.floor(g) + int(g),
    "digits": lambda x, g: x * round(g / 3, 2),
    "remainder": lambda x, g: x * (g % 1.3) + g // 2.0,
    "chained comparison": lambda x, g: x + 1 if 0.0 < g < 9.0 else x - 1,
    "a text that nobody reads": lambda x, g: (f"{g:.2f} {g}", str(g), x * 2)[2],
    "it comes back": lambda x, g: (x + g, g, -g, g * 2, math.log(g), g > 3.0),
    "a loop": lambda x, g: x * sum_of_halves(g),
    "kept": lambda x, g: [x * 2, {"rate": g * math.pi}],
}

OF_SIZES = {
    "scale of attention": lambda x: x @ x.t() / math.sqrt(x.shape[0]),
    "root of a size": lambda x: x / x.size(0) ** 0.5,
    "log of a size": lambda x: x * math.log(x.size(0) + 1),
    "mean by hand": lambda x: x.sum() / float(x.shape[0] * x.shape[1]),
    "half of it": lambda x: x[: math.ceil(x.shape[0] / 2)],
}


def sum_of_halves(g):
    total = 0.0
    for _ in range(50):
        total = total * 0.5 + g / 3
    return total


def check(f, calls, backend, most=2):
    compiled = framejit.compile(f, backend=backend)
    for args in calls:
        same_as(f, compiled(*args), *args)
    stats = framejit.stats()
    assert stats["recompiles"] <= most and not stats["fallbacks"] and not stats["graph_breaks"], stats


@pytest.mark.parametrize("name", OF_INTS)
def test_ints(name, backend):
    check(OF_INTS[name], [(X, i) for i in range(1, 15)], backend, most=3)


def test_from_zero(backend):
    check(OF_INTS["cosine schedule"], [(X, i) for i in range(14)], backend)


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name, backend):
    check(OF_FLOATS[name], [(X, 1.5 + i) for i in range(14)], backend, most=3)


@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes(name, backend):
    check(OF_SIZES[name], [(torch.rand(n, 3),) for n in range(2, 16)], backend)


class Adam:
    """The state of a handwritten optimiser: a step that counts, a rate that decays."""

    def __init__(self):
        self.step, self.rate = 0, 0.1
        self.m, self.v = torch.zeros(4), torch.zeros(4)

    def update(self, grad):
        self.step += 1
        self.rate *= 0.97
        self.m = 0.9 * self.m + 0.1 * grad
        self.v = 0.99 * self.v + 0.01 * grad * grad
        rate = self.rate * math.sqrt(1 - 0.99 ** self.step) / (1 - 0.9 ** self.step)
        return rate * self.m / (self.v.sqrt() + 1e-8), rate


TENSORS = {
    "int": lambda x, i: x + torch.tensor(i),
    "timesteps": lambda x, i: torch.tensor([i]),
    "beside a constant": lambda x, i: torch.tensor([i, 5]),
    "float": lambda x, i: torch.tensor(i * 0.1),
    "floats": lambda x, i: torch.tensor((i * 0.1, 2.5, 1.0)),
    "dtype": lambda x, i: torch.tensor([i * 0.1], dtype=torch.float64),
    "int64": lambda x, i: torch.tensor([i, i + 1], dtype=torch.long),
    "float32 of an int": lambda x, i: torch.tensor(i + 16777216, dtype=torch.float32),
    "half of an int": lambda x, i: torch.tensor([i * 1000], dtype=torch.float16),
    "mixed": lambda x, i: torch.tensor([i, 0.5, 7]),
    "bools": lambda x, i: torch.tensor([i > 5, True]),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_numbers(name, backend):
    check(TENSORS[name], [(X, i) for i in range(16)], backend, most=3)


def test_each_call_makes_a_tensor(backend):
    compiled = framejit.compile(lambda i: torch.tensor(i * 0.5, dtype=torch.float64), backend=backend)
    made = [compiled(i) for i in range(6)]
    for tensor in made:
        tensor.add_(1)
    assert [t.item() for t in made] == [i * 0.5 + 1 for i in range(6)]


def test_an_optimiser(backend):
    ours, plain = Adam(), Adam()
    compiled = framejit.compile(lambda state, grad: state.update(grad), backend=backend)
    for _ in range(14):
        grad = torch.randn(4)
        same((compiled(ours, grad), vars(ours)), (plain.update(grad), vars(plain)))
    assert framejit.stats()["recompiles"] <= 3 and not framejit.stats()["fallbacks"], framejit.stats()


def test_values_that_change_the_way(backend):
    """If the program reads the value, it notices changes back and forth, and other types too."""
    def f(x, g):
        if g > 3.0:
            x = x + math.floor(g)
        return x * (2 if round(g) % 2 else 3), f"{g:.0f}", int(g) == 4
    check(f, [(X, g) for g in (1.5, 2.5, 3.5, 4.5, 4.25, 1.25, 9.0, -1.0, 2.5, 3.0, -0.0, 0.0)], backend, most=12)
    framejit.reset()
    compiled = framejit.compile(lambda x, g: (x * (g * 0.1), g / 2), backend=backend)
    for g in (1, 2, 3, 1.5, 2.5, True, 4, 2 ** 70, float("inf"), 7):
        same(compiled(X, g), (X * (g * 0.1), g / 2))


@pytest.mark.breaks(exception_raised=1)
@pytest.mark.parametrize("f, values", [
    (lambda x, g: x * (1 / g), (2.0, 3.0, 4.0, 0.0, 5.0)),
    (lambda x, g: (1 / g, x * 2)[1], (2.0, 3.0, 4.0, 0.0, 5.0)),
    (lambda x, i: (1 % i, x * 2)[1], (2, 3, 4, 0, 5)),
    (lambda x, g: x * math.sqrt(g), (2.0, 3.0, 4.0, -1.0, 5.0)),
    (lambda x, g: (math.log(g), x)[1] * 2, (2.0, 3.0, 4.0, 0.0, 5.0)),
    (lambda x, g: x * int(g), (2.5, 3.5, 4.5, float("nan"), float("inf"), 5.0)),
    (lambda x, i: x * (i / 0.5) ** 200, (2, 3, 4, 10 ** 300, 5)),
])
def test_what_raises(f, values, backend):
    """Even if nobody uses the number."""
    compiled = framejit.compile(f, backend=backend)
    for value in values:
        try:
            expected = f(X, value)
        except (ArithmeticError, ValueError) as e:
            with pytest.raises(type(e), match="^" + str(e).replace("(", r"\(").replace(")", r"\)") + "$"):
                compiled(X, value)
        else:
            same(compiled(X, value), expected)


def test_nan_and_signs(backend):
    f = lambda x, g: (x * (g * 0.5 + 1 / 3), g == g, g / 2, math.copysign(1.0, g))
    check(f, [(X, g) for g in (1.0, 2.0, float("nan"), -0.0, 0.0, float("nan"), float("-inf"), 3.0)], backend, most=8)


@pytest.mark.breaks(data_dependent_value=1)
def test_numbers_behind_a_break(backend):
    def f(x):
        level = x.sum().item()
        return x * 2 if level > 3.0 else x / (1 + abs(level))
    compiled = framejit.compile(f, backend=backend)
    for i in range(14):
        x = torch.randn(3) * i
        same(compiled(x), f(x))
    assert framejit.stats()["recompiles"] <= 3 and not framejit.stats()["fallbacks"], framejit.stats()


LOOPS = {
    "a float of itself": (lambda x, s, n: looped(x, s, n, lambda s: s * s + s) if s > 0 else x, 1e-12),
    "a float of itself beside tensors": (lambda x, s, n: looped(x, s, n, lambda s: s * s + s), 1e-12),
    "an int of itself": (lambda x, k, n: looped(x, k, n, lambda k: k * k % 7 + k), 1),
    "a quotient of itself": (lambda x, k, n: looped(x, k, n, lambda k: (k * k // 5 + k % 3) % 1000), 2),
    "a product of all": (lambda x, k, n: looped(x, k, n, lambda k: (k + 1) * (k + 2) % 1000), 1),
    "a mean of two": (lambda x, k, n: looped(x, k / 3, n, lambda s: (s + s) / 2 * 0.75), 3),
}


def looped(x, number, n, step):
    for _ in range(n):
        number = step(number)
    return x * number


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 60, 200])
@pytest.mark.parametrize("name", LOOPS)
def test_what_a_loop_computes_with_itself(name, n, backend):
    """Each step uses the previous number several times: as a text, it would not fit into any memory."""
    fn, first = LOOPS[name]
    compiled, x = framejit.compile(fn, backend=backend, dynamic=True), torch.ones(3)
    for times in (1, 2, 3, 2):
        same(compiled(x, first * times, n), fn(x, first * times, n))
    assert framejit.stats()["fallbacks"] == 0


@pytest.mark.parametrize("found", [lambda a, b: a in (b,), lambda a, b: [a] == [b], lambda a, b: (1, a) < (1, b),
                                   lambda a, b: [b, 7.5].count(a), lambda a, b: {0: a} == {0: b}],
                         ids=["in", "equal", "less", "count", "values"])
def test_one_nan_in_two_places(found):
    """Containers compare identity first: if both arguments are the same NaN, it is found."""
    nan = float("nan")

    def f(x, a, b):
        return x + a, found(a, b)
    framejit.reset()
    compiled = framejit.compile(f)
    for a, b in ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (nan, nan), (7.0, 7.0), (nan, float("nan")), (8.0, 9.0)):
        with torch.no_grad():
            assert compiled(X, a, b)[1] == f(X, a, b)[1], (a, b)
    assert framejit.stats()["graphs"] == 4 and not framejit.stats()["fallbacks"]
