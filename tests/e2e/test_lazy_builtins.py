"""Builtins that take items one by one while they write, or call Python code: each side sees what CPython shows."""

import collections

import pytest
import torch

from check import check

x = torch.randn(3)


def runs(fn, *args):
    """As eager, in one graph: nothing is left to plain Python."""
    stats = check(fn, *args, calls=2)
    assert not stats["break_reasons"], stats["break_reasons"]


def half_way(items, stop):
    for i, item in enumerate(items):
        if i == stop:
            raise ValueError(i)
        yield item


# ---- lists


def extend_itself(x):
    y = [x]
    y.extend(y[-1] + 1 for _ in range(3))
    return y


def add_to_itself(x):
    y = [x]
    y += (y[-1] * len(y) for _ in range(3))
    return y


def extend_map(x):
    y = [x, x + 1]
    y.extend(map(lambda i: y[i] + y[-1], range(4)))
    y.extend(zip(y, range(3)))
    y.extend(y)
    y += y
    return y


def extend_half_way(x):
    y = [x]
    try:
        y.extend(half_way([x + 1, x + 2, x + 3], 2))
    except ValueError as e:
        y.append(e.args)
    try:
        y += (y[i] for i in [0, 1, 99])
    except IndexError:
        pass
    return y


def extend_argument(x, out):
    try:
        out.extend(out[i] + x for i in range(9))
    except IndexError:
        pass
    out += (len(out) for _ in range(2))
    return x + len(out)


def assign_slice(x):
    y = [x, x + 1, x + 2]

    def grow():
        y.append(x * 2)
        yield y[0]
        y.append(x * 3)
        yield len(y)

    y[1:2] = grow()
    y[len(y) :] = (len(y) for _ in range(3))

    def shrink():
        y.clear()
        yield x

    y[3:7] = shrink()
    return y


def assign_slice_errors(x):
    y, seen = [x, x, x], []
    for key, value in [
        (slice(0, 1), 5),
        (slice(0, 3, 2), 5),
        (slice(0, 3, 2), [1]),
        (slice(None, None, -1), half_way([1, 2, 3], 1)),
    ]:
        try:
            y[key] = value
        except (TypeError, ValueError) as e:
            seen.append(str(e))
    y[::-1] = y
    y[5:1] = [x + 1]
    return y, seen


class Counts:
    """Says when its length is asked for."""

    def __init__(self, n, log):
        self.n, self.log = n, log

    def __len__(self):
        self.log.append("len")
        return self.n

    def __getitem__(self, i):
        self.log.append(i)
        if i >= self.n:
            raise IndexError(i)
        return i * 2


class Hints:
    def __init__(self, log):
        self.log = log

    def __iter__(self):
        self.log.append("iter")
        return iter([1, 2])

    def __length_hint__(self):
        self.log.append("hint")
        return 3


def asks_lengths(x):
    log = []
    out = [
        list(Counts(2, log)),
        tuple(Counts(1, log)),
        [*Counts(1, log)],
        sorted(Counts(2, log)),
        sum(Counts(2, log)),
        max(Counts(2, log)),
    ]
    out += [list(Hints(log)), tuple(Hints(log)), set(Hints(log))]
    out.extend(Hints(log))
    first, *rest = Hints(log)
    return x + 1, out, log, first, rest


def reversed_of_getitem(x):
    log = []
    for v in reversed(Counts(3, log)):
        log.append(("got", v))
        if v == 2:
            break
    return x + 1, log


# ---- sorting


def sort_sees_an_empty_list(x):
    y, seen = [3, 1, 2], []

    def key(v):
        seen.append((len(y), list(y)))
        return v

    y.sort(key=key)
    y.sort(key=lambda v: -v)
    return x + y[0], y, seen


def sort_raises(x):
    y = [5, 1, 4, 2, 3]

    def key(v):
        if v == 2:
            raise ValueError(v)
        return v

    try:
        y.sort(key=key)
    except ValueError:
        y.append(0)
    return x + 1, y


