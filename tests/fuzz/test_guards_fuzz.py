"""The short, seeded run of the fuzzer of guards; and compiled code that lacks one guard is found."""
import contextlib
import io

import pytest
import torch

import framejit
import guards_changes
import guards_fuzz
import guards_tables


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend, seeds", [("eager", range(60)), ("framejit", range(60, 80))])
def test_programs(backend, seeds):
    failures, captured = guards_fuzz.fuzz(seeds.start, len(seeds), backend)
    assert not failures, "\n".join(failures)
    assert captured >= 0.7


def has_the_class(a, b):
    return type(a) is type(b)


def equals(a, b):
    return not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor) and a == b and b == a


def is_alike(*parts):
    """Tensors that agree in these parts, and in nothing else."""
    return lambda a, b: (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
                         and all(part(a) == part(b) for part in parts))


DTYPE, SHAPE, CLASS = lambda t: t.dtype, lambda t: t.shape, type
# What a guard still compares -> the program that shows what it does not.
PLANTS = {
    "its value is not compared": (has_the_class, "r = s"),
    "its class is not compared": (lambda a, b: not isinstance(a, torch.nn.Module) and equals(a, b), "r = type(s)"),
    "its length is not compared": (lambda a, b: isinstance(a, list) and has_the_class(a, b), "r = len(s)"),
    "an exact class is not compared": (lambda a, b: isinstance(a, type(b)) and equals(a, b), "r = f'{s}'"),
    "its dtype is not compared": (is_alike(SHAPE, CLASS), "r = x + s"),
    "its shape is not compared": (is_alike(DTYPE, CLASS), "r = x + s"),
    "its class of tensor is not compared": (is_alike(DTYPE, SHAPE), "r = isinstance(s, nn.Parameter)"),
    "requires_grad is not compared": (is_alike(DTYPE, SHAPE, CLASS), "r = s.requires_grad"),
    "which function it is is not compared": (lambda a, b: callable(a) and has_the_class(a, b), "r = s(1)"),
}


def without_a_guard(still_compared):
    """Stands in for compiled code: a value that the remaining guards take for an earlier one gives the same result."""
    def compiled(f, **settings):
        seen = []

        def call(x, t, s):
            for earlier in seen:
                with contextlib.suppress(Exception):
                    if still_compared(s, earlier):
                        return f(x, t, earlier)
            seen.append(s)
            return f(x, t, s)
        return call
    return compiled


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("plant", PLANTS)
def test_a_guard_that_is_left_out_is_found(plant, monkeypatch):
    still_compared, body = PLANTS[plant]

    def make(seed):
        return guards_fuzz.Program(seed, place="an argument", body=body)
    with contextlib.redirect_stdout(io.StringIO()):
        assert guards_fuzz.fuzz(0, 3, "eager", make)[0] == []
        monkeypatch.setattr(framejit, "compile", without_a_guard(still_compared))
        assert guards_fuzz.fuzz(0, 60, "eager", make)[0]


STALE = ["o.a", "o.m()", "o.kept", "len(o)", "bool(o)", "callable(o)", "isinstance(o, Another)", "Made.b", "called(0)",
         "part()", "read_cell()", "HELD", "type(HELD)", "space.b", "d", "net(x)", "net.training", "sequence(x)",
         "len('ab')"]


def keeps_its_first_result(f, **settings):
    """Stands in for compiled code without any guard."""
    kept = []

    def call(x, *args):
        if not kept:
            kept.append(f(x, *args)[0])
        return kept[0], x + 1
    return call


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", STALE)
def test_a_change_that_is_not_seen_is_found(read, monkeypatch):
    def make(seed):
        return guards_changes.Program(seed, reads=[read])
    monkeypatch.setattr(framejit, "compile", keeps_its_first_result)
    with contextlib.redirect_stdout(io.StringIO()):
        assert guards_fuzz.fuzz(0, 10, "eager", make)[0]


def test_each_change_is_one():
    """Most changes are possible at once; the others need that something was added before."""
    def fails(row):
        scope = guards_changes.Program(0, reads=["HELD"]).world(0, lambda f: f).scope
        try:
            exec(row, scope)
        except Exception as e:
            return f"{row}: {type(e).__name__} {e}"
    needs_another = ("del ", "space.__class__")
    assert not [why for row in guards_changes.CHANGES if not row.startswith(needs_another) and (why := fails(row))]


def test_each_place_is_read():
    """A value that is put into a place is what the program reads there."""
    for place in guards_tables.PLACES:
        program = guards_fuzz.Program(0, place=place, body="r = s")
        world = program.world(0, lambda f: f)
        for value in range(len(guards_fuzz.VALUES)):
            result, (is_s, *_), *_ = world.outcome(value, 0)
            assert is_s and result == guards_fuzz.shown(world.scope["v"]), (place, guards_fuzz.VALUES[value])
