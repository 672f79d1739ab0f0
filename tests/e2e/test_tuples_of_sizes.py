"""Tuples of ints as arguments: guarded whole at first; later, ints in them that changed are symbols, like those of
lists."""
import functools
import math

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import backend, fresh  # noqa: F401

NUMBERS = range(1, 14)
X = torch.ones(1)


@functools.lru_cache(maxsize=None)
def area(size):
    return size[0] * size[1]


area((2, 1))
GRID = torch.arange(400.0).view(20, 20)


def arguments(make):
    return [make(i) for i in NUMBERS]


SHARED = {  # one graph and one for any number
    "view": (lambda y, s: y.view(s) * 2, arguments(lambda i: (torch.ones(2 * i), (2, i)))),
    "zeros": (lambda x, s: torch.zeros(s) + x, arguments(lambda i: (X, (i, 2 * i + 1)))),
    "nested": (lambda x, s: torch.zeros(s[0]) + s[1][0] * x, arguments(lambda i: (X, ((2, i), (3, 4))))),
    "beside a string": (lambda x, s: torch.zeros(s[1]) + len(s[0]), arguments(lambda i: (X, ("a", (2, i))))),
    "prod": (lambda x, s: x * math.prod(s), arguments(lambda i: (X, (2, i)))),
    "index": (lambda y, s: y[s] + 1, arguments(lambda i: (GRID, (1, i)))),
    "slice": (lambda y, s: y[slice(*s)] + 1, arguments(lambda i: (GRID, (1, i + 2)))),
    "pad": (lambda y, s: F.pad(y, s), arguments(lambda i: (GRID, (1, i, 0, i)))),
    "returned": (lambda x, s: (x + 1, s, s[::-1], s + (1,)), arguments(lambda i: (X, (2, i)))),
    "large": (lambda x, s: x * s[0], arguments(lambda i: (X, (2**50 + i, 2**70)))),
}
ANSWERS = {  # these need the numbers
    "key": (lambda x, s: x * {(2, 3): 4}.get(s, 1), arguments(lambda i: (X, (2, i)))),
    "key of a dict that is given": (lambda x, d, s: x * d.get(s, 1),
                                    arguments(lambda i: (X, {(2, 3): 4, (2, 5): 6}, (2, i)))),
    "texts": (lambda x, s: (x * 2, str(s), "%s %r" % s, f"{s}", "{}".format(s)), arguments(lambda i: (X, (2, i)))),
    "hash of a nested one": (lambda x, s: (x + 1, hash((s, 1))), arguments(lambda i: (X, (2, i)))),
    "order of a set": (lambda x, s: (x + 1, list({s, (2, 3)})), arguments(lambda i: (X, (2, i)))),
    "cached function": (lambda x, s: x * area(s), [(X, (2, i)) for i in NUMBERS if area((2, i))]),
    "hash": (lambda x, s: (x + 1, hash(s)), arguments(lambda i: (X, (2, i)))),
    "equality": (lambda x, s: x * 2 if s == (2, 3) else x, arguments(lambda i: (X, (2, i)))),
    "order": (lambda x, s: x * 2 if s < (2, 5) else x, arguments(lambda i: (X, (2, i)))),
    "membership": (lambda x, s: x * 2 if s in ((2, 3), (2, 4)) else x, arguments(lambda i: (X, (2, i)))),
    "membership of a set": (lambda x, s: x * 2 if s in {(2, 3), (2, 4)} else x, arguments(lambda i: (X, (2, i)))),
    "most and least": (lambda x, s: x * max(s) + min(s), arguments(lambda i: (X, (5, i)))),
    "kernel": (lambda y, s: F.avg_pool2d(y[None, None], s), arguments(lambda i: (GRID, (2, i)))),
    "dims": (lambda y, s: y.view(2, 10, 20).permute(s) + 1,
             [(GRID, s) for s in ((0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0))]),
    "range": (lambda x, s: x * sum(range(*s)), arguments(lambda i: (X, (1, i)))),
    "bools": (lambda x, s: x * 2 if s[1] else x * s[0], [(X, (1, True)), (X, (1, False)), (X, (2, True)), (X, (3, 1)),
                                                         (X, (3, 0))]),
    "floats": (lambda x, s: x * s[0] + s[1], arguments(lambda i: (X, (i * 0.5, i)))),
}


def run(fn, calls, backend):  # noqa: F811
    compiled = framejit.compile(fn, backend=backend)
    for args in calls + calls[::-1]:
        expected, got = fn(*args), compiled(*args)
        torch.testing.assert_close(got[0] if isinstance(got, tuple) else got, expected[0] if isinstance(expected, tuple)
                                   else expected)
        if isinstance(expected, tuple):
            assert got[1:] == expected[1:]


@pytest.mark.parametrize("name", SHARED)
def test_one_more_graph(name, backend):  # noqa: F811
    run(*SHARED[name], backend)
    assert framejit.stats()["recompiles"] <= 1 and framejit.stats()["fallbacks"] == framejit.stats()[
        "graph_breaks"] == 0


@pytest.mark.parametrize("name", ANSWERS)
def test_answers(name, backend):  # noqa: F811
    run(*ANSWERS[name], backend)
    assert framejit.stats()["graph_breaks"] == 0
    assert framejit.stats()["fallback_reasons"] in ({}, {"entry_limit": 9})


def test_tuples_of_the_code_stay_constants():
    compiled = framejit.compile(lambda y: y.view((2, -1)).permute((1, 0)).expand((y.shape[0] // 2, 2)) * 2)
    for n in range(4, 24, 2):
        y = torch.ones(n)
        assert compiled(y).shape == (n // 2, 2)
    assert framejit.stats()["recompiles"] == 1


def test_an_unchanged_tuple_is_one_guard():
    guards = framejit.explain(lambda x, s: x.expand(s))(X, (2, 3)).guards
    assert [e.fields["guard"].split("  #")[0] for e in guards if "'s'" in e.fields["guard"]] == ["L['s'] == (2, 3)"]
