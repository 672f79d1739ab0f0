"""A class may hash in Python and compare by identity: what its __hash__ writes and raises counts all the same."""
import enum

import pytest
import torch

import framejit
from check import backend, fresh, raised  # noqa: F401


class Counts:
    calls = 0

    def __init__(self, answer=5):
        self.answer = answer

    def __hash__(self):
        Counts.calls += 1
        return self.answer


class Unhashable:
    __hash__ = None


class Refuses:
    def __hash__(self):
        raise ValueError("not hashed")


class Name(enum.Enum):
    A = 1


def written(k):
    d = {}
    d[k] = 1
    return len(d)


def stays(k):
    d = {k: 1}
    return d[k], d.get(k), k in d


def removed(k):
    d = {k: 1, 2: 3}
    del d[k]
    return list(d)


PROGRAMS = {
    "a dict": lambda k: len({k: 1}), "a set": lambda k: len({k}), "in a set": lambda k: k in {1, 2},
    "written": written, "stays": stays, "removed": removed, "get": lambda k: {1: 2}.get(k, 3),
    "fromkeys": lambda k: list(dict.fromkeys([k]).values()), "a frozenset": lambda k: len(frozenset([k])),
    "setdefault": lambda k: {}.setdefault(k, 4), "pop": lambda k: {1: 2}.pop(k, 5),
    "pop what is there": lambda k: {1: 2, k: 3}.pop(k), "popitem": lambda k: len({k: 3}.popitem()),
    "made in the trace": lambda k: len({Counts(7): 1, k: 2}),
}
KEYS = {"Counts": Counts, "of another answer": lambda: Counts(9), "no number": lambda: Counts(1j),
        "Unhashable": Unhashable, "Refuses": Refuses, "Enum": lambda: Name.A, "int": lambda: 1}


@pytest.mark.breaks(exception_raised=3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_keys_that_hash_in_python(name, backend):
    program = PROGRAMS[name]

    def f(x, k):
        return program(k), x + 1
    for key, make in KEYS.items():
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for _ in range(2):
            results = []
            for call in (f, compiled):
                Counts.calls = 0
                results.append((raised(lambda: call(torch.ones(2), make())[0]), Counts.calls))
            assert results[0] == results[1], key


class Value:
    """As a frozen dataclass: hashed and compared by what it holds."""

    def __init__(self, held):
        self.held = held

    def __hash__(self):
        LOG.append("hash")
        return hash(self.held)

    def __eq__(self, other):
        LOG.append("equal")
        return isinstance(other, Value) and self.held == other.held


    def __repr__(self):
        return "Value"


class ByIdentity:
    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return "ByIdentity"

    def __hash__(self):
        LOG.append("hash")
        return hash(self.held)


LOG = []
REAL, REAL_SET = {}, set()


def added(k, d):
    REAL_SET.add(k)
    return len(REAL_SET)


def assigned(k, d):
    d[k] = 5
    return len(d)


def deleted(k, d):
    REAL[k] = 1
    del REAL[k]
    return len(REAL)


# What makes CPython look a key up must do so as often once it is compiled.
REAL_PROGRAMS = {
    "item": lambda k, d: d[k], "get": lambda k, d: d.get(k, 3), "in": lambda k, d: k in d,
    "global": lambda k, d: REAL[k],
    "in a tuple": lambda k, d: d.get((k, 1), 3), "setdefault": lambda k, d: d.setdefault(k, 4),
    "pop": lambda k, d: d.pop(k, 4), "assigned": assigned, "deleted": deleted, "added": added,
    "iterated": lambda k, d: [v for _, v in d.items()], "copied": lambda k, d: len(d.copy()),
    "unpacked": lambda k, d: len({**d}), "of a str": lambda k, d: d.get("a", 4),
    "updated": lambda k, d: {1: 2} | d, "listed": lambda k, d: k in list(d), "stays": lambda k, d: {k: 1, 2: 3}[k],
}
WHOLE = {"of a str", "stays"}


@pytest.mark.breaks(unsupported_key=range(9))
@pytest.mark.nothing_captured
@pytest.mark.parametrize("kind", [Value, ByIdentity])
@pytest.mark.parametrize("name", REAL_PROGRAMS)
def test_keys_in_containers_that_the_trace_did_not_make(name, kind, backend):
    program = REAL_PROGRAMS[name]

    def f(x, k, d):
        return program(k, d), x + 1
    compiled = framejit.compile(f, backend=backend)
    for _ in range(3):
        results = []
        for call in (f, compiled):
            REAL.clear(), REAL_SET.clear()
            k = kind(1)
            d = {kind(1): 2, kind(2): 3} if kind is Value else {k: 2, kind(2): 3}
            REAL[k] = 7
            LOG.clear()
            results.append((raised(lambda: str(call(torch.ones(2), k, d)[0])), LOG[:], len(d)))
        assert results[0] == results[1]
    assert bool(framejit.stats()["graph_breaks"]) == (name not in WHOLE)
