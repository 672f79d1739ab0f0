"""Random arithmetic on ints, floats and sizes that differ between calls: compiled code compared with plain Python, call
by call.

    python tests/fuzz/numbers_fuzz.py [--seed 0] [--count 200] [--backend eager]

A program is an expression tree over i (int), g (float) and n (a size of the tensor), with tests between its parts. It
is called with a dozen values, among them zeros, negative, huge and infinite numbers, and NaN. Results, their types and
exceptions must be plain Python's.
"""
import math
import random
import sys

import torch

import framejit
import command
import rounds

INTS = [0, 1, 2, 3, 5, 8, 13, -1, -7, 100, 2 ** 31, 2 ** 62, -(2 ** 63), 2 ** 70, True]
FLOATS = [0.0, -0.0, 1.0, 0.5, 1.5, 2.5, 3.75, -2.25, 1e-3, 1e10, 1e300, math.inf, -math.inf, math.nan, 7]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", ">", "&", "|", "^", "<<", ">>"]
FUNCTIONS = ["abs", "float", "int", "round", "bool", "math.sqrt", "math.cos", "math.exp", "math.log", "math.floor",
             "math.ceil", "math.isfinite", "str", "-", "not "]
PAIRS = ["min", "max", "math.atan2", "math.hypot", "math.copysign", "divmod", "round"]


def expression(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(["i", "g", "n", "i", "g", "n", str(rng.randint(0, 4)),
                           repr(rng.choice([0.5, 2.0, 0.1, -1.5]))])
    def part():
        return expression(rng, depth - 1)
    kind = rng.random()
    if kind < 0.5:
        op = rng.choice(BINARY)
        right = str(rng.randint(0, 3)) if op in ("**", "<<") else part()  # no numbers of a million digits
        return f"({part()} {op} {right})"
    if kind < 0.7:
        return f"({rng.choice(FUNCTIONS)}({part()}))"
    if kind < 0.82:
        function, bound = rng.choice(PAIRS), ""
        if function == "round":
            bound = " % 9"  # nor powers of ten to round to
        return f"{function}({part()}, {part()}{bound})"
    if kind < 0.92:
        return f"({part()} if {part()} else {part()})"
    return f"format({part()}, {rng.choice(['', '.3f', 'g', 'd'])!r})"


def program(rng):
    lines = [f"    a = {expression(rng, 3)}", f"    b = {expression(rng, 2)}"]
    if rng.random() < 0.3:
        lines.append(f"    if {expression(rng, 2)}:\n        a, x = b, x + 1")
    if rng.random() < 0.3:
        lines.append("    b = (f'{a}: {b:>8} {i!r}', str(g), b)[" + rng.choice("02") + "]")
    if rng.random() < 0.3:
        lines.append("    if type(b) in (int, float):\n        x = x * b")
    return "def f(x, i, g):\n    n = x.shape[0]\n" + "\n".join(lines) + "\n    return a, b, x * 2\n"


def outcome(f, args):
    try:
        a, b, x = f(*args)
        return repr((a, b, type(a), type(b))), x
    except Exception as e:
        return f"{type(e).__name__}: {e}", None


def alike(ours, plain):
    if ours[0] != plain[0] or (ours[1] is None) != (plain[1] is None):
        return False
    return plain[1] is None or (ours[1].shape == plain[1].shape and ours[1].dtype == plain[1].dtype
                                and torch.equal(ours[1].nan_to_num(nan=7), plain[1].nan_to_num(nan=7)))


def check(seed, backend):
    """The difference in the program of this seed, or None; and how many of its calls were hits."""
    rng = random.Random(seed)
    source = program(rng)
    scope = {"math": math}
    exec(compile(source, f"<numbers {seed}>", "exec"), scope)
    framejit.reset()
    f = scope["f"]
    compiled = framejit.compile(f, backend=backend)
    usual = rng.random() < 0.6
    for k in range(12):
        args = (torch.rand(rng.randint(1, 6)), k + 2 if usual else rng.choice(INTS), k / 4 + 0.3 if usual
                else rng.choice(FLOATS))
        ours, plain = outcome(compiled, args), outcome(f, args)
        if not alike(ours, plain):
            return (f"call {k}, i={args[1]!r}, g={args[2]!r}, n={args[0].shape[0]}: {ours} instead of {plain}\n"
                    f"{source}"), 0
    return None, framejit.stats()["hits"] + framejit.stats()["plain_hits"]


def run(seed, count, backend):
    return rounds.run(seed, count, lambda seed: check(seed, backend), "hits", backend)


def main():
    options = command.parser("eager").parse_args()
    return 1 if run(options.seed, options.count, options.backend)[0] else 0


if __name__ == "__main__":
    sys.exit(main())
