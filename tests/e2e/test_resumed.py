"""A break is resumed in place: the code before and after it is captured, wherever and however deep it is, and runs as
graphs in every later call."""
import contextlib
import gc
import sys
import weakref

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


@contextlib.contextmanager
def scope():
    yield


def in_a_handler(x):
    y = x + 1
    try:
        raise ValueError
    except ValueError:
        note()
        return y * 2


def after_a_named_exception(x):
    y = x + 1
    try:
        raise ValueError
    except ValueError as error:  # noqa: F841
        note()
    return y * 2


def after_an_exception_of_the_call(x):
    y = x + 1
    try:
        refuse()
    except ValueError:
        pass
    return y * 2


def after_a_context_manager(x):
    with scope():
        y = x * 2
        note()
    return y + 1


@pytest.mark.breaks(disabled_function={"in_a_handler": 2, "after_a_named_exception": 2,
                                       "after_an_exception_of_the_call": 1, "after_a_context_manager": 2},
                    real_iterator={"after_a_context_manager": 2})
@pytest.mark.parametrize("function", [in_a_handler, after_a_named_exception, after_an_exception_of_the_call,
                                      after_a_context_manager], ids=lambda function: function.__name__)
def test_a_call_leaves_no_cycle(function, backend):
    """The frame that an exception holds no longer holds the exception: the call's tensors die at once, as in eager."""
    compiled = framejit.compile(function, backend=backend)
    gc.disable()
    try:
        for call in function, compiled, compiled, compiled:
            x = torch.randn(3)
            alive = weakref.ref(x)
            call(x)
            del x
            assert alive() is None
    finally:
        gc.enable()


def keeps_its_frame(x, kept):
    y, z = 1, x + 1
    try:
        refuse()
    except ValueError as error:
        kept.append(error.__traceback__.tb_frame)
    y = 2
    del z
    return x * y


@pytest.mark.breaks(disabled_function=1, unknown_attribute=1)
def test_a_kept_frame_shows_its_end(backend):
    frames = []
    for call in [keeps_its_frame] + [framejit.compile(keeps_its_frame, backend=backend)] * 3:
        call(torch.ones(2), frames)
    plain, *others = [(sorted(frame.f_locals), frame.f_locals["y"], frame.f_lineno) for frame in frames]
    assert others == [plain] * 3


@framejit.disable
def hold(frames):
    if frames is not None:
        frames.append(sys._getframe(2))  # past the wrapper of disable


def may_be_held(x, frames):
    y = x + 1
    hold(frames)
    number, text, flag, many = 1, "text", True, 2.5
    number = number + 1
    return y * many


@pytest.mark.breaks(disabled_function=1)
def test_one_entry_shows_the_end_of_frames_that_are_held(backend):
    """Calls whose frame nobody holds use the same entries, and make nothing for it."""
    compiled, held = framejit.compile(may_be_held, backend=backend), {}
    for call in may_be_held, compiled:
        held[call] = []
        for frames in [None, held[call], None, held[call]]:
            same(call(torch.ones(2), frames), torch.full((2,), 5.0))
    names = ["number", "text", "flag", "many"]
    plain, ours = [[(frame.f_lineno, [frame.f_locals[name] for name in names]) for frame in frames]
                   for frames in held.values()]
    assert plain == ours == [(plain[0][0], [2, "text", True, 2.5])] * 2
