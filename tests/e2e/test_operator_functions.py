"""Functions of module operator in traced code, and its getters: as the operators that they stand for."""
import collections
import functools
import operator
import types

import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401

Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize("f", [
    lambda x: functools.reduce(operator.add, [x, x * 2, x * 3]),
    lambda x: functools.reduce(operator.mul, x.shape, 1) * x,
    lambda x: operator.truediv(operator.sub(x, 1), 2) + operator.matmul(x, x.T) ** 2,
    lambda x: operator.iadd(x, 2) * operator.neg(x),
    lambda x: operator.and_(operator.gt(x, 0), operator.ne(x, 1)),
    lambda x: (operator.getitem(x, 0), operator.contains([1, 2], 2), operator.not_([]), operator.truth([x])),
    lambda x: [operator.setitem(x, 0, 7.0), operator.invert(x > 0)],
    lambda x: list(map(operator.floordiv, [x, 7], [2, 2])),
], ids=["reduce", "sizes", "operators", "in place", "comparisons", "items", "writes", "map"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_operators(f, dynamic):
    check(f, torch.arange(9.0).view(3, 3), breaks=0, dynamic=dynamic)


def test_operators_call_methods_of_classes():
    class Half:
        def __init__(self, x):
            self.x = x

        def __add__(self, other):
            return Half(self.x + other.x)

        def __lt__(self, other):
            return bool(other)
    check(lambda x: (operator.add(Half(x), Half(x)).x, operator.lt(Half(x), 0)), torch.ones(3), breaks=0)


second = operator.itemgetter(1)


@pytest.mark.parametrize("f", [
    lambda x: sorted([("b", 2), ("a", 3), ("c", 1)], key=second)[0][1] * x,
    lambda x: max({"a": 1, "b": 5}.items(), key=operator.itemgetter(1))[0] == "b" and x + 1,
    lambda x: operator.itemgetter(0, 2)(x * 2),
    lambda x: operator.itemgetter("k")({"k": x}) + 1,
    lambda x: operator.attrgetter("y.shape", "x")(Point(x * 2, x)),
    lambda x: (operator.attrgetter("shape")(x), x + 1),
], ids=["sorted", "max", "items of a tensor", "a key", "dotted attributes", "an attribute"])
def test_getters(f):
    check(f, torch.arange(9.0).view(3, 3), breaks=0)


@pytest.mark.parametrize("f, error", [(lambda x: operator.itemgetter(5)([x]), IndexError),
                                      (lambda x: operator.attrgetter("no.such")(x), AttributeError),
                                      (lambda x: operator.itemgetter()(x), TypeError),
                                      (lambda x: operator.add(x), TypeError)])
def test_errors(f, error):
    def caught(x):
        try:
            return f(x)
        except error as e:
            return x + 1, str(e)
    check(caught, torch.ones(3))


class Named(types.SimpleNamespace):
    def __init__(self, a, **rest):
        super().__init__(b=a * 2, **rest)


class Shown(types.SimpleNamespace):
    @property
    def a(self):
        return "the property"


@pytest.mark.parametrize("f", [
    lambda x: types.SimpleNamespace(prev=x + 1, n=3),
    lambda x: vars(types.SimpleNamespace(b=x, a=x.shape)),
    lambda x: Named(x, c=1),
    lambda x: types.SimpleNamespace().__dict__,
], ids=["a namespace", "its dict", "a subclass", "empty"])
def test_namespaces(f):
    def parts(x):
        made = f(x)
        return made if isinstance(made, dict) else (type(made), vars(made)), x * 2
    check(parts, torch.ones(3), breaks=0)


def test_a_namespace_keeps_what_a_property_hides():
    check(lambda x: (Shown(a=1).a, Shown(a=1).__dict__, x + 1), torch.ones(3), breaks=2)


@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5)])
def test_a_filled_diagonal_of_any_size(shape):
    f = framejit.compile(lambda x: x.clone().fill_diagonal_(1.5) + 1, dynamic=True)
    for more in range(3):
        x = torch.randn(shape[0] + more, shape[1] + more)
        assert torch.equal(f(x), x.clone().fill_diagonal_(1.5) + 1)
    stats = framejit.stats()
    assert stats["graphs"] == 1 and stats["break_reasons"] == {}
