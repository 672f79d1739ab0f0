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
