"""One program, plain and compiled: whether its results are eager's, and what framejit says of it.

A record is what the table is made of: the verdict, graphs, breaks by reason, recompiles in five calls, seconds.
"""
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import torch

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

CALLS = 5
NOISE = 4  # the bound has eager's own error in it, which on results of few elements may be small by chance
MODES = ("compile", "FRAMEJIT=1")


class PassedOver(Exception):
    """Why nothing can be said about a program: it cannot be made small, or eager refuses it."""


@dataclass
class Program:
    fn: Callable[..., Any]  # a module, or a function
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)


def outcome(fn, program):
    """('returned', value, arguments afterwards) or ('raised', error, None); from the same random state each time."""
    from check import deep_copy
    args, kwargs = deep_copy([list(program.args), program.kwargs])
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            return "returned", fn(*args, **kwargs), [args, kwargs]
    except Exception as e:  # a verdict, not hidden
        return "raised", e, None


def first_line(error):
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:200] if said else ''}"


def difference(got, want, exact):
    """What differs, in a line; or None."""
    from check import part, same
    if got[0] == "raised":
        return f"raises {first_line(got[1])}"
    try:
        same(got[1], want[1], part(exact, lambda v: v[0]))
        same(got[2], want[2], part(exact, lambda v: [v[1], v[2]]), "arguments")
    except AssertionError as e:
        numbers = re.search(r"off by (\S+), allowed (\S+)", str(e))
        return None if numbers and float(numbers[1]) < NOISE * float(numbers[2]) else str(e).splitlines()[0][:200]
    except RecursionError:
        pass  # a structure that contains itself
    return None


def eager(program):
    """What plain Python answers; programs that answer differently each time show nothing."""
    want = outcome(program.fn, program)
    if want[0] == "raised":
        raise PassedOver(f"eager raises {first_line(want[1])}")
    if difference(outcome(program.fn, program), want, None):
        raise PassedOver("eager's second answer is another")
    return want


def measured(program, want, mode):
    """The record of a mode, in a process of its own."""
    import framejit
    from wide import in_float64
    torch.set_num_threads(1)
    fn = program.fn
    if mode == "compile":
        fn = framejit.compile(fn)
    else:
        framejit._framejit.enable_global()
    begin = time.perf_counter()
    got = [outcome(fn, program) for _ in range(CALLS)]
    seconds = time.perf_counter() - begin
    stats = framejit.stats()

    def exact():
        torch.manual_seed(0)
        with torch.no_grad():
            return in_float64(framejit.disable(program.fn), program.args, program.kwargs)
    wrong = next(filter(None, (difference(g, want, exact) for g in got)), None)
    whole = stats["graphs"] == 1 and not stats["graph_breaks"] and not stats["fallbacks"]
    return {"verdict": "wrong" if wrong else "right", "detail": wrong or "", "whole": whole, "seconds": round(seconds, 2),
            **{name: stats[name] for name in ("graphs", "graph_breaks", "recompiles", "break_reasons", "fallback_reasons")}}
