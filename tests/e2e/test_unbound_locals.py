"""Locals and cells that are bound in one call and not in another, across breaks: an entry fits only if what it relies
on is the same, and its exit does not change what it did not touch."""

import weakref

import pytest
import torch

import framejit
from check import check, same

x = torch.randn(3)


def compare(fn, *calls):
    """Runs every order of two calls, and then all of them again, compiled once: as in eager."""
    for first in calls:
        for second in calls:
            framejit.reset()
            compiled = framejit.compile(fn)
            for args in (first, second, *calls):
                want, got = fn(*args), compiled(*args)
                same(got, want)


def read(x, l=None):
    if l is not None:
        c = l * 2
    print(end="")
    try:
        return x + c
    except UnboundLocalError as e:
        return x - 1, str(e)


def over_two_breaks(x, l=None):
    if l is not None:
        c = l * 2
    print(end="")
    y = x + 1
    print(end="")
    try:
        return y + c
    except UnboundLocalError:
        return y - 1


def carried_in_a_loop(x, l=None):
    if l is not None:
        c = l * 2
    for i in range(3):
        print(end="")
        x = x + i
    try:
        return x * c
    except UnboundLocalError:
        return x


def deleted(x, l=None):
    c = x * 2
    if l is None:
        del c
    print(end="")
    y = x * 3
    try:
        del c
    except UnboundLocalError as e:
        return y, str(e)
    return y


def only_looked_at(x, l=None):
    if l is not None:
        c = l
    print(end="")
    y = x + 1
    try:
        c
    except UnboundLocalError:
        return y * 2
    return y


def bound_and_deleted(x, l=None):
    if l is not None:
        c = l
    print(end="")
    y = x + 1
    c = y
    del c
    print(end="")
    z = y + 1
    try:
        return z + c
    except UnboundLocalError:
        return z


def cell(x, l=None):
    if l is not None:
        c = l * 2

    def inner():
        return c + 1

    print(end="")
    try:
        return x + inner()
    except NameError as e:
        return x - 1, str(e)


def own_cell(x, l=None):
    def inner():
        return c

    if l is not None:
        c = l * 2
    print(end="")
    y = x + 1
    print(end="")
    try:
        return y + c
    except UnboundLocalError:
        return y


def cell_looked_at(x, l=None):
    def inner():
        nonlocal c
        c = x

    if l is not None:
        c = l
    print(end="")
    y = x + 1
    try:
        c
    except UnboundLocalError:
        inner()
        return y * 2 + c
    del c
    inner()
    return y + c


def cell_contents(x, l=None):
    def inner():
        return c

    if l is not None:
        c = l
    print(end="")
    y = x + 1
    try:
        return y + inner.__closure__[0].cell_contents
    except ValueError as e:
        return y, str(e)


def in_a_comprehension(x, l=None):
    if l is not None:
        i = l
    print(end="")
    y = [i * x for i in range(2)]
    z = [print(end="") or i + x for i in range(2)]
    try:
        return y, z, i
    except UnboundLocalError:
        return y, z


def in_a_handler(x, l=None):
    try:
        if l is None:
            raise ValueError
        e = l
    except ValueError as e:
        y = x * 2
        print(end="")
    print(end="")
    x = x + 1
    try:
        return x + e
    except UnboundLocalError:
        return x + y


def callee_with_unbound(x, l=None):
    def inner(x):
        if l is not None:
            c = l * 2
        y = x + 1
        print(end="")
        try:
            return y + c
        except UnboundLocalError:
            return y

    z = inner(x) * 2
    print(end="")
    return z


def names_of_locals(x, l=None):
    if l is not None:
        dead = l
    print(end="")
    x = x + 1
    return x, sorted(locals())


def null_below_a_call(x, l=None):
    f = torch.sin if l is None else x.add
    return f(ended(x)) if l is None else x.add(ended(x))


def ended(x):
    y = x + 1
    print(end="")
    return y


PROGRAMS = [
    read,
    over_two_breaks,
    carried_in_a_loop,
    deleted,
    only_looked_at,
    bound_and_deleted,
    cell,
    own_cell,
    cell_looked_at,
    cell_contents,
    in_a_comprehension,
    in_a_handler,
    callee_with_unbound,
    names_of_locals,
    null_below_a_call,
]


@pytest.mark.breaks(outside_effect=8)
@pytest.mark.breaks(outside_effect={"over_two_breaks": 6, "carried_in_a_loop": 6, "bound_and_deleted": 6, "own_cell": 6,
                                    "in_a_comprehension": 10, "in_a_handler": 8, "callee_with_unbound": 4},
                    unknown_callable={"names_of_locals": 6})
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_bound_or_not(program):
    compare(program, (x,), (x, x))


class Base:
    def forward(self, x):
        return x + 1


@pytest.mark.breaks(outside_effect=16)
def test_class_cells():
    def make(bound):
        class Sub(Base):
            def forward(self, x, l=None):
                y = x * 2
                print(end="")
                if l is not None:
                    del self
                try:
                    return super().forward(y)
                except (RuntimeError, NameError) as e:
                    return y, str(e)

        if not bound:  # an empty __class__ cell
            del Sub.forward.__closure__[0].cell_contents
        return Sub().forward

    for bound in (True, False):
        fn = make(bound)
        compare(lambda *args: fn(*args), (x,), (x, x))


@pytest.mark.breaks(outside_effect=3)
def test_what_is_not_touched_needs_no_entry_of_its_own():
    def f(x, l=None):
        if l is not None:
            unused = l * 2
        print(end="")
        y = x + 1
        print(end="")
        return y

    compiled = framejit.compile(f)
    compiled(x)
    before = framejit.stats()["graphs"]
    compiled(x, x)
    after = framejit.stats()["graphs"]
    assert after - before == 1  # the multiplication


@pytest.mark.breaks(made_in_trace=1, outside_effect=4)
def test_an_unread_local_lives_as_long_as_in_python():
    class Held:
        pass

    def f(x, hold):
        held = Held() if hold is None else hold
        alive = weakref.ref(held)
        print(end="")
        y = x + 1
        print(end="")
        return y, alive() is not None

    compiled = framejit.compile(f)
    for _ in range(2):
        assert compiled(x, Held())[1]
        assert compiled(x, None)[1]


COUNTS = {  # of graphs and breaks
    read: (1, 1), over_two_breaks: (2, 2), carried_in_a_loop: (2, 2), deleted: (2, 1), only_looked_at: (1, 1),
    bound_and_deleted: (2, 2), cell: (1, 1), own_cell: (1, 2), cell_looked_at: (1, 1), cell_contents: (1, 1),
    in_a_comprehension: (3, 3), in_a_handler: (2, 3), callee_with_unbound: (2, 2), names_of_locals: (1, 2),
    null_below_a_call: (2, 1)}


def test_check():
    for program in PROGRAMS:
        compiles, breaks = COUNTS.get(program, (1, 0))
        check(program, x, calls=2, compiles=compiles, breaks=breaks)
