"""A trace relies on the class of each value that it asks: for a value of another class there is another trace. C
functions that ask the class of an object, and not only the number or text in it, see that class."""
import collections
import enum
import itertools
import operator
import os

import pytest
import torch

import framejit
from check import backend, check, fresh, raised, same  # noqa: F401  fresh: the fixture

X = torch.ones(3)


class Text(str):
    pass


class Number(enum.IntEnum):
    one = 1


class Path:
    def __fspath__(self):
        return "folder"


Pair = collections.namedtuple("Pair", "first second")


def has_length(x, v):
    return x + 1, hasattr(v, "__len__")


def first_or_none(x, v):
    return x + 1, getattr(v, "first", None)


def real_or_none(x, v):
    return x + 1, getattr(v, "real", None)


@pytest.mark.parametrize("function, values", [
    (has_length, ([1].append, range(3), (1,), "text", X.add)),
    (first_or_none, ([1].append, Pair(1, 2), X.add)),
    (real_or_none, ([1].append, 1.5, Number.one)),
], ids=lambda case: getattr(case, "__name__", ""))
def test_an_attribute_that_a_method_in_c_lacks(function, values, backend):
    compiled = framejit.compile(function, backend=backend)
    for v in values:
        for _ in range(2):
            same(compiled(X, v), function(X, v))


@pytest.mark.parametrize("v", [Number.one, torch.Size([1, 2]), Pair(1, "é"), Text("é"), "é", 1.5, [1, "é"], None],
                         ids=lambda v: type(v).__name__)
def test_ascii(v):
    check(lambda x, v: (x + 1, ascii(v)), X, v)


class NoPath:
    def __fspath__(self):
        return 1


@pytest.mark.parametrize("v", [Text("a"), "a", b"a", Path(), NoPath(), 1, None], ids=lambda v: type(v).__name__)
def test_fspath(v):
    check(lambda x, v: (x + 1, raised(os.fspath, v)), X, v)


@pytest.mark.parametrize("a, b, breaks", [
    (torch.Size([1]), torch.Size([2]), 0), (torch.Size([1]), (2,), 0), ((1,), torch.Size([2]), 0), ([1], [2], 0),
    ("a", "b", 0), ([1], (2,), 0), (1, 2, 0), ([1], torch.Size([2]), 1),
], ids=repr)
@pytest.mark.parametrize("function", [operator.concat, operator.iconcat], ids=lambda function: function.__name__)
def test_concat(function, a, b, breaks):
    """A list with a torch.Size is an error for concat(); iconcat() extends the list."""
    breaks = breaks if function is operator.concat else 0
    check(lambda x, a, b: (x + 1, raised(function, a, b)), X, a, b, breaks=breaks)


def is_same(x, a, b):
    return x + 1, operator.is_(a, b), operator.is_not(a, b)


def test_is_looks_at_the_objects(backend):
    """Not at what they hold: a number of an enumeration is not that number, and equal tuples are two objects."""
    compiled = framejit.compile(is_same, backend=backend)
    pair, large = (1, 2), 10 ** 6
    for a, b in [(pair, pair), (pair, tuple([1, 2])), (Number.one, 1), (Number.one, Number.one), (None, None),
                 (Text("a"), "a"), (large, large), (large, int("1000000"))]:
        same(compiled(X, a, b), is_same(X, a, b))


def test_abs_of_a_number_of_an_enumeration():
    check(lambda x, v: (x + 1, operator.abs(v)), X, Number.one)


class BadIndex:
    def __index__(self):
        raise KeyError("index")


def items_taken(v):
    return list(itertools.islice([1, 2], v))


@pytest.mark.parametrize("v, breaks", [(torch.Size([1]), 1), (Number.one, 0), (BadIndex(), 1), (ValueError("v"), 1)],
                         ids=lambda v: type(v).__name__)
def test_an_index_that_islice_refuses(v, breaks):
    """It raises a ValueError of its own, whatever __index__ raises."""
    check(lambda x, v: (x + 1, raised(items_taken, v)), X, v, breaks=breaks)


class Meta(type):
    pass


class Made(metaclass=Meta):
    pass


class OwnError(ValueError):
    pass


ERRORS = {
    "negative": operator.neg, "in": lambda v: 1 in v, "list": lambda v: [1] + v, "tuple": lambda v: (1,) * v,
    "slice": lambda v: [1, 2][v:], "join": lambda v: "-".join(v), "attribute": lambda v: v.missing,
}


def error_of(call):
    def function(x, v):
        return x + 1, raised(call, v)
    return function


@pytest.mark.parametrize("v", [ValueError("v"), OwnError(1), BadIndex().__index__], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_class(name, v, backend):
    """Of an exception of the program, and of a method: also the text is eager's."""
    function = error_of(ERRORS[name])
    compiled = framejit.compile(function, backend=backend)
    for _ in range(2):
        same(compiled(X, v), function(X, v))


def test_a_class_of_a_metaclass_has_no_minus():
    check(lambda x, v: (x + 1, raised(operator.neg, v)), X, Made)


def module_of(x, v):
    return x + 1, v.__module__


def test_a_method_in_c_is_no_function(backend):
    compiled = framejit.compile(module_of, backend=backend)
    for v in [1].append, len, [1].append:
        same(compiled(X, v), module_of(X, v))


@pytest.mark.parametrize("v, breaks", [(True, 0), (0, 0), (2, 0), ("text", 1), (None, 1), (1.0, 1), (10 ** 30, 1)],
                         ids=repr)
def test_sorted_takes_an_int_for_reverse(v, breaks):
    check(lambda x, v: (x + 1, raised(in_order, v)), X, v, breaks=breaks)


def in_order(v):
    return sorted([2, 1, 3], reverse=v)