class Compared:
    def __init__(self, v, log, fails=None):
        self.v, self.log, self.fails = v, log, fails

    def __lt__(self, other):
        self.log.append((self.v, other.v))
        if self.fails == (self.v, other.v):
            raise ValueError("compared")
        return self.v < other.v


@pytest.mark.parametrize(
    "values",
    [[3, 1, 2], [1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 1, 1, 3], [1, 1, 1], list(range(70, 0, -1)) + list(range(20))],
    ids=str,
)
@pytest.mark.parametrize("reverse", [False, True])
def test_comparisons_of_a_sort(values, reverse):
    def f(x):
        log, other = [], []
        a = sorted((Compared(v, log) for v in values), reverse=reverse)
        b = [Compared(v, other, (1, 2)) for v in values]
        try:
            b.sort(reverse=reverse)
        except ValueError:
            other.append("raised")
        return x + 1, [c.v for c in a], [c.v for c in b], log, other

    runs(f, x)


def test_nan_is_sorted_as_cpython_sorts_it():
    def f(x):
        nan = float("nan")
        return (
            x + 1,
            sorted([3.0, nan, 1.0, nan, 2.0]),
            sorted([nan, 2.0, 1.0], reverse=True),
            sorted([(1, nan), (1, 0.0), (0, 2.0)]),
        )

    runs(f, x)


@pytest.mark.parametrize("write", ["append", "clear"])
def test_a_list_that_is_written_while_it_is_sorted(write):
    def f(x):
        y = [2, 1]
        try:
            y.sort(key=lambda v: getattr(y, write)(*([9] if write == "append" else [])) or v)
        except ValueError as e:
            return x + 1, y, str(e)
        return x + 1, y

    check(f, x, calls=2, breaks=1)


# ---- comparisons with effects


class Shrinks:
    def __init__(self, target):
        self.target = target

    def __eq__(self, other):
        if self.target:
            self.target.pop()
        return False

    def __repr__(self):
        return "Shrinks"

    __hash__ = None


def searches(x):
    out = []
    for search in (lambda y, v: y.count(v), lambda y, v: y.index(v), lambda y, v: y.remove(v), lambda y, v: v in y):
        y = [1, 2, 3, 4, 5]
        try:
            out.append(search(y, Shrinks(y)))
        except ValueError as e:
            out.append("not there")
        out.append(y)
    return x + 1, out


# ---- deques


def deques(x):
    d = collections.deque([x], 5)
    d.extend(d[-1] + i for i in range(3))
    d.extendleft(iter([1, 2]))
    d += [x * 2]
    d.extend(d)
    d.extendleft(d)
    out = [list(d)]
    try:
        d.extend(half_way([7, 8, 9], 2))
    except ValueError:
        out.append(list(d))
    for write in (lambda: d.append(1), lambda: d.popleft(), lambda: d.rotate(1), lambda: d.clear(), lambda: None):
        d.extend([1, 2])
        try:
            for i, v in enumerate(d):
                if i == 1:
                    write()
        except RuntimeError as e:
            out.append(str(e))
        try:
            for v in reversed(d):
                write()
        except RuntimeError as e:
            out.append(str(e))
    return out


# ---- sets


class Key:
    def __init__(self, v, log):
        self.v, self.log = v, log

    def __hash__(self):
        self.log.append(self.v)
        return self.v

    def __eq__(self, other):
        return self.v == other.v


def sets(x):
    s = {1}
    s.update(max(s) + 1 for _ in range(3))
    out = [sorted(s)]
    try:
        s.update([7], half_way([8, 9, 10], 2), [11])
    except ValueError:
        out.append(sorted(s))
    try:
        s.update(v + 100 for v in s)
    except RuntimeError as e:
        out += [str(e), len(s)]
    t = {1, 2, 3, 4, 5, 6, 7, 8}
    try:
        t.difference_update(half_way([1, 2, 3], 2))
    except ValueError:
        out.append(sorted(t))
    t.difference_update((len(t), max(t)) and v for v in [3, 4])
    out.append(sorted(t))
    return x + 1, out


