"""What a call at a break sees of its callers, in every call: frames, lines, locals and their identity, where its
warnings point."""
import contextlib
import functools
import sys
import warnings

import pytest
import torch

import framejit
from check import backend, fresh, same  # noqa: F401

SEEN = []


def held(value):
    """A copy, to compare with that of another run; for other objects, the class."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (list, tuple):
        return type(value)(held(v) for v in value)
    if type(value) is dict:
        return {key: held(v) for key, v in value.items()}
    return value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__


@framejit.disable
def look():
    """Records every frame between the call of the test and this one, and the exception being handled, and warns at two
    of the frames."""
    frame, found = sys._getframe(2), []
    while frame.f_code.co_name != "seen_by":
        names = dict(frame.f_locals)
        shared = [[name for name, other in names.items() if other is value] for value in names.values()]
        found.append((frame.f_code.co_name, frame.f_lineno,
                      {name: held(value) for name, value in names.items() if name != "__module__"}, shared))
        frame = frame.f_back
    SEEN.append([*found, repr(sys.exc_info()[1])])
    warnings.warn("caller", stacklevel=3)
    warnings.warn("caller's caller", stacklevel=4)


def innermost(x, k, *rest, flag=False, **more):
    y = x + k
    pair = [y, {"y": y, "k": k}]
    look()
    y = y * 2
    if flag:
        look()
    del pair
    x.add_(1)
    look()
    return y


def between(x):
    total = 0
    for i in range(3):
        total = total + innermost(x, i, "rest", flag=i == 1, more=(x, None))
        last = i
    with torch.no_grad():
        try:
            raise ValueError(last)
        except ValueError as error:
            look()
    return innermost(total, 0.5), innermost(x, 0.5)


def watched(x):
    n = x.shape[0]
    z = x - n
    def closure(k):
        look()
        return z * k + n
    return between(z), closure(3), z


def seen_by(call, x):
    SEEN.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = call(x)
    return result, list(SEEN), [(str(w.message), w.filename, w.lineno) for w in warned]


@pytest.mark.breaks(disabled_function=11)
def test_locals_frames_and_lines_seen_by_a_broken_out_call(backend):
    compiled, x = framejit.compile(watched, backend=backend), torch.randn(3)
    for call in range(4):
        before = framejit.stats()
        got, want = seen_by(compiled, x), seen_by(watched, x)
        assert len(want[1]) == 13 and len(want[2]) == 26 and len(want[1][0]) == 4
        same(got[1], want[1], where=f"call {call}: what was seen")
        same((got[0], got[2]), (want[0], want[2]), where=f"call {call}: result and warnings")
        after = framejit.stats()
        if call:
            assert after["graphs"] == before["graphs"] and after["hits"] - before["hits"] == 13
    assert framejit.stats()["fallbacks"] == 0


def in_generator(x):
    def gen(x):
        for k in range(3):
            y = x * k
            look()
            z = yield y
            w = y + 1
            look()
    t = x
    for v in gen(x + 1):
        t = t + v
    return t


def in_genexp(x):
    def g(k):
        look()
        return x * k
    return sum(g(k) for k in range(3)), max((look(), k)[1] for k in range(2))


def in_listcomp(x):
    a = 3
    return [(look(), x * k + a)[1] for k in range(3)]


def in_nested_comp(x):
    return {k: [(look(), x * k + j)[1] for j in range(2)] for k in range(2)}


def in_key(x):
    def key(k):
        y = x + k
        look()
        return -k
    return sorted([1, 2, 3], key=key), list(map(key, [4, 5])), functools.reduce(lambda a, b: (look(), a + b)[1],
        [x, x, x])


class Thing:
    def __init__(self, x):
        self.x = x + 1
        look()
        self.y = x * 2
    @property
    def total(self):
        s = self.x + self.y
        look()
        return s * 2
    def __getattr__(self, name):
        look()
        return name
    def __enter__(self):
        look()
        return self.x
    def __exit__(self, *a):
        look()
        return True
    def __getitem__(self, k):
        look()
        return self.x * k
    def __iter__(self):
        look()
        return iter([self.x, self.y])
    def __call__(self, *args, **kw):
        look()
        return self.x
    def __eq__(self, other):
        look()
        return True
    def __bool__(self):
        look()
        return True


def in_methods(x):
    t = Thing(x)
    a = t.total + t[3]
    b = t.missing
    for v in t:
        a = a + v
    a = a + t(1, k=2)
    c = t == 3
    if t:
        a = a * 2
    with t as q:
        a = a + q
        raise ValueError("x")
    return a, b, c


@contextlib.contextmanager
def manager(x):
    y = x + 1
    look()
    try:
        yield y
    except KeyError as e:
        z = 1
        look()
    finally:
        look()


def in_contextmanager(x):
    with manager(x) as y:
        x = x + y
        look()
        raise KeyError("k")
    return x


def deleted(x):
    a = x + 1
    b = a * 2
    del a
    look()
    a = b + 1
    try:
        raise ValueError("v")
    except ValueError as e:
        look()
        b = b + 1
    look()
    return a + b


def decorated(x):
    def deco(f):
        @functools.wraps(f)
        def wrapper(*args, **kw):
            r = f(*args, **kw)
            look()
            return r
        return wrapper
    @deco
    @functools.lru_cache
    def one(k):
        look()
        return k
    @deco
    def inner(x, k=1):
        look()
        return x + k
    return inner(x) + inner(x, k=3) + one(2)


def recursion(x, n=3):
    y = x + n
    if n == 0:
        look()
        return y
    z = recursion(y, n - 1)
    look()
    return z * 2


def finallies(x):
    try:
        try:
            y = x + 1
            return y
        finally:
            q = x * 2
            look()
    finally:
        look()


def raises_through(x):
    try:
        y = x + 1
        raise ValueError(y.dim())
    except KeyError:
        look()
    finally:
        y = x * 2
        look()


def classbody(x):
    class C:
        a = 3
        look()
        b = a + 1
    look()
    return x * 2


def loops(x):
    for i, (a, b) in enumerate(zip([x, x + 1], [1, 2])):
        x = x + a * b
        if i:
            look()
            continue
        look()
    else:
        look()
    while True:
        look()
        x = x * 2
        break
    return x


def cells(x):
    k = 1
    def inc():
        nonlocal k
        k += 1
        y = x + k
        look()
        return y
    a = inc()
    look()
    b = inc()
    return a + b + k


def lambdas(x):
    f = lambda y, *a, k=2, **kw: (look(), y * k)[1]  # noqa: E731
    return f(x) + f(x, 1, k=3, z=4)


def partials(x):
    def g(a, b, c=1):
        look()
        return a * b + c
    return functools.partial(g, x, c=3)(2)


def unpack(x):
    def g(*args, **kw):
        look()
        return args[0] + kw["k"]
    a, *b = [x, 1, 2]
    d = {"k": 3}
    return g(a, *b, **d)


PROGRAMS = [in_generator, in_genexp, in_listcomp, in_nested_comp, in_key, in_methods, in_contextmanager, deleted,
            decorated, recursion, finallies, raises_through, classbody, loops, cells, lambdas, partials, unpack]


def outcome(call, x):
    try:
        return seen_by(call, x)
    except ValueError as error:
        return repr(error), list(SEEN), None


@pytest.mark.breaks(disabled_function={"in_generator": 1, "in_genexp": 2, "in_listcomp": 2, "in_nested_comp": 4,
                                       "in_key": 3, "in_methods": 10, "in_contextmanager": 2, "deleted": 4,
                                       "decorated": 4, "recursion": 2, "finallies": 2, "raises_through": 2,
                                       "classbody": 1, "loops": 4, "cells": 3, "lambdas": 2, "partials": 1,
                                       "unpack": 1},
                    escaped_traced={"in_methods": 1, "in_contextmanager": 1}, made_in_trace={"classbody": 1},
                    exception_raised={"raises_through": 4}, unknown_callable={"decorated": 1},
                    real_iterator={"in_generator": 2, "in_contextmanager": 2})
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_seen_from_every_kind_of_function(program, backend):
    def whole(x):
        return program(x + 1)
    compiled, x = framejit.compile(whole, backend=backend), torch.randn(3)
    for call in range(3):
        before = framejit.stats()
        got, want = outcome(compiled, x), outcome(whole, x)
        assert want[1]
        same(got[1], want[1], where=f"call {call}: what was seen")
        same((got[0], got[2]), (want[0], want[2]), where=f"call {call}: result and warnings")
        after = framejit.stats()
        if call:
            assert after["graphs"] == before["graphs"] and after["hits"] > before["hits"]
    assert framejit.stats()["fallbacks"] == 0
