"""Another process keeps one core busy: eager and framejit in turn, on two threads, without it and next to it.

    python benchmarks/neighbour.py [--threads 2] [--only "30 steps of 4096"]

Threads that must meet at the end of each op wait for the one whose core is taken, as long as the system lets the
neighbour run. A figure is the median over rounds of a few calls each. Exits with an error if a row next to the
neighbour is below LEAST of eager.
"""
import argparse
import contextlib
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

import framejit
from pairs import assert_hits, measure, median, ratio
from rows import show

LEAST = 0.8
SPIN = "import os\nos.sched_setaffinity(0, {%d})\nprint(flush=True)\nwhile True: pass"


@contextlib.contextmanager
def busy_core(wanted):
    if not wanted:
        yield
        return
    command = [sys.executable, "-c", SPIN % max(os.sched_getaffinity(0))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as neighbour:
        try:
            neighbour.stdout.readline()
            time.sleep(0.2)
            yield
        finally:
            neighbour.kill()


def steps(y, x):
    for _ in range(30):
        y = y * x + 0.1
    return y


def mlp(x, w1, w2):
    return F.layer_norm(x + F.gelu(x @ w1) @ w2, x.shape[-1:])


def chain(x, y):
    for _ in range(4):
        x = torch.softmax(x + y, -1)
    return x


def cases():
    for count in (4096, 8192, 16384, 65536, 262144):
        yield f"30 steps of {count}", steps, (torch.randn(count), torch.rand(count))
    yield "gelu 128x768", F.gelu, (torch.randn(128, 768),)
    yield "gelu 1024x3072", F.gelu, (torch.randn(1024, 3072),)
    yield "4 softmax 128x768", chain, (torch.randn(128, 768), torch.randn(128, 768))
    yield "4 softmax 1024x1024", chain, (torch.randn(1024, 1024), torch.randn(1024, 1024))
    yield "column sum 2048x2048", lambda x: x.sum(0), (torch.randn(2048, 2048),)
    yield "mlp 32x256", mlp, (torch.randn(32, 256), torch.randn(256, 1024) / 16, torch.randn(1024, 256) / 32)
    yield "mlp 256x768", mlp, (torch.randn(256, 768), torch.randn(768, 3072) / 28, torch.randn(3072, 768) / 56)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    slow = []
    with torch.no_grad():
        for name, fn, args in cases():
            if options.only and name not in options.only.split(","):
                continue
            framejit.reset()
            ours = framejit.compile(fn)
            torch.testing.assert_close(ours(*args), fn(*args), rtol=1e-3, atol=1e-3)
            candidates = {"eager": lambda: fn(*args), "framejit": lambda: ours(*args)}
            candidates["framejit"]()
            assert_hits(candidates["framejit"], 1, 0)
            for beside in (False, True):
                with busy_core(beside):
                    for call in candidates.values():
                        call(), call()
                    kept, _ = measure(candidates, rounds=options.rounds, repeat=dict.fromkeys(candidates, 5))
                over = ratio(kept["eager"], kept["framejit"])
                show(name, "beside a neighbour" if beside else "alone",
                     **{f"{k} us": median(v) * 1e6 for k, v in kept.items()}, **{"over eager": over})
                if beside and over < LEAST:
                    slow.append(name)
    raise SystemExit(f"slower than eager beside a neighbour: {', '.join(slow)}" if slow else 0)


if __name__ == "__main__":
    main()