def sets_stop_early(x):
    it, log = iter([1, 9, 2, 3]), []
    out = [{1, 2}.issuperset(it), list(it)]
    it = iter([9, 1, 2])
    out += [{1, 2}.isdisjoint(it), list(it)]
    return x + 1, out


def common_items(x):
    out = [{1}.intersection([1.0]), {1}.intersection({1.0}), {1, 2}.intersection({1.0}, [True]), {1} & {1.0},
           {1.0} & {1, 2}]
    s = {1, 2}
    s &= {1.0}
    t = {1, 2}
    t.intersection_update([2.0], {2})
    return x + 1, list(map(repr, out)), repr(s), repr(t), {1, 2}.issubset([1.0, 2.0])


def hashes_between(x):
    log = []

    def keys():
        for i in range(3):
            log.append(f"made {i}")
            yield Key(i, log)

    set(keys())
    frozenset(keys())
    dict.fromkeys(keys())
    dict((k, 0) for k in keys())
    return x + 1, log


# ---- dicts


def dicts(x):
    d = {"a": x}
    d.update((k, d["a"] + len(d)) for k in "bcd")
    d |= ((k, len(d)) for k in "ef")
    d.update(half for half in [["g", 1], "hi"])
    out = []
    for bad in (half_way([("k", 1), ("l", 2)], 1), [("m", 1), ("n",)], [("o", 1), 5], 5):
        try:
            d.update(bad)
        except (ValueError, TypeError) as e:
            out.append(str(e))
    return d, out


class Mapping:
    def __init__(self, log):
        self.log = log

    def keys(self):
        for k in "ab":
            self.log.append(k)
            yield k

    def __getitem__(self, k):
        self.log.append("get " + k)
        if k == "b":
            raise KeyError(k)
        return k * 2


class Loud(dict):
    def keys(self):
        return ["only"]

    def __getitem__(self, k):
        return "loud " + k


class LouderThanIter(Loud):
    def __iter__(self):
        return iter(["other"])


class Ordered(collections.OrderedDict):
    def __setitem__(self, k, v):
        super().__setitem__(k, (v, len(self)))


def mappings(x):
    log, out = [], []
    for d in ({}, collections.OrderedDict(), Ordered(), collections.defaultdict(list)):
        try:
            d.update(Mapping(log))
        except KeyError:
            pass
        d.update(Loud(a=1), z=2)
        d.update(LouderThanIter(a=1))
        try:
            d |= half_way([("p", 1), ("q", 2)], 1)
        except ValueError:
            pass
        out.append(list(d.items()))
    out += [
        dict(Loud(a=1)),
        dict(LouderThanIter(a=1)),
        {**Loud(a=1)},
        {**LouderThanIter(a=1)},
        type(Loud(a=1) | {"b": 2}),
    ]
    return x + 1, out, log


def counters(x):
    log = []
    c = collections.Counter()

    def keys():
        for k in "abcab":
            log.append(dict(c))
            yield k

    c.update(keys())
    return x + 1, dict(c), log


PROGRAMS = [
    extend_itself,
    add_to_itself,
    extend_map,
    extend_half_way,
    assign_slice,
    assign_slice_errors,
    asks_lengths,
    reversed_of_getitem,
    sort_sees_an_empty_list,
    sort_raises,
    searches,
    deques,
    sets,
    sets_stop_early,
    common_items,
    hashes_between,
    dicts,
    mappings,
    counters,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_cpython(program):
    runs(program, x)


def test_arguments_that_are_extended():
    runs(extend_argument, x, [x, x + 1])


class Listed(list):
    def __init__(self, items):
        self.append("before")
        try:
            super().__init__(items)
        except ValueError:
            self.append("raised")


class Grouped(set):
    def __init__(self, items):
        self.add("before")
        try:
            super().__init__(items)
        except ValueError:
            self.add("raised")


def test_containers_filled_by_their_constructors():
    def f(x):
        return x + 1, list(Listed(half_way([1, 2, 3], 2))), sorted(map(str, Grouped(half_way([1, 2, 3], 2))))

    runs(f, x)
