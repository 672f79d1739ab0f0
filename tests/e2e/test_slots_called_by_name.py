"""Special methods of builtins, called by name or through super(): the slot answers, not the operator that uses it."""
import collections

import pytest
import torch

from check import check, fresh  # noqa: F401

X = torch.ones(3)


class Int(int):
    def __mul__(self, other):
        return super().__mul__(other)

    def __add__(self, other):
        made = super().__add__(other)
        return "refused" if made is NotImplemented else made

    def __lt__(self, other):
        return super().__lt__(other)


class List(list):
    def __add__(self, other):
        return super().__add__(other)

    def __eq__(self, other):
        return super().__eq__(other)

    __hash__ = None


class Dict(dict):
    def __or__(self, other):
        return super().__or__(other)


class Text(str):
    def __mod__(self, other):
        return super().__mod__(other)


class Reflects:
    def __rmul__(self, other):
        return "rmul"

    def __radd__(self, other):
        return "radd"

    def __rmod__(self, other):
        return "rmod"

    def __gt__(self, other):
        return "gt"

    def __eq__(self, other):
        return "eq"

    def __str__(self):
        return "text"


@pytest.mark.parametrize("ask", [
    lambda o: (3).__mul__([1]), lambda o: (3).__mul__(X), lambda o: int.__add__(1, 2.0),
    lambda o: float.__rsub__(2.5, o),
    lambda o: (3).__mul__(o), lambda o: (3).__lt__(o), lambda o: (3).__eq__(o), lambda o: [1].__eq__(o),
    lambda o: [1].__lt__((1,)), lambda o: {1}.__or__([1]), lambda o: {1}.__rsub__([1]), lambda o: {"a": 1}.__or__([]),
    lambda o: {"a": 1}.__lt__({}), lambda o: (1,).__eq__([1]),
    lambda o: "%s!".__mod__([1]), lambda o: b"x".__eq__("x"), lambda o: "a".__lt__(3), lambda o: (1j).__rmul__([1]),
    lambda o: True.__rsub__([1]), lambda o: frozenset([1]).__and__([1]), lambda o: {1}.__ior__([2]),
    lambda o: object.__lt__(o, o), lambda o: object.__eq__(o, 3),
    lambda o: torch.Size([1]).__radd__("a"), lambda o: (2.5).__floordiv__(o), lambda o: (3).__pow__([1]),
    lambda o: [1].__add__([2]), lambda o: [1].__mul__(2), lambda o: (1,).__add__((2,)), lambda o: [1].__iadd__((2,)),
    lambda o: {1}.__or__({2}), lambda o: {"a": 1}.__or__({"b": 2}), lambda o: (3).__rsub__(5), lambda o: (1).__lt__(2),
    lambda o: {1}.__lt__({1, 2}), lambda o: [1, 2].__lt__([1, 3]), lambda o: (1, 2).__ne__((1, 2))])
def test_called_by_name(ask):
    def f(x, o):
        return x + 1, ask(o)
    check(f, X, Reflects())


class Set(set):
    def __xor__(self, other):
        return super().__xor__(other)

    def __ixor__(self, other):
        return super().__ixor__(other)


@pytest.mark.parametrize("method", [f"__{form}{name}__" for name in ("and", "or", "xor", "sub")
                                    for form in ("", "r", "i")])
def test_sets_of_sizes(method):
    """Only the method in place writes."""
    def f(x, s):
        mine = Set([x.shape[0], 7])
        made = [getattr(set, method)(s, {3, 7}), getattr({x.shape[0], 9}, method)({9, 11}), mine ^ {7, 8}]
        return x + len(mine), mine, s, made
    check(f, X, {3, 5}, dynamic=True)


@pytest.mark.parametrize("ask", [
    lambda o: "a".__mod__(o), lambda o: "%s".__mod__(o), lambda o: {}.keys().__and__([1]),
    lambda o: collections.defaultdict(list, a=1).__or__({"b": 2}),
    lambda o: collections.OrderedDict(a=1).__or__(collections.OrderedDict(b=1))])
def test_called_by_name_after_a_break(ask):
    def f(x, o):
        return x + 1, ask(o)
    check(f, X, Reflects(), breaks=1)


@pytest.mark.parametrize("ask", [
    lambda: [1].__add__("a"), lambda: "a".__mul__({2}), lambda: (1,).__rmul__([1]), lambda: [1].__add__(X),
    lambda: (1).__add__(), lambda: (1).__add__(1, 2), lambda: [1].__add__(k=1), lambda: int.__add__("a", 1),
    lambda: (1).__floordiv__(0), lambda: [1].__rmul__({2}), lambda: "%d".__mod__("a"), lambda: [].__len__(1)])
def test_refused_by_the_slot(ask):
    def f(x):
        y = x + 1
        try:
            return y, ask()
        except (TypeError, ZeroDivisionError) as e:
            return y, type(e), str(e)
    check(f, X)


def test_through_super():
    def f(x, o):
        y = x + 1
        n, items, text = Int(3), List([1]), Text("%s")
        seen = [n * o, n + o, n + 2, n + 2.5, n * 2, text % o, items == [1], items == (1,), items == 3]
        for ask in (lambda: n * [1], lambda: items + (2,), lambda: Dict(a=1) | [2], lambda: n < "a"):
            try:
                seen.append(ask())
            except TypeError as e:
                seen.append(str(e))
        return y, seen, items + [2], Dict(a=1) | {"b": 2}
    check(f, X, Reflects(), breaks=2)


def test_sizes_stay_symbols():
    def f(x, n):
        return x * n.__mul__(2), n.__add__(3), n.__radd__(4), n.__lt__(100), n.__mul__([1]), int.__sub__(n, 1.5)
    check(f, X, 5, dynamic=True)
    check(f, X, 6, dynamic=True)


def test_the_left_slot_comes_before_a_method_of_the_right():
    def f(x, o):
        return x + 1, "%s" % o, 3 * o, [1] * 2, [1] + o, "%s %s" % (o, o), 2.5 * o, (1,) + o
    check(f, X, Reflects())
