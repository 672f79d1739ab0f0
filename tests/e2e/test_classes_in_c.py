"""Objects of C classes: if the trace does not know an operator, it does not conclude that the class lacks it."""

import array
import collections
import datetime
import decimal
import functools
import math
import mmap
import operator
import re

import numpy as np
import pytest
import torch

import framejit
from check import fresh  # noqa: F401

pytestmark = pytest.mark.nothing_captured

OBJECTS = {
    "array": lambda: np.arange(1.0, 4.0),
    "0-dim": lambda: np.array(2),
    "bytes": lambda: array.array("i", [1, 2, 3]),
    "memoryview": lambda: memoryview(bytearray(b"abc")),
    "bytearray": lambda: bytearray(b"abc"),
    "Decimal": lambda: decimal.Decimal(2),
    "timedelta": lambda: datetime.timedelta(1),
    "date": lambda: datetime.date(2020, 1, 1),
    "mmap": lambda: mmap.mmap(-1, 4),
    "deque": lambda: collections.deque([1, 2]),
    "OrderedDict": lambda: collections.OrderedDict({0: 1}),
    "Size": lambda: torch.Size([2, 3]),
    "dtype": lambda: np.dtype("float32"),
    "pattern": lambda: re.compile("a"),
    "Generator": torch.Generator,
    "number": lambda: np.float32(2.5),
}


def unpacked(a):
    first, *rest = a
    return first, rest


def deleted(a):
    del a[0]
    return len(a)


def written(a):
    a[0] = a[1]
    return a[0]


USES = {
    "item": lambda a: a[0],
    "write": written,
    "delete": deleted,
    "len": len,
    "iteration": lambda a: [v for v in a],
    "contains": lambda a: 1 in a,
    "abs": abs,
    "neg": operator.neg,
    "invert": operator.invert,
    "add": lambda a: a + 1,
    "reflected add": lambda a: 1 + a,
    "twice": lambda a: a + a,
    "mul": lambda a: a * 2,
    "reflected mul": lambda a: 2 * a,
    "list times": lambda a: [1] * a,
    "sub": lambda a: 3 - a,
    "divide": lambda a: 3 / a,
    "remainder": lambda a: 5 % a,
    "power": lambda a: 2**a,
    "equal": lambda a: a == OBJECTS_NOW[0],
    "unequal": lambda a: a != OBJECTS_NOW[0],
    "less": lambda a: a < a,
    "less than 1": lambda a: a <= 1,
    "in a list": lambda a: OBJECTS_NOW[0] in [a],
    "float": float,
    "int": int,
    "index": lambda a: [1, 2, 3, 4][a],
    "slice": lambda a: [1, 2, 3][a:],
    "range": range,
    "list": list,
    "sum": sum,
    "max": max,
    "sorted": sorted,
    "reversed": lambda a: list(reversed(a)),
    "zip": lambda a: list(zip(a, a)),
    "unpack": unpacked,
    "any": any,
    "extend": lambda a: [1, *a],
    "divmod": lambda a: divmod(a, 2),
    "truth": bool,
    "matmul": lambda a: a @ a,
}
USES |= {
    "index in a list": lambda a: [1].index(a),
    "count": lambda a: [1, a].count(a),
    "join": lambda a: "".join(a),
    "prefix": lambda a: "abc".startswith(a),
    "formatted": lambda a: f"{a:.2f}",
    "percent": lambda a: "%d" % a,
    "updated": lambda a: {}.update(a),
    "united": lambda a: {1}.union(a),
    "or of sets": lambda a: {1} | a,
    "popped": lambda a: [1, 2, 3].pop(a),
    "text times": lambda a: "ab" * a,
    "key": lambda a: {1: 2}.get(a),
    "in a dict": lambda a: a in {1: 2},
    "in a set": lambda a: a in {1, 2},
    "in a tuple": lambda a: a in (1, 2),
    "rounded": lambda a: round(a, 2),
    "power of three": lambda a: pow(a, 2, 5),
    "floor": math.floor,
    "root": math.sqrt,
    "product": math.prod,
    "smaller of two": lambda a: min(a, 3),
    "sorted beside": lambda a: sorted([a, 1]),
    "chain": lambda a: 1 < a < 3,
    "and": lambda a: a and 3,
    "or": lambda a: a or 3,
    "not": lambda a: not a,
    "instance": lambda a: isinstance(1, a),
    "called": lambda a: a(),
    "arguments": lambda a: (lambda *p: p)(*a),
    "keywords": lambda a: (lambda **p: p)(**a),
    "attribute": lambda a: getattr(1, a),
    "filter": lambda a: list(filter(a, [0, 1])),
    "text cut": lambda a: "abcdef"[a:],
    "number of text": lambda a: int("11", a),
    "dict": dict,
    "set": set,
    "vars": vars,
    "tuples": lambda a: (a,) == (a,),
    "smaller than text": lambda a: "a" < a,
    "list and": lambda a: [1] + a,
    "and list": lambda a: a + [1],
    "raised": lambda a: (_ for _ in ()).throw(a),
    "Size": torch.Size,
    "reduced": lambda a: functools.reduce(operator.add, a),
    "deque": lambda a: list(collections.deque(a)),
}
OBJECTS_NOW = [None]  # equal to the operand, and another object


def text(value):
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


@pytest.mark.breaks(total={"array": 111, "0-dim": 90, "bytes": 83, "memoryview": 76, "bytearray": 87, "Decimal": 52,
                           "timedelta": 51, "date": 46, "mmap": 75, "deque": 83, "OrderedDict": 34, "Size": 11,
                           "dtype": 59, "pattern": 44, "Generator": 16, "number": 12})
@pytest.mark.parametrize("name", OBJECTS)
def test_every_use(name):
    for use, operate in USES.items():
        framejit.reset()

        def f(x, a):
            x = x + 1
            try:
                return x, operate(a)
            except TypeError as e:
                return x * 100, type(e)

        OBJECTS_NOW[0] = OBJECTS[name]()
        try:
            plain, want = f(torch.ones(2), OBJECTS[name]())
        except Exception as e:  # ValueError, KeyError, ...: other errors do not matter here
            plain, want = None, type(e)
        compiled = framejit.compile(f)
        for _ in range(2):
            try:
                got, answer = compiled(torch.ones(2), OBJECTS[name]())
            except Exception as e:
                got, answer = None, type(e)
            assert (got is None) == (plain is None) and (got is None or torch.equal(got, plain)), (use, answer, want)
            assert text(answer) == text(want), use
