"""Immutable objects that every call makes anew: guarded by value if the class compares by value, so that equal ones
share a graph."""
import enum

import numpy as np
import pytest
import torch

import framejit
from check import backend, fresh  # noqa: F401


class Real(float):
    pass


class Whole(int):
    def __eq__(self, other):
        raise AssertionError("a guard ran Python code")

    __hash__ = int.__hash__


class Text(str):
    pass


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


BIG = 10**30
MADE = {
    "device": (lambda x, d: x + torch.ones(2, device=d), lambda: [torch.device("cpu")]),
    "device compared": (lambda x, d: x if d == x.device else -x, lambda: [torch.device("cpu"), torch.device("meta")]),
    "device in a tuple": (lambda x, p: x
                          + torch.ones(2, device=p[0], dtype=p[1]), lambda: [(torch.device("cpu"), torch.float32),
                              (torch.device("cpu"), torch.float64)]),
    "device as a key": (lambda x, d: x * {torch.device("cpu"): 3}.get(d, 4), lambda: [torch.device("cpu"),
        torch.device("meta")]),
    "finfo": (lambda x, f: x.clamp(min=f.min), lambda: [torch.finfo(torch.float32), torch.finfo(torch.float16)]),
    "iinfo": (lambda x, f: x.clamp(max=f.max), lambda: [torch.iinfo(torch.int8), torch.iinfo(torch.int16)]),
    "range": (lambda x, r: x + sum(r), lambda: [range(3), range(1, 9, 3), range(0, 4)]),
    "equal ranges": (lambda x, r: x + r.start + r.stop * r.step, lambda: [range(0), range(5, 5), range(1, 9, 3),
        range(1, 8, 3)]),
    "np.float64": (lambda x, s: x * s, lambda: [np.float64(0.5), np.float64(0.25), np.float64("nan"),
                                                np.float64(-0.0)]),
    "np.str_": (lambda x, s: x * len(s), lambda: [np.str_("ab"), np.str_("abc")]),
    "a subclass of float": (lambda x, s: x * s + (s > 0.3), lambda: [Real(0.5), Real(0.25)]),
    "a subclass of int": (lambda x, s: x * s, lambda: [Whole(5), Whole(7)]),
    "a large one": (lambda x, s: x * float(s), lambda: [Whole(BIG), Whole(BIG + 2**60)]),
    "a subclass of str": (lambda x, s: x * len(s) if s == "abc" else x, lambda: [Text("abc"), Text("abd")]),
    "members": (lambda x, m: x * m if m is Level.LOW else x, lambda: [Level.LOW, Level.HIGH]),
}


@pytest.mark.parametrize("name", MADE)
def test_equal_ones_share_a_graph(name, backend):  # noqa: F811
    fn, make = MADE[name]
    x = torch.arange(2.0)
    compiled = framejit.compile(fn, backend=backend)
    for _ in range(12):
        for value in make():
            torch.testing.assert_close(compiled(x, value), fn(x, value), rtol=0, atol=0, equal_nan=True)
    assert framejit.stats()["recompiles"] == len(make()) - 1
    assert framejit.stats()["fallbacks"] == 0


def test_attributes_of_such_an_instance():
    """They belong to the instance: equal values may have different ones."""
    def fn(x, s):
        return x * s * s.unit

    compiled = framejit.compile(fn)
    x = torch.ones(2)
    for unit in (2, 3, 2, 5):
        s = Real(0.5)
        s.unit = unit
        assert torch.equal(compiled(x, s), fn(x, s))


def test_identity_of_equal_objects():
    def fn(x, a, b):
        return x * 2 if a is b else x

    compiled = framejit.compile(fn)
    x = torch.ones(2)
    one, other = torch.device("cpu"), torch.device("cpu")
    for a, b in ((one, one), (one, other), (other, other), (other, one)):
        assert torch.equal(compiled(x, a, b), fn(x, a, b))


def test_other_class_of_the_same_value():
    def fn(x, s):
        return x * s + len(type(s).__name__)

    compiled = framejit.compile(fn)
    x = torch.ones(2)
    for s in (Real(0.5), 0.5, np.float64(0.5), Real(0.5)):
        assert torch.equal(compiled(x, s), fn(x, s))


COMPUTED = {
    "operators": lambda s: (s + s, s * 2, 2 * s),
    "negation": lambda s: -s,
    "abs": abs,
    "round": round,
    "round to digits": lambda s: round(s, 1),
    "divmod": lambda s: divmod(s, 2),
    "pow": lambda s: (pow(s, 2), s**2),
    "sum": lambda s: sum([s, s]),
    "by name": lambda s: s.__add__(1),
}


@pytest.mark.parametrize("value", [np.float64(1.5), Real(1.5), Whole(3)], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", COMPUTED)
def test_arithmetic_gives_the_class_that_the_type_gives(name, value):
    compute = COMPUTED[name]
    got, expected = framejit.compile(lambda x, s: (x + 1, compute(s)))(torch.ones(2), value)[1], compute(value)
    assert repr(got) == repr(expected) and type(got) is type(expected)


@pytest.mark.breaks(unsupported_operand=2)
def test_text_of_numpy_concatenated():
    got = framejit.compile(lambda x, s: (x + 1, s + "b", s * 2))(torch.ones(2), np.str_("a"))[1:]
    assert [(type(v), v) for v in got] == [(type(v), v) for v in (np.str_("a") + "b", np.str_("a") * 2)]
