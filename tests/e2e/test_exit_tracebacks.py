"""What the __exit__ of a with block gets for an exception: type, value and traceback as in plain Python, however it was
raised."""
import pytest
import torch

import framejit
from check import fresh, same  # noqa: F401


class Manager:
    def __init__(self):
        self.got = []

    def __enter__(self):
        return self


class IsNone(Manager):
    def __exit__(self, *told):
        self.got.append([t is None for t in told])
        return True


class IsTheValues(Manager):
    def __exit__(self, kind, value, tb):
        self.got.append(value is not None and value.__traceback__ is tb)
        return True


class LooksInside(Manager):
    def __exit__(self, kind, value, tb):
        self.got.append(tb and tb.tb_lineno - tb.tb_frame.f_code.co_firstlineno)
        return True


def raised(x):
    raise ValueError("plain")


def raised_from(x):
    try:
        {}[1]
    except KeyError as e:
        raise ValueError("from") from e


def raised_again(x):
    try:
        [][1]
    except IndexError:
        raise


RAISING = [
    raised, raised_from, raised_again, lambda x: int("x"), lambda x: None.missing, lambda x: x @ torch.ones(
        7), lambda x: next(iter(())),
    lambda x: x,
]


def once(x, manager, what):
    with manager:
        x = x + 1
        what(x)
        x = x * 2
    return x * 3, manager.got


def nested(x, manager, what):
    with manager:
        try:
            with manager:
                what(x)
        finally:
            x = x * 2
    return x * 3, manager.got


def in_a_handler(x, manager, what):
    try:
        what(x)
    except Exception:
        with manager:
            x = x + 1
        with manager:
            what(x)
    return x * 3, manager.got


@pytest.mark.breaks(escaped_traced={"IsTheValues": 5, "LooksInside": 5},
                    exception_raised={"IsNone": 1, "IsNone-in_a_handler": 1, "IsTheValues": 6, "LooksInside": 6,
                                      "IsTheValues-in_a_handler": 4, "LooksInside-in_a_handler": 4},
                    exception_state={"IsNone-in_a_handler": 1, "IsTheValues-in_a_handler": 4,
                                     "LooksInside-in_a_handler": 4},
                    unknown_attribute={"IsTheValues": 6, "LooksInside": 6, "IsTheValues-in_a_handler": 6,
                                       "LooksInside-in_a_handler": 6})
@pytest.mark.parametrize("block", [once, nested, in_a_handler])
@pytest.mark.parametrize("manager", [IsNone, IsTheValues, LooksInside])
def test_exit_is_told_what_eager_tells(block, manager):
    for what in RAISING:
        compiled, x = framejit.compile(block), torch.ones(2)
        for _ in range(2):
            same(compiled(x, manager(), what), block(x, manager(), what))
