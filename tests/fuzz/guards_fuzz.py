"""Differential fuzzer of guards: a program is compiled with one value and called with others, which may be of another
class, an equal one, a subclass, another length, another dtype. Compiled code whose guards miss a difference returns
what was right for an earlier value.

    python tests/fuzz/guards_fuzz.py [--seed N] [--count N] [--backend NAME]

Most programs are one expression or statement over two values (guards_tables.py). One of them is read from a place: an
argument, a global, a cell, an attribute, a default, ... The others read the same objects in each call, and statements
between the calls change them (guards_changes.py). Results, errors, identities and what was written must be plain
Python's, call by call. A failure prints the seed and the fewest calls that show it.
"""
import collections
import io
import random
import re
import sys
import textwrap
import types

import numpy as np
import torch

import framejit
import command
import guards_changes
import guards_tables
import rounds
from guards_tables import PLACES, WORLD

VALUES = guards_tables.split(guards_tables.VALUES)
MAKERS = [compile(text, text, "eval") for text in VALUES]
BODIES = {"one": [f"r = {text}" for text in guards_tables.split(guards_tables.ONE)],
          "two": [f"r = {text}" for text in guards_tables.split(guards_tables.TWO)],
          "statement": guards_tables.statements()}
CALLS = 24
WORLD_CODE = compile(WORLD, "<world>", "exec")


class Program:
    """Values are numbers of VALUES. Most programs get new objects in each call, some the same ones again."""

    def __init__(self, seed, place=None, body=None):
        self.rng = rng = random.Random(seed)
        self.body = body or rng.choice(BODIES[rng.choice(["one", "one", "two", "statement"])])
        self.place = place or rng.choice(["an argument", *PLACES])
        self.keeps_objects = rng.random() < 0.3
        self.grad = rng.random() < 0.4
        self.dynamic = rng.choice([None, None, None, True, False])
        self.calls = self.make_calls()

    def make_calls(self):
        """Most values are neighbours in the table, which are alike; some come again, and meet compiled code."""
        rng, count = self.rng, len(VALUES)
        middle, seconds = rng.randrange(count), [rng.randrange(count)] * 4 + [rng.randrange(count) for _ in range(2)]
        near = [n for n in range(middle - 6, middle + 7) if 0 <= n < count]
        firsts = [rng.choice(near) if rng.random() < 0.7 else rng.randrange(count) for _ in range(CALLS)]
        return [(first, rng.choice(seconds)) for first in firsts]

    def source(self):
        head, _, _ = PLACES[self.place]
        text = f"{head}\n{textwrap.indent(self.body, '    ')}\n    return r, x + 1\n"
        if self.place == "a cell":
            text = (f"def make(cell):\n    def put(v):\n        nonlocal cell\n        cell = v\n"
                    f"{textwrap.indent(text, '    ')}    return f, put\nf, cell_put = make(None)\n")
        return text

    def world(self, seed, change):
        return World(self, seed, change)

    def shown(self):
        values = "".join(f"  s = {VALUES[first]}, t = {VALUES[second]}\n" for first, second in self.calls)
        return f"{self.source()}{self.place}; {'the same' if self.keeps_objects else 'new'} objects in each call, " \
               f"{'with' if self.grad else 'without'} gradients, dynamic={self.dynamic}\n{values}"


class World:
    """The program on one side of the comparison."""

    def __init__(self, program, seed, change):
        self.program, self.kept, self.scope = program, {}, {"__name__": "world"}
        exec(WORLD_CODE, self.scope)
        exec(compile(program.source(), f"<guards {seed}>", "exec"), self.scope)
        _, put, arguments = PLACES[program.place]
        self.put = compile(put, "<put>", "exec")
        self.scope["called"] = change(self.scope["f"])
        self.call = compile(f"called({arguments})", "<call>", "eval")

    def value(self, number):
        if number not in self.kept or not self.program.keeps_objects:
            self.kept[number] = eval(MAKERS[number], self.scope)
        return self.kept[number]

    def outcome(self, first, second):
        torch.manual_seed(first)
        s, t, x = self.value(first), self.value(second), torch.tensor([1.0, 2.0])
        self.scope.update(v=s, t=t, x=x)
        exec(self.put, self.scope)
        return outcome_of(lambda: eval(self.call, self.scope), [s, t, x])


