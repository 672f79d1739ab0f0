"""The step of an optimizer, written out over many tensors: eager and framejit in turn, in one process.

    python benchmarks/updates.py [--tensors 480] [--size 64x64] [--threads 1,2]

Each tensor gets its new value in place, and so does its state (momentum; both averages of Adam). Eager runs the same
program: one op after the other on each tensor ("loop"), or torch's ops on lists of tensors ("foreach"). Exits with an
error if a row is below LEAST of eager: if values went through copies, it would be at a third of eager.
"""
import argparse

import torch

import framejit
from pairs import assert_hits, measure, median, ratio
from rows import show


def sgd_loop(params, grads, momenta):
    for p, g, m in zip(params, grads, momenta):
        m.mul_(0.9).add_(g)
        p.add_(m, alpha=-0.01)


def sgd_foreach(params, grads, momenta):
    torch._foreach_mul_(momenta, 0.9)
    torch._foreach_add_(momenta, grads)
    torch._foreach_add_(params, momenta, alpha=-0.01)


def adam_loop(params, grads, averages, squares):
    for p, g, m, v in zip(params, grads, averages, squares):
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.001)


def adam_foreach(params, grads, averages, squares):
    torch._foreach_mul_(averages, 0.9)
    torch._foreach_add_(averages, grads, alpha=0.1)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, grads, grads, 0.001)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(params, averages, roots, -0.001)


LEAST = 0.6
STEPS = {"sgd loop": (sgd_loop, 3), "sgd foreach": (sgd_foreach, 3), "adam loop": (adam_loop, 4),
         "adam foreach": (adam_foreach, 4)}


def tensors_for(count, size, lists):
    torch.manual_seed(0)
    return [[torch.rand(size) if k == 3 else torch.randn(size) * 0.1 for _ in range(count)] for k in range(lists)]


def assert_equal_steps(step, ours, count, size, lists):
    """Two steps from the same start leave the same values."""
    expected, seen = tensors_for(count, size, lists), tensors_for(count, size, lists)
    for _ in range(2):
        step(*expected)
        ours(*seen)
    for a, b in zip(sum(expected, []), sum(seen, [])):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensors", type=int, default=480)
    parser.add_argument("--size", default="64x64")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    size = tuple(map(int, options.size.split("x")))
    slow = []
    with torch.no_grad():
        for threads in map(int, options.threads.split(",")):
            torch.set_num_threads(threads)
            for name, (step, lists) in STEPS.items():
                if options.only and name not in options.only.split(","):
                    continue
                framejit.reset()
                ours = framejit.compile(step)
                assert_equal_steps(step, ours, options.tensors, size, lists)
                args = tensors_for(options.tensors, size, lists)
                candidates = {"eager": lambda: step(*args), "framejit": lambda: ours(*args)}
                for call in candidates.values():
                    call(), call()
                assert_hits(candidates["framejit"], 1, 0)
                kept, dropped = measure(candidates, rounds=options.rounds)
                over = ratio(kept["eager"], kept["framejit"])
                show(name, f"{threads}t", **{f"{k} ms": median(v) * 1e3 for k, v in kept.items()},
                     **{"over eager": over}, dropped=dropped)
                if over < LEAST:
                    slow.append(f"{name} {threads}t")
    raise SystemExit(f"slower than eager: {', '.join(slow)}" if slow else 0)


if __name__ == "__main__":
    main()
