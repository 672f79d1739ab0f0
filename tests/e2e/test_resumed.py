"""A break is resumed in place: the code before and after it is captured, wherever and however deep it is, and runs as
graphs in every later call."""
import pytest
import torch

import framejit
from check import backend, fresh, same  # noqa: F401

NOTES = []


@framejit.disable
def note(*values):
    NOTES.append(values)


@framejit.disable
def refuse():
    NOTES.append("refused")
    raise ValueError("refused", 2)


class Manager:
    def __enter__(self):
        return 2

    def __exit__(self, kind, value, trace):
        return kind is KeyError


def straight(x):
    x = x + 1
    note()
    return x * 2


def for_range(x):
    for i in range(5):
        x = x + i
        note(i)
        x = x * 2
    return x - 1


def for_list(x):
    for t in [x, x + 1, x + 2, x + 3, x + 4]:
        x = x + t
        note()
        x = x * 2
    return x - 1


def while_counts(x):
    n = 0
    while n < 5:
        x = x + n
        note(n)
        n += 1
        x = x * 2
    return x - 1


def loop_of_loops(x):
    for i in range(2):
        x = x + i
        for t in (x, x * 2):
            x = x + t
            note()
            x = x * 2
    return x - 1


def with_block(x):
    with Manager() as k:
        x = x + k
        note()
        x = x * 2
    return x - 1


def with_that_eats(x):
    with Manager() as k:
        x = x + k
        note()
        x = x * 2
        raise KeyError
    return x - 1


def with_no_grad(x):
    with torch.no_grad():
        x = x + 1
        note(torch.is_grad_enabled())
        x = x * 2
    return x - 1


def try_block(x):
    try:
        x = x + 1
        note()
        x = x * 2
    except ValueError:
        x = x * 7
    finally:
        x = x - 3
    return x - 1


def handler(x):
    try:
        x = x + 1
        raise ValueError
    except ValueError:
        note()
        x = x * 2
    return x - 1


def finally_block(x):
    try:
        x = x + 1
    finally:
        note()
        x = x * 2
    return x - 1


def raised_behind(x):
    try:
        x = x + 1
        note()
        x = x * 2
        raise ValueError("v", 1)
    except ValueError as e:
        x = x * len(e.args)
    return x - 1


def raised_by_the_call(x):
    try:
        x = x + 1
        refuse()
        x = x * 2
    except ValueError as e:
        x = x * len(e.args)
        note(str(e))
        x = x * 3
    return x - 1


def loop_in_with_in_try(x):
    try:
        with Manager() as k:
            for t in (x, x, x, x):
                x = x + t
                note()
                x = x * k
            raise KeyError
    finally:
        x = x - 3
    return x - 1


def nested(place, depth):
    """`place`, called through `depth` functions, each with work before the call and after it."""
    if depth == 0:
        return place
    inner = nested(place, depth - 1)

    def outer(x):
        y = inner(x * 3)
        return y - 5
    return outer


# place: breaks while it is compiled, graphs, ATen ops in all of them
PLACES = {
    straight: (1, 2, 2),
    for_range: (2, 3, 5),
    for_list: (2, 3, 9),
    while_counts: (2, 3, 5),
    loop_of_loops: (3, 4, 11),
    with_block: (1, 2, 3),
    with_that_eats: (1, 2, 3),
    with_no_grad: (1, 2, 3),
    try_block: (1, 2, 4),
    handler: (2, 2, 3),  # plain Python raises the exception that is handled at the break, in a segment without work
    finally_block: (1, 2, 3),
    raised_behind: (1, 2, 4),
    raised_by_the_call: (2, 3, 4),
    loop_in_with_in_try: (2, 3, 6),
}


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_both_sides_of_every_break_are_graphs(place, depth, backend):
    breaks, graphs, ops = PLACES[place]
    plain, x = nested(place, depth), torch.randn(3)
    compiled = framejit.compile(plain, backend=backend)
    before, deltas = framejit.stats(), []
    for _ in range(3):
        NOTES.clear()
        want, noted = plain(x), list(NOTES)
        NOTES.clear()
        same(compiled(x), want)
        assert NOTES == noted and noted
        after = framejit.stats()
        deltas.append({key: after[key] - before[key] for key in ("graphs", "graph_breaks", "ops", "fallbacks", "hits")})
        before = after
    # The callers share one code object: that makes one more graph before the break, which holds their work, and one
    # after it, which each of them runs.
    assert framejit.stats()["break_reasons"] == {"disabled_function": breaks}
    assert deltas[0] | {"hits": 0} == {"graphs": graphs + (depth > 0), "graph_breaks": breaks, "ops": ops
                                       + (depth and depth + 1), "fallbacks": 0, "hits": 0}
    assert deltas[1:] == [{"graphs": 0, "graph_breaks": 0, "ops": 0, "fallbacks": 0, "hits": len(noted) + 1
                           + depth}] * 2
