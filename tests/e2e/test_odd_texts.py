"""Texts that C strings or UTF-8 cannot hold, NULs and lone surrogates, as names, keywords and texts of the program."""
import functools
import operator
import os
import types

import pytest
import torch

import framejit
import programs
from check import fresh, same  # noqa: F401

TEXTS = {"nul": "a\0b", "nul alone": "\0", "surrogate": "\ud800z"}


class Shown:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def takes_nothing():
    pass


def takes(**keywords):
    return keywords


def error_of(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def merged(key):
    return takes(**{key: 1}, **{key: 2})


def renamed(text):
    def f():
        pass
    f.__qualname__ = text
    return f


def set_by_setattr(t):
    a = Shown(t)
    setattr(a, t, 3)
    return vars(a), getattr(a, t)


def set_in_the_dict(t):
    a = Shown(t)
    a.__dict__[t] = 5
    return vars(a), getattr(a, t)


PROGRAMS = {
    "repr in a list": lambda t: repr([Shown(t)]),
    "str of a dict": lambda t: str({1: Shown(t)}),
    "an f-string": lambda t: f"{Shown(t)}|{Shown(t)!r}|{[Shown(t)]}",
    "format": lambda t: "{} {}".format(Shown(t), [Shown(t)]),
    "percent": lambda t: "%s %r" % (Shown(t), [Shown(t)]),
    "percent with the text in the format": lambda t: (t + "%s%%") % [Shown(t)],
    "percent with names": lambda t: ("%(" + t + ")s") % {t: [1]},
    "an exception": lambda t: repr(ValueError(Shown(t))),
    "a missing attribute": lambda t: error_of(lambda: getattr(Shown(t), t)),
    "a missing attribute that begins with a known one": lambda t: error_of(lambda: getattr(takes, "__name__" + t)),
    "a wrong keyword": lambda t: error_of(lambda: takes_nothing(**{t: 1})),
    "a repeated keyword": lambda t: error_of(lambda: merged(t)),
    "an unpacked number": lambda t: error_of(lambda: renamed(t)(*5)),
    "setattr": set_by_setattr,
    "an item of __dict__": set_in_the_dict,
    "a name space": lambda t: types.SimpleNamespace(**{t: 1}),
    "a partial": lambda t: functools.partial(takes, **{t: 1})(**{t: 2}),
    "attrgetter": lambda t: operator.attrgetter(t)(types.SimpleNamespace(**{t: 1})),
    "a keyword of min": lambda t: error_of(lambda: min([1, 2], **{t: 1})),
    "an unknown keyword of max": lambda t: error_of(lambda: max([1, 2], **{"kez" + t[:0]: 1})),
}


@pytest.mark.parametrize("of", TEXTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_gets_its_own_texts(name, of):
    def f(x, text):
        return PROGRAMS[name](text), x + 1
    compiled = framejit.compile(f)
    for _ in range(2):
        same(compiled(torch.ones(2), TEXTS[of]), f(torch.ones(2), TEXTS[of]))
    stats = framejit.stats()
    assert not stats["fallbacks"] and stats["graphs"] and stats["graph_breaks"] in range(4), stats


def generator(x):
    yield x + 1
    yield x + 2


def loop(x, n):
    for i in range(n):
        x = x + i
        print(end="")
    return x


def recursive(n, x):
    return x + 1 if n == 0 else recursive(n - 1, x)


def keeps_a_generator(x):
    g = named_generator(x)
    return next(g), next(g)


ODD = "a\ud800"
named_generator = types.FunctionType(generator.__code__.replace(co_qualname=ODD), globals())
# name: function, arguments
CODE = {
    "qualified name": (types.FunctionType(takes_nothing.__code__.replace(co_qualname=ODD), globals()), ()),
    "file": (types.FunctionType(loop.__code__.replace(co_filename=ODD + "/x.py"), globals()), (torch.ones(2), 3)),
    "local": (types.FunctionType(loop.__code__.replace(co_varnames=("x", "n", ODD)), globals()), (torch.ones(2), 3)),
    "generator": (keeps_a_generator, (torch.ones(2),)),
    "generator frame": (lambda x: list(named_generator(x)), (torch.ones(2),)),
}


@pytest.mark.breaks(outside_effect=range(20), generator_frame=range(3), real_iterator=range(5))
@pytest.mark.nothing_captured("some of these functions do no tensor work")
@pytest.mark.parametrize("name", CODE)
def test_names_of_code(name):
    f, arguments = CODE[name]
    compiled = framejit.compile(f)
    for _ in range(2):
        same(compiled(*arguments), f(*arguments))
    assert not framejit.stats()["fallbacks"]


LOGGED = """
import sys, types, torch, framejit
sys.setrecursionlimit(5000)
import test_odd_texts as t
recursive = types.FunctionType(t.recursive.__code__.replace(co_qualname=t.ODD), {**vars(t)})
recursive.__globals__["recursive"] = recursive
with torch.no_grad():
    assert torch.equal(framejit.compile(recursive)(900, torch.ones(2)), torch.full((2,), 2.0))
    for f, arguments in t.CODE.values():
        framejit.compile(f)(*arguments)
print(framejit.stats()["fallbacks"], framejit.stats()["break_reasons"]["recursion_limit"] > 0)
"""


@pytest.mark.nothing_captured("a process of its own captures")
def test_names_of_code_in_logs():
    here = os.path.dirname(__file__)
    done = programs.run(LOGGED, env={**os.environ, "FRAMEJIT_LOGS": "all", "PYTHONPATH": here})
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr[-3000:]
    assert " bytecode of ?" in done.stderr and "internal_error" not in done.stderr
