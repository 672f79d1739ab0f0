"""What a graph break costs on a hit, for each level of inlined calls; and how often 32 instances of one block class are
compiled.

    python benchmarks/breaks.py [--no-torch-compile] [--rounds 30]

The call at the break is a function that is kept out of compiled code and does nothing. `with` is the function with
that call, at the given depth; `without` is the same function without it. The difference includes the cost of the
Python call itself.
"""
import argparse

import torch

import framejit
from pairs import assert_hits, measure, median
from rows import show

DEPTHS = (0, 1, 2, 4)


def nested(depth, broken_out):
    """x + 1, then `depth` calls down to `broken_out()`, then x * 2 on the way back at the innermost level."""
    if depth == 0:
        def innermost(x):
            x = x + 1
            broken_out()
            return x * 2
        return innermost
    inner = nested(depth - 1, broken_out)

    def outer(x):
        return inner(x)
    return outer


def whole(depth):
    if depth == 0:
        def innermost(x):
            x = x + 1
            return x * 2
        return innermost
    inner = whole(depth - 1)

    def outer(x):
        return inner(x)
    return outer


def nothing():
    return None


def compilers(options):
    yield "framejit", framejit.compile, framejit.disable(nothing)
    if not options.no_torch_compile:
        yield "torch.compile", torch.compile, torch.compiler.disable(nothing)


def breaks(options):
    x = torch.randn(8)
    for name, compile_function, broken_out in compilers(options):
        costs = []
        for depth in DEPTHS:
            with_break, without = compile_function(nested(depth, broken_out)), compile_function(whole(depth))
            candidates = {"with": lambda: with_break(x), "without": lambda: without(x),
                          "eager": lambda f=nested(depth, nothing): f(x)}
            for call in candidates.values():
                call(), call(), call()
            if name == "framejit":
                assert_hits(candidates["with"], hits=2, breaks=1)
                assert_hits(candidates["without"], hits=1, breaks=0)
            kept, dropped = measure(candidates, rounds=options.rounds)
            costs.append(median([a - b for a, b in zip(kept["with"], kept["without"])]) * 1e6)
            show(name, f"break {depth} levels down", **{f"{key} us": median(v) * 1e6 for key, v in kept.items()},
                 **{"the break us": costs[-1]}, dropped=dropped)
        show(name, "each level", **{"the break us": (costs[-1] - costs[0]) / (DEPTHS[-1] - DEPTHS[0])})


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


def instances(options):
    x, blocks = torch.randn(2, 8), [Block().eval() for _ in range(32)]
    framejit.reset()
    for block in blocks:
        framejit.compile(block)(x)
    totals = framejit.stats()
    show("framejit", "32 instances of a block class", compiled=totals["graphs"], hits=totals["hits"],
         recompiles=totals["recompiles"])
    if not options.no_torch_compile:
        compiled = []

        def counting(graph, examples):
            compiled.append(graph)
            return graph
        for block in blocks:
            torch.compile(block, backend=counting)(x)
        show("torch.compile", "32 instances of a block class", compiled=len(compiled))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-torch-compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        instances(options)
        breaks(options)


if __name__ == "__main__":
    main()
