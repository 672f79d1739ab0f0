"""What a call costs on a hit: one op, ten ops, many parameters, many ints. Eager, framejit and torch.compile in turn.

    python benchmarks/calls.py [--no-torch-compile]
"""
import argparse

import torch

import framejit
from pairs import assert_hits, measure, median, ratio
from rows import show


class ManyParameters(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.items = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(2), requires_grad=False) for _ in range(n)])

    def forward(self, x):
        for p in self.items:
            x = x + p
        return x


def one_op(x):
    return x + 1


def ten_ops(x):
    for _ in range(5):
        x = torch.sin(x) * 2
    return x


class ManyInts:
    def __init__(self, n):
        self.values = list(range(n))

    def __call__(self, x):
        return x + sum(self.values)


def cases():
    x = torch.randn(8)
    yield "one op", one_op, x
    yield "ten ops", ten_ops, x
    yield "100 parameters", ManyParameters(100), torch.randn(2)
    yield "1000 ints", ManyInts(1000), x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-torch-compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        for name, fn, x in cases():
            ours = framejit.compile(fn) if not isinstance(fn, ManyInts) else framejit.compile(lambda x, f=fn: f(x))
            candidates = {"eager": lambda: fn(x), "framejit": lambda: ours(x)}
            if not options.no_torch_compile:
                theirs = torch.compile(fn if isinstance(fn, torch.nn.Module) or not isinstance(fn, ManyInts)
                                       else (lambda x, f=fn: f(x)))
                candidates["torch.compile"] = lambda: theirs(x)
            for call in candidates.values():
                call(), call(), call()
            ours(x)  # torch.compile has written to the module's class meanwhile
            assert_hits(lambda: ours(x), hits=1, breaks=0)
            kept, dropped = measure(candidates)
            show(name, **{f"{k} us": median(v) * 1e6 for k, v in kept.items()},
                 **{f"over {k}": ratio(v, kept["framejit"]) for k, v in kept.items() if k != "framejit"},
                 dropped=dropped)


if __name__ == "__main__":
    main()
