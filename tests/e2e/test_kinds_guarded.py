"""What a trace takes from the class of an argument has a guard: the next call may pass an object of another class.

Each program is compiled with one argument and called with the others, of every class that answers in its own way."""
import collections
import itertools

import pytest
import torch

import framejit
from check import backend, check, fresh, raised, same  # noqa: F401  fresh: the fixture


def a_function():
    return 0


class Plain:
    pass


class Hashes:
    def __init__(self, answer):
        self.answer = answer

    def __hash__(self):
        return self.answer


def added(s):
    d = {}
    d[s] = 1
    return len(d)


def raises(s):
    try:
        raise s
    except Exception as error:
        return repr(error)


def raises_from(s):
    try:
        raise KeyError(1) from s
    except Exception as error:
        return repr(error), repr(error.__cause__)


def catches(s):
    try:
        raise ValueError("v")
    except s:
        return "caught"


KEYS = [torch.ones(2), 5, a_function, Plain(), [1], None]
RAISED = [None, ValueError("q"), int, ValueError, 5, Plain(), torch.ones(2)]
CAUGHT = [[ValueError], ValueError, (KeyError, ValueError), torch.ones(2), None, (KeyError, [1]), int]

PROGRAMS = {
    "in_a_set": (lambda s: s in {5, 2}, KEYS),
    "in_a_frozenset": (lambda s: s in frozenset([5, 2]), KEYS),
    "in_a_dict": (lambda s: s in {"a": 1, 5: 2}, KEYS),
    "get": (lambda s: {5: "five"}.get(s, "none"), KEYS),
    "set_of_two": (lambda s: set([s, 5]) == {5}, KEYS),
    "difference": (lambda s: len({5, 2} - {s}), KEYS),
    "dict": (lambda s: list({s: 1}.values()), KEYS),
    "added": (added, KEYS),
    "class": (lambda s: s.__class__, [a_function, 5, Plain().__init__, len, [].append, super(Plain, Plain()), None]),
    "class_is_int": (lambda s: s.__class__ is int, [a_function, 5, super(Plain, Plain())]),
    "hasattr": (lambda s: hasattr(s, "shape"), ["ab".upper, torch.ones(2), Plain().__init__, 5]),
    "hash_result": (lambda s: len({Hashes(s)}), [5, 1j, torch.ones(2), True, None]),
    "raise": (raises, RAISED),
    "raise_from": (raises_from, RAISED),
    "except": (catches, CAUGHT),
}


OF_KEYS = ("in_a_set", "in_a_frozenset", "in_a_dict", "get", "set_of_two", "difference", "dict", "added")


@pytest.mark.breaks(exception_raised={**dict.fromkeys(OF_KEYS, 6), "raise": 7, "except": 4, "hash_result": 5},
                    unsupported_key={"set_of_two": 1, "difference": 1, "hash_result": 5},
                    unsupported_operand={"except": 10},
                    unknown_attribute={"class": 7, "class_is_int": 3})
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_depends_on_a_class_guards_it(name, backend):
    answer, given = PROGRAMS[name]

    def program(x, s):
        return x + 1, answer(s)

    for first in given:
        framejit.reset()
        compiled = framejit.compile(program, backend=backend)
        with torch.no_grad():
            for s in [first] + given:
                same(raised(compiled, torch.ones(2), s), raised(program, torch.ones(2), s))


COPIED = {
    "float": lambda x: x.copy_(0.5),
    "of_a_view": lambda x: (x[0:1].copy_(5), x),
    "bool": lambda x: (x + 1).copy_(True),
    "non_blocking": lambda x: x.copy_(2, non_blocking=True),
    "of_the_class": lambda x: torch.Tensor.copy_(x, 3),
    "too_large": lambda x: x.to(torch.uint8).copy_(300),
    "cut": lambda x: x.to(torch.int32).copy_(-2.7),
    "half": lambda x: x.half().copy_(1 / 3),
    "of_no_dimension": lambda x: x[0].copy_(7) + x,
    "aliased": lambda x: (x.view(2, 1).copy_(4), x * 2),
}


@pytest.mark.parametrize("name", COPIED)
def test_copy_of_a_number(name):
    check(COPIED[name], torch.ones(2))


def test_copy_of_numbers_that_change(backend):
    """A size that became a symbol, a float that became an input."""
    def program(x, n):
        return x.copy_(n) * 2, x

    compiled = framejit.compile(program, backend=backend)
    for n in 2, 3, 4, 0.5, 1.5, 2.5, True:
        same(compiled(torch.ones(3), n), program(torch.ones(3), n))


def test_gradients_of_a_copied_number():
    def program(x):
        y = x * 3
        y[:1].copy_(5)
        return y * y

    check(program, torch.ones(3, requires_grad=True), grad=True)


REFUSED = {
    "fill_": lambda x: x.fill_(torch.ones(2)),
    "fill_of_one": lambda x: x.fill_(torch.ones(1)),
    "fill": lambda x: torch.fill(x, torch.ones(2)),
    "requires_none": lambda x: (x + 1).requires_grad_(None),
    "requires_zero": lambda x: (x + 1).requires_grad_(0),
    "requires_text": lambda x: (x + 1).requires_grad_("yes"),
}


@pytest.mark.breaks(exception_raised=1)
@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name, backend):
    compiled = framejit.compile(REFUSED[name], backend=backend)
    x, y = torch.ones(2), torch.ones(2)
    want = raised(REFUSED[name], x)
    assert want[0] in ("RuntimeError", "TypeError")
    for _ in range(2):
        assert raised(compiled, y) == want
        same(y, x)


def test_what_eager_takes():
    check(lambda x: x.fill_(torch.tensor(3)) + torch.fill(x, torch.tensor(2.5)), torch.ones(2))


class Whole(int):
    def __add__(self, other):
        return 100


FOUR = Whole(4)


def first_two(*args):
    counted = itertools.count(*args)
    return [(type(n), n) for n in (next(counted), next(counted))]


EXACT = {
    "count": lambda: [first_two(n) for n in (True, Whole(4), 5)],
    "count_by_one": lambda: [first_two(True, True), first_two(Whole(4), 1)],
    "count_by_two": lambda: [first_two(True, 2), first_two(FOUR, 2)],
    "count_by_a_float": lambda: first_two(True, 1.0),
    "maxlen": lambda: [(type(n), n) for n in (collections.deque(maxlen=m).maxlen for m in (True, Whole(4), 5))],
    "maxlen_of_no_int": lambda: raised(lambda: collections.deque([1], 2.0)),
    "sizes": lambda: [type(n) for n in torch.Size([True, Whole(4), 5])],
}


@pytest.mark.parametrize("name", EXACT)
def test_the_class_of_a_number_that_is_taken(name):
    check(lambda x: (x + 1, EXACT[name]()), torch.ones(2))
