"""How first calls grow with programs: families of n similar steps, compiled for several n, and the exponent of the
compile time over n.

    python benchmarks/growth.py [NAME ...] [--threads 1] [--sizes 50,100,200,400] [--compiles 3]

The exponent is the slope of log(seconds) over log(n) between the two largest sizes. Each time is the least of three
compiles of separate functions (processor seconds of all threads, so that other programs on the machine disturb less).
The second compile finds the kernels of the first: `--compiles 1` counts those too. Warm calls are compared with eager
at the largest n.
Exits with an error if an exponent is above 1.2 or a warm call takes longer than eager's.
"""
import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import framejit
from rows import show

MOST = 1.2


def chain(n):
    def f(x):
        for _ in range(n):
            x = torch.sin(x) * 1.01 + 0.1
        return x
    return f, (torch.randn(64, 64),)


def chain_of_numbers(n):
    def f(x):
        for i in range(n):
            x = torch.exp(x * (-0.01 * i)) + 0.5
        return x
    return f, (torch.randn(64, 64),)


def cells(n):
    def f(x, of_input, of_state, bias):
        of_x = F.linear(x, of_input, bias)
        h = c = x.new_zeros(8, 20)
        states = []
        for t in range(n):
            i, j, k, o = (of_x[:, t] + F.linear(h, of_state)).chunk(4, 1)
            c = torch.sigmoid(j) * c + torch.sigmoid(i) * torch.tanh(k)
            h = torch.sigmoid(o) * torch.tanh(c)
            states.append(h)
        return torch.stack(states, 1)
    return f, (torch.randn(8, n, 16), torch.randn(80, 16) * 0.3, torch.randn(80, 20) * 0.3, torch.randn(80))


def parameters(n):
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(n)))
    return (lambda x: model(x)), (torch.randn(4, 32),)


def outputs(n):
    return (lambda x: [x * (i + 1.5) for i in range(n)]), (torch.randn(64, 64),)


def inputs(n):
    def f(*xs):
        total = xs[0]
        for x in xs[1:]:
            total = total + x * 0.5
        return total
    return f, tuple(torch.randn(64, 64) for _ in range(n))


def reductions(n):
    def f(x):
        for _ in range(n):
            x = x - x.mean(1, keepdim=True) * 0.5
        return x
    return f, (torch.randn(64, 64),)


def softmaxes(n):
    def f(x):
        for _ in range(n):
            x = torch.softmax(x, 1) + x
        return x
    return f, (torch.randn(64, 64),)


def uses(n):
    def f(x, y):
        z = torch.tanh(x)
        for i in range(n):
            y = y + z * float(i)
        return y
    return f, (torch.randn(64, 64), torch.randn(64, 64))


def doubling(n):
    def f(x, y):
        for _ in range(n):
            x = x * y + x
        return x
    return f, (torch.randn(64, 64) * 0.01, torch.randn(64, 64) * 0.01)


def doubling_across(n):
    def f(x):
        for _ in range(n):
            x = (x + x.t()) * 0.4
        return x
    return f, (torch.randn(64, 64),)


def slices(n):
    def f(x):
        return torch.cat([torch.sin(x[i * 37:(i + 1) * 37]) * 2 for i in range(n)])
    return f, (torch.randn(37 * n),)


FAMILIES = {f.__name__: f for f in (chain, chain_of_numbers, cells, parameters, outputs, inputs, reductions, softmaxes,
                                    uses, doubling, doubling_across, slices)}


def compile_seconds(family, n, compiles):
    least = math.inf
    for _ in range(compiles):
        f, args = family(n)
        compiled = framejit.compile(f)
        start = time.process_time()
        compiled(*args)
        least = min(least, time.process_time() - start)
        framejit.reset()
    return least


def call_seconds(functions, args):
    """The least of many calls of each, taken in turn."""
    least = [math.inf] * len(functions)
    for _ in range(30):
        for k, f in enumerate(functions):
            start = time.perf_counter()
            f(*args)
            least[k] = min(least[k], time.perf_counter() - start)
    return least


def run(name, sizes, compiles):
    family = FAMILIES[name]
    compile_seconds(family, 4, compiles)
    seconds = [compile_seconds(family, n, compiles) for n in sizes]
    exponent = math.log(seconds[-1] / seconds[-2]) / math.log(sizes[-1] / sizes[-2])
    f, args = family(sizes[-1])
    compiled = framejit.compile(f)
    ours, eager = (tree_leaves(call(*args)) for call in (compiled, f))
    difference = max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, eager, strict=True))
    assert framejit.stats()["graphs"] == 1 and difference < 1e-4, (name, framejit.stats(), difference)
    plain, own = call_seconds((f, compiled), args)
    is_good = exponent <= MOST and own <= plain
    show(name, **{f"first ms of {n}": s * 1e3 for n, s in zip(sizes, seconds)}, exponent=exponent,
         **{"eager ms": plain * 1e3, "framejit ms": own * 1e3, "over eager": plain / own})
    framejit.reset()
    return is_good


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", choices=[[], *FAMILIES], metavar="NAME")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=[50, 100, 200, 400])
    arguments.add_argument("--compiles", type=int, default=3)
    options = arguments.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    good = [run(name, options.sizes, options.compiles) for name in options.names or FAMILIES]
    raise SystemExit(0 if all(good) else "some grow faster than in proportion, or are slower than eager")


if __name__ == "__main__":
    main()
