"""Objects that a trace writes and told apart must be as many objects in later calls: each pair is guarded, and objects
that passed once are not compared again."""
import torch

import framejit
from check import backend, fresh  # noqa: F401


class Counter:
    def __init__(self):
        self.count = 0


def count_all(counters, x):
    for k, counter in enumerate(counters):
        counter.count += k + 1
    return x + 1


def test_repeated_objects_among_distinct_ones(backend):
    compiled, x = framejit.compile(count_all, backend=backend), torch.ones(2)
    graphs = []
    for kept in ("first", "second", "first", "second"):
        objects = {"first": [Counter() for _ in range(8)], "second": [Counter() for _ in range(8)]}[kept]
        for a, b in [(None, None), (0, 7), (3, 4), (None, None)]:
            given = list(objects)
            if a is not None:
                given[a] = given[b]
            for call in (count_all, compiled):
                for counter in objects:
                    counter.count = 0
                torch.testing.assert_close(call(given, x), x + 1)
                results = [counter.count for counter in objects]
                if call is count_all:
                    want = results
            assert results == want, (a, b)
        graphs.append(framejit.stats()["graphs"])
    assert graphs[0] == graphs[-1]


def test_other_objects_share_an_entry(backend):
    compiled, x = framejit.compile(count_all, backend=backend), torch.ones(2)
    for _ in range(10):
        counters = [Counter() for _ in range(12)]
        compiled(counters, x)
        assert [counter.count for counter in counters] == list(range(1, 13))
    assert framejit.stats()["graphs"] == 1