def outcome_of(call, values):
    """The result of a call, or its error; which of the values it is, and what they are now."""
    try:
        result, after = call()
        told = shown(result), [result is v for v in values], shown(after)
    except Exception as e:
        told = type(e).__name__, without_addresses(str(e))
    return *told, *map(shown, values)


def without_addresses(text):
    return re.sub("0x[0-9a-f]+", "0x", text)


def shown(v, depth=0):
    """All of a value that a program can see, as nested tuples. No code of the program's classes runs, except repr()."""
    kind, name = type(v), type(v).__name__
    inner = lambda part: shown(part, depth + 1)
    if depth > 4:
        return name
    if issubclass(kind, torch.Tensor):
        return name, str(v.dtype), tuple(v.shape), v.stride(), v.requires_grad, str(v.detach().tolist())
    for base in (list, tuple, collections.deque):
        if issubclass(kind, base):
            return name, *map(inner, base.__iter__(v))
    if issubclass(kind, (set, frozenset)):
        return name, *sorted(str(inner(part)) for part in v)
    if issubclass(kind, (dict, types.MappingProxyType)):
        return name, *((inner(key), inner(part)) for key, part in v.items())
    if issubclass(kind, str):
        return name, without_addresses(str.__str__(v))
    if issubclass(kind, BaseException):
        return name, inner(v.args)
    if issubclass(kind, torch.nn.Module):
        return name, v.training, *((key, inner(part)) for key, part in v.state_dict().items())
    if issubclass(kind, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return name, v.__qualname__
    if issubclass(kind, np.ndarray):
        return name, str(v.dtype), without_addresses(repr(v))
    if hasattr(kind, "__next__") or issubclass(kind, io.IOBase):
        return name
    own = object.__getattribute__(v, "__dict__") if kind.__dictoffset__ else {}
    return name, without_addresses(object.__repr__(v) if "__str__" in vars(kind) else repr(v)), \
        *((key, inner(part)) for key, part in sorted(own.items()))


def run(program, seed, backend):
    """The first difference between compiled and plain, as (number of the call, text), or None."""
    framejit.reset()
    plain = program.world(seed, lambda f: f)
    ours = program.world(seed, lambda f: framejit.compile(f, backend=backend, dynamic=program.dynamic))
    with torch.set_grad_enabled(program.grad):
        for number, values in enumerate(program.calls):
            want, got = plain.outcome(*values), ours.outcome(*values)
            if str(want) != str(got):
                return number, difference(got, want)
    return None


def difference(got, want):
    if len(got) != len(want):
        return f"{got}\n  instead of {want}"
    return "\n  ".join(f"{a}\n    instead of {b}" for a, b in zip(got, want) if str(a) != str(b))


def shrink(program, seed, backend, number):
    """Drops calls as long as the last one fails."""
    program.calls = program.calls[:number + 1]
    for k in reversed(range(number)):
        dropped = program.calls.pop(k)
        found = run(program, seed, backend)
        if found is None or found[0] != len(program.calls) - 1:
            program.calls.insert(k, dropped)
    return run(program, seed, backend)


def program_of(seed):
    return guards_changes.Program(seed) if seed % 3 == 2 else Program(seed)


def fuzz(first, count, backend, make=program_of):
    """The failures as text, and the share of programs with a graph."""
    def one(seed):
        program = make(seed)
        found = run(program, seed, backend)
        has_graph = framejit.stats()["graphs"] > 0
        if not found:
            return None, has_graph
        _, why = shrink(program, seed, backend, found[0]) or found
        return f"\n  {why}\n{program.shown()}", has_graph
    failures, captured = rounds.run(first, count, one, "with a graph", backend)
    return failures, captured / count


def main():
    options = command.parser("eager").parse_args()
    return 1 if fuzz(options.seed, options.count, options.backend)[0] else 0


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    sys.exit(main())
