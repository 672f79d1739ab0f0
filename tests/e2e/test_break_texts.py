"""What a line about a graph break says: a sentence of the reason's row and the case."""
import itertools

import numpy as np
import pytest
import torch

import framejit
from test_logs import events_of

ONES = torch.ones(2)


class Slotted:
    __slots__ = ("q",)


class Foreign:
    q = Slotted.q


class Plain:
    pass


def nested(depth):
    out = []
    for _ in range(depth):
        out = [out]
    return out


def slice_with_text(x):
    return x + 1, list(itertools.islice([1, 2], "a"))


def compare_deeply(x, a, b):
    return x + 1, a == b


def find_identity(x):
    return x + 1, {1: 2}.get(id(x))


def write_foreign_slot(x, o):
    x = x + 1
    o.q = 1
    return x


def return_array(x):
    x = x + 1
    print(end="")  # the graph ends here, not where the array leaves the trace
    return x, np.zeros((2, 3), order="F")


def write_list_of_iterators(x, items):
    items.append(1)
    return x + 1


def reduce_object(x, o):
    return x + 1, len(object.__reduce__(o))


def recurse(x, n):
    return recurse(x + 1, n - 1) if n else x


# The function, a maker of its other arguments, the reason, the sentence.
CASES = [
    (slice_with_text, tuple, "exception_raised", "a ValueError of itertools.islice() is raised"),
    (compare_deeply, lambda: (nested(300), nested(300)), "recursion_limit", "a comparison nests too deeply"),
    (find_identity, tuple, "memory_address",
     "a lookup of id() among ints depends on where objects lie in memory"),
    (write_foreign_slot, lambda: (Foreign(),), "exception_raised",
     "a TypeError of a write to q, a slot of another class, is raised"),
    (return_array, tuple, "numpy_array", "an array that is not C-contiguous cannot be traced"),
    (write_list_of_iterators, lambda: ([(n for n in [1])],), "real_iterator",
     "iterator held by a list that is written was made before this trace: by the caller, or before a graph break"),
    (reduce_object, lambda: (Plain(),), "unsupported_copy",
     "the result of __reduce__() of an object of type Plain cannot be made"),
    (recurse, lambda: (400,), "recursion_limit", "a call of recurse nests too deeply"),
]


@pytest.mark.parametrize("function, make, reason, sentence", CASES, ids=[case[0].__name__ for case in CASES])
def test_the_sentence_of_a_break(function, make, reason, sentence):
    def call():
        try:
            framejit.compile(function)(ONES, *make())
        except (TypeError, ValueError):
            pass
    fields = [e["fields"] for e in events_of(lambda: call(), ()) if e["event"] == "Break"]
    assert (reason, sentence) in [(f["reason"], f["detail"]) for f in fields], fields
    assert framejit.stats()["graph_breaks"] == len(fields)
