"""Sums, choices and iterators: an item is used before the next one is made, and an iterator that has ended stays so
only where CPython's does."""

import itertools

import pytest
import torch

import framejit
from check import check
from test_lazy_builtins import Counts, half_way, runs, x

# ---- results that are added up, chosen or joined


def sums_written_tensors(x):
    y = x.clone()

    def items():
        for _ in range(3):
            y.add_(1)
            yield y

    return sum(items()), sum(items(), y), y


def chooses(x):
    log = []

    def items():
        for i in [2, 3, 1]:
            log.append(f"item {i}")
            yield i

    def key(v):
        log.append(f"key {v}")
        return v

    out = [min(items(), key=key), max(items(), key=key), min(items())]
    for choose in (min, max):
        try:
            choose(half_way([1, 2], 0))
        except ValueError as e:
            out.append(str(e))
        try:
            choose([])
        except ValueError as e:
            out.append(str(e))
    return x + 1, out, log


def sums_numbers(x):
    import math

    log = []

    def items(kinds):
        for v in kinds:
            log.append(v)
            yield v

    out = [
        sum(items([0.1] * 10)),
        sum(items([1e16, 1.0, -1e16, 1.0])),
        sum(items([1, 2.5, True])),
        math.prod(items([2, 0.5])),
    ]
    try:
        sum(items([1, None, 2]))
    except TypeError:
        out.append("raised")
    return x * sum(items([0.1, 0.2, x, 0.3])), out, log[:-4]


def joins(x):
    out = []
    for items in (half_way("abc", 2), ["a", 1], ("a" for _ in range(2))):
        try:
            out.append("-".join(items))
        except (ValueError, TypeError) as e:
            out.append(str(e))
    return x + 1, out


def quantifies(x):
    it = iter([1, 0, 2, 3])
    return x + 1, all(it), list(it), any(iter([0])), functools_reduce(x)


def functools_reduce(x):
    import functools

    seen = []

    def items():
        for i in range(3):
            seen.append(("item", i))
            yield i

    total = functools.reduce(lambda a, b: seen.append((a, b)) or a + b, items())
    return total, seen


# ---- lazy iterators


def zips_go_on(x):
    a, b = iter([1, 2, 3, 4, 5]), iter([1, 2])
    z = zip(a, b)
    out = [list(z), list(z), list(a)]
    a = iter([1, 2, 3])
    e = enumerate(a)
    out += [list(e), list(e)]
    y = [1]
    m, it, k = map(str, y), iter(y), filter(None, y)
    out += [list(m), list(it), list(k)]
    y.append(2)
    out += [list(m), list(it), list(k)]
    return x + 1, out


def itertools_are_lazy(x):
    log = []

    def items(*values):
        for v in values:
            log.append(v)
            yield v

    def odd(v):
        log.append(f"odd {v}")
        return v % 2

    out = []
    for made in (
        itertools.accumulate(items(1, 2, 3)),
        itertools.accumulate(items(1, 2), lambda a, b: a * b, initial=5),
        itertools.starmap(pow, items((2, 3), (3, 2))),
        itertools.takewhile(odd, items(1, 3, 4, 5)),
        itertools.dropwhile(odd, items(1, 4, 5)),
        itertools.zip_longest(items(1, 2), items(3), fillvalue=0),
        itertools.pairwise(items(1, 2, 3)),
        itertools.filterfalse(odd, items(1, 2, 4)),
    ):
        log.append("made")
        for v in made:
            out.append(v)
            log.append(("got", v))
        out.append(next(made, "ended"))
    out += list(itertools.takewhile(lambda v: v < 4, itertools.count())) + list(
        itertools.islice(itertools.accumulate(itertools.count()), 4)
    )
    return x + 1, out, log


def itertools_over_what_is_written(x):
    y = [x]
    for a, b in itertools.islice(itertools.zip_longest(y, range(4)), 6):
        if len(y) < 4:
            y.append(y[-1] + b)
    for total in itertools.accumulate(y):
        if len(y) < 6:
            y.append(total)
    return y


PROGRAMS = [
    sums_written_tensors,
    chooses,
    sums_numbers,
    joins,
    quantifies,
    zips_go_on,
    itertools_are_lazy,
    itertools_over_what_is_written,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_cpython(program):
    runs(program, x)


# ---- iterators that leave the trace half-way


@pytest.mark.parametrize(
    "make",
    [
        lambda: itertools.takewhile(lambda v: v < 3, iter([1, 2, 3, 1])),
        lambda: itertools.accumulate(iter([1, 2, 3])),
        lambda: itertools.pairwise(iter([1, 2, 3])),
        lambda: itertools.starmap(pow, iter([(2, 1), (3, 1), (1, 1)])),
        lambda: itertools.zip_longest(iter([1, 2]), [3]),
        lambda: itertools.dropwhile(bool, iter([1, 0, 1])),
        lambda: itertools.filterfalse(bool, iter([0, 1, 0])),
        lambda: zip([1, 2], iter([2, 3]), strict=True),
        lambda: reversed(Counts(3, [])),
    ],
)
@pytest.mark.parametrize("taken", [0, 1, 9])
def test_lazy_iterators_across_a_break(make, taken):
    def f(x):
        it = make()
        y = [next(it, "ended") for _ in range(taken)]
        print(end="")
        return x + len(y), y, list(it), type(it).__name__

    kind = type(make())
    breaks = 1 if kind is zip or (kind is reversed and taken == 9) else 2  # the print, and an iterator that is real
    check(f, x, calls=2, breaks=breaks)


@pytest.mark.parametrize("taken", [0, 1, 9])
def test_returned_lazy_iterators(taken):
    def f(x):
        it = itertools.starmap(pow, iter([(2, 1), (3, 1)]))
        for _ in range(taken):
            next(it, None)
        return x + 1, it

    want, got = f(x), framejit.compile(f)(x)
    assert type(got[1]) is type(want[1])
    assert list(got[1]) == list(want[1])
