"""Context variables that a function sets and resets around a graph break: what code outside sees of them, and tokens
that outlive their trace."""
import contextlib
import contextvars

import pytest
import torch

import framejit
from check import fresh  # noqa: F401

level = contextvars.ContextVar("level", default=0)
other = contextvars.ContextVar("other", default="none")
seen = []


@contextlib.contextmanager
def at(variable, value):
    token = variable.set(value)
    try:
        yield token
    finally:
        variable.reset(token)


def tell():
    seen.append((level.get(), other.get()))
    print(end="")  # breaks


def one(x):
    token = level.set(3)
    x = x * 2
    tell()
    x = x + level.get()
    level.reset(token)
    return x * 3, level.get()


def nested(x):
    with at(level, 1), at(other, "a"):
        with at(level, 2):
            tell()
            x = x * level.get()
        tell()
        x = x + level.get()
    tell()
    return x * 2


def used(x):
    token = level.set(5)
    x = x * level.get()
    level.reset(token)
    tell()
    try:
        level.reset(token)
    except RuntimeError as e:
        return x + 1, "once" in str(e)


def set_again(x):
    first = level.set(1)
    second = level.set(2)
    x = x + 1
    tell()
    level.reset(second)
    tell()
    old = first.old_value is contextvars.Token.MISSING, second.old_value
    level.reset(first)
    return x * 2, old


def given_back(x):
    return x + 1, other.set("left")


def raised(x):
    with at(level, 4):
        x = x * 2
        tell()
        raise LookupError(level.get())


@pytest.mark.parametrize("fn, breaks", [(one, 2), (nested, 12), (used, 2), (set_again, 6), (raised, 7)],
                         ids=lambda v: getattr(v, "__name__", None))
def test_around_a_break(fn, breaks):
    def run(call):
        seen.clear()
        with torch.no_grad():
            try:
                result = call(torch.arange(3.0))
            except LookupError as e:
                result = e.args
        return repr(result), list(seen), level.get(), other.get()
    compiled = framejit.compile(fn)
    want = run(fn)
    for _ in range(3):
        assert run(compiled) == want
    stats = framejit.stats()
    assert stats["graph_breaks"] == breaks, stats["break_reasons"]
    # The text of used()'s error has the address of a token, which may be another in the next call.
    assert stats["graphs"] in {set_again: (2,), raised: (1,), used: (3, 4)}.get(fn, (3,))


def test_a_token_that_is_returned():
    with torch.no_grad():
        result, token = framejit.compile(given_back)(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 2.0)) and other.get() == "left" and token.var is other
    other.reset(token)
    assert other.get() == "none"
