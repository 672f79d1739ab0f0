"""One program, plain and compiled: whether its results are eager's, and what framejit reports about it.

The table is made from records: the verdict, graphs, breaks by reason, recompiles in five calls, seconds, and how
calls with larger batches went.

Inference runs under no_grad. In the mode "training", a module is in training mode, and a call is a forward, a backward
from all outputs, and what both leave: outputs, gradients, and the buffers of the module.
"""
import copy
import functools
import re
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable

import torch
from torch.utils._pytree import tree_leaves, tree_map

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

CALLS = 5
NOISE = 4  # the bound contains eager's own error, which may be small by chance for results of few elements
TRAINING = "training"
MODES = ("compile", "FRAMEJIT=1", TRAINING)
LARGER = (2, 3)  # times the batch
SLOW = 1.5  # seconds of a plain call: calls with three times the batch, and in float64, must finish in time too


class PassedOver(Exception):
    """Why a program is skipped: it cannot be made small, or eager refuses it."""


@dataclass
class Program:
    fn: Callable[..., Any]  # a module, or a function
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)

    def compiled(self):
        import framejit
        return self.fn.compiled() if isinstance(self.fn, Step) else framejit.compile(self.fn)


class Step:
    """Forward and backward of a module: what it returns, its gradients (None where it gets none), and its buffers, each
    time from the buffers of the first call."""

    def __init__(self, module):
        self.module = self.run = module
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.buffers = dict(module.named_buffers())
        self.before = copy.deepcopy(self.buffers)

    def __call__(self, *args, **kwargs):
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                if name in self.before:
                    buffer.copy_(self.before[name])
        for p in self.parameters.values():
            p.grad = None
        with torch.enable_grad():
            returned = self.run(*args, **kwargs)
            outputs = [t for t in tree_leaves(returned) if isinstance(t, torch.Tensor) and t.requires_grad]
            if not outputs:
                raise PassedOver("no output has a gradient")
            torch.autograd.backward(outputs, [cotangent(t) for t in outputs])
        return {"outputs": [t.detach() for t in tree_leaves(returned) if isinstance(t, torch.Tensor)],
                "gradients": {name: p.grad if p.grad is None else p.grad.clone(memory_format=torch.contiguous_format)
                              for name, p in self.parameters.items()},
                "buffers": copy.deepcopy(dict(self.module.named_buffers()))}

    def compiled(self):
        import framejit
        made = copy.copy(self)
        made.run = framejit.compile(self.module)
        return made


def cotangent(t):
    """The same numbers for each output of this size: neither all equal nor all of one sign."""
    count = torch.arange(t.numel(), device=t.device, dtype=torch.float64)
    return torch.sin(count * 0.7 + 0.3).view(t.shape).to(t.dtype)


def training(program):
    """The program's module as a step of training."""
    if not isinstance(program.fn, torch.nn.Module):
        raise PassedOver("no module")
    module = program.fn.train().requires_grad_()
    if not any(True for _ in module.parameters()):
        raise PassedOver("no parameters")
    return replace(program, fn=Step(module))


def larger(program, times):
    """The program with each row of its batch repeated `times` times; None if it has no batch."""
    tensors = [t for t in tree_leaves((program.args, program.kwargs)) if isinstance(t, torch.Tensor) and t.dim()]
    if not tensors:
        return None
    rows = tensors[0].shape[0]

    def repeated(t):
        is_batch = isinstance(t, torch.Tensor) and t.dim() and t.shape[0] == rows
        return t.repeat_interleave(times, 0) if is_batch else t
    args, kwargs = tree_map(repeated, (program.args, program.kwargs))
    return replace(program, args=args, kwargs=kwargs)


def outcome(fn, program):
    """('returned', value, arguments afterwards) or ('raised', error, None); from the same random state each time."""
    from check import deep_copy
    args, kwargs = deep_copy([list(program.args), program.kwargs])
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            return "returned", fn(*args, **kwargs), [args, kwargs]
    except PassedOver:
        raise
    except Exception as e:  # a verdict, not hidden
        return "raised", e, None


def first_line(error):
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:200] if said else ''}"


def measures(value):
    """Floats as tensors: what a program has read from tensors is as exact as they are."""
    return tree_map(lambda v: torch.tensor(v) if isinstance(v, float) else v, value)


def difference(got, want, exact):
    """The difference, in one line; or None."""
    if got[0] == "raised":
        return f"raises {first_line(got[1])}"
    from check import part
    if not compared(got, want, exact):
        return None
    return compared(measures(got), measures(want), part(exact, measures))


def compared(got, want, exact):
    from check import part, same
    try:
        same(got[1], want[1], part(exact, lambda v: v[0]), luck="norms")
        same(got[2], want[2], part(exact, lambda v: [v[1], v[2]]), "arguments", luck="norms")
    except AssertionError as e:
        numbers = re.search(r"off by (\S+), allowed (\S+)", str(e))
        return None if numbers and float(numbers[1]) < NOISE * float(numbers[2]) else str(e).splitlines()[0][:200]
    except RecursionError:
        pass  # a structure that contains itself
    return None


def eager(program):
    """What plain Python returns. Skips a program that raises, is slow, or has a different result each time."""
    begin = time.process_time()  # not the clock: it also runs for other processes
    want = outcome(program.fn, program)
    if want[0] == "raised":
        raise PassedOver(f"eager raises {first_line(want[1])}")
    if (seconds := time.process_time() - begin) > SLOW:
        raise PassedOver(f"eager takes {seconds:.0f} s")
    if difference(outcome(program.fn, program), want, None):
        raise PassedOver("eager's second answer is another")
    return want


def eager_of_larger(program):
    """(program, plain Python's result) for each larger batch that it takes."""
    found = []
    for times in LARGER:
        other = larger(program, times)
        try:
            found += [(other, eager(other))] if other else []
        except PassedOver:  # its sizes depend on each other
            pass
    return found


def measured(program, want, mode, others=()):
    """The record of a mode, in a separate process."""
    import framejit
    from wide import in_float64
    torch.set_num_threads(1)
    fn = program.fn
    if mode == "FRAMEJIT=1":
        framejit._framejit.enable_global()
    else:
        fn = program.compiled()
    begin = time.perf_counter()
    got = [outcome(fn, program) for _ in range(CALLS)]
    seconds = time.perf_counter() - begin
    stats = framejit.stats()

    def exactly(program):
        @functools.cache
        def exact(noise=None):
            with torch.no_grad():
                return in_float64(framejit.disable(program.fn), program.args, program.kwargs, 0, noise)
        return exact
    exact = exactly(program)
    wrong = next(filter(None, (difference(g, want, exact) for g in got)), None)
    whole = stats["graphs"] == 1 and not stats["graph_breaks"] and not stats["fallbacks"]
    if mode == TRAINING:
        whole = whole and stats["backward_runs"] >= CALLS
    for other, answer in others:
        wrong = wrong or difference(outcome(fn, other), answer, exactly(other))
    more = framejit.stats()["graphs"] - stats["graphs"]
    return {"resized": len(others), "more_graphs": more,
            "verdict": "wrong" if wrong else "right", "detail": wrong or "", "whole": whole,
            "seconds": round(seconds, 2),
            **{name: stats[name] for name in ("graphs", "graph_breaks", "recompiles", "break_reasons",
                                              "fallback_reasons")}}
