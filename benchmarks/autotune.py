"""Times the default and mode="max-autotune" in turn and prints the choices made, for models of models.py and for small
programs whose plans are kernels.

    python benchmarks/autotune.py [--only ResNet-50,columns] [--rounds 30]

The ratio is the default's time over max-autotune's, a median over rounds; the programs differ only in the plan.
FRAMEJIT_AUTOTUNE_MS comes from the environment (docs/settings.md).
"""
import argparse
import time

import torch

import framejit
import models
from pairs import geomean, measure, median, ratio


def conv_net():
    def block(channels, wider):
        return [torch.nn.Conv2d(channels, wider, 3, padding=1, bias=False), torch.nn.BatchNorm2d(wider),
                torch.nn.ReLU()]
    return torch.nn.Sequential(*block(3, 32), *block(32, 64), torch.nn.MaxPool2d(2), *block(64, 128),
                               torch.nn.Conv2d(128, 128, 1)).eval(), [torch.randn(4, 3, 64, 64)]


PROGRAMS = {
    "conv net": conv_net,
    "softmax": lambda: (lambda x: torch.softmax(x * 2, 1), [torch.randn(512, 1000)]),
    "columns": lambda: (lambda x: (x.exp().sum(0), x.var(0)), [torch.randn(4000, 300)]),
    "norm": lambda: (torch.nn.Sequential(torch.nn.LayerNorm(768), torch.nn.GELU()), [torch.randn(128, 768)]),
    "chain": lambda: (lambda x, y: torch.relu(x * y + 1) - y, [torch.randn(1000, 1000), torch.randn(1000, 1000)]),
    "erf": lambda: (lambda x: torch.erf(x) * torch.tanh(x) + torch.exp(-x * x), [torch.randn(300, 300)]),
}


def load(name):
    if name in models.MODELS:
        model, inputs = models.load(name)
        return lambda f: f(**inputs), model
    torch.manual_seed(0)
    model, args = PROGRAMS[name]()
    return lambda f: f(*args), model


def row(name, rounds):
    call, model = load(name)
    plain, tuned, lines = framejit.compile(model), framejit.compile(model, mode="max-autotune"), []
    token = framejit._framejit.add_listener(lambda event: lines.append(event["text"]) if event["channel"] == "autotune"
                                            else None)
    start = time.perf_counter()
    call(tuned)
    first = time.perf_counter() - start
    framejit._framejit.remove_listener(token)
    candidates = {"default": lambda: call(plain), "max-autotune": lambda: call(tuned)}
    for timed in candidates.values():
        timed(), timed()
    kept, dropped = measure(candidates, rounds=rounds)
    faster = ratio(kept["default"], kept["max-autotune"])
    print(f"{name}: default {median(kept['default']) * 1e3:.4g} ms, max-autotune "
          f"{median(kept['max-autotune']) * 1e3:.4g} ms, ratio {faster:.3f}, "
          f"first call {first:.2f} s, dropped {dropped}", flush=True)
    for line in lines:
        print("   ", line.split("] ", 1)[1], flush=True)
    return faster


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join([*PROGRAMS, *models.MODELS]))
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with torch.no_grad():
        ratios = [row(name, options.rounds) for name in options.only.split(",")]
    print(f"geomean {geomean(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
