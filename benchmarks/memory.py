"""Peak memory of one warm call: eager, framejit and (with --torch-compile) torch.compile.

    python benchmarks/memory.py [--torch-compile] [--only BERT-base,mlp] [--cases f32,bf16,training]

It counts the bytes that a call has allocated and not yet freed, at their peak: torch's own memory events (of
torch.profiler) in order, and the part of framejit's arena that the call borrows as one more allocation. It does not
count memory from before the call (parameters, inputs), what libraries allocate without torch, and what allocators keep
for later calls. The results of a call are alive at its end. One process per row; the first calls, which compile, do not
count.
bf16 is autocast on the CPU, entered within the call, so that eager casts its weights in each call and keeps the casts
until it ends.
A training step is forward, backward and an optimizer's step (docs/training.md).
"""
import argparse
import json

import torch

from models import DTYPES, MODELS, load
from rows import run_rows

BF16 = ["BERT-base", "GPT-2", "ResNet-50"]
ROWS = [(name, case) for case in DTYPES for name in MODELS if case == "f32" or name in BF16] + [("mlp", "training")]


def peak_of(call):
    """The peak of the bytes that one call holds, and the bytes that its result holds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    del result
    return peak, live


def compilers(torch_compile):
    import framejit
    return {"eager": lambda f: f, "framejit": framejit.compile} | ({"torch.compile": torch.compile} if torch_compile
                                                                   else {})


def peaks(f, call, torch_compile):
    import framejit
    out = {}
    for name, compile_ in compilers(torch_compile).items():
        compiled = compile_(f)
        for _ in range(3):
            call(compiled)
        before = framejit.stats()
        out[f"{name} MB"] = peak_of(lambda: call(compiled))[0] / 1e6
        if name == "framejit":
            out["hits"] = framejit.stats()["hits"] - before["hits"]
    out["of eager"] = out["framejit MB"] / out["eager MB"]
    return out


def inference(name, dtype, torch_compile):
    model, inputs = load(name)

    def call(f):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            return f(**inputs)

    with torch.no_grad():
        out = peaks(model, call, torch_compile)
    assert out["hits"] > 0, "the call that was counted ran plainly"
    return out


def training(torch_compile):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048),
                                torch.nn.Linear(2048, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, target = torch.randn(256, 512), torch.randn(256, 512)

    def step(f):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(f(x), target).backward()
        optimizer.step()

    return peaks(model, step, torch_compile)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--only", default=",".join([*MODELS, "mlp"]))
    parser.add_argument("--cases", default=",".join([*DTYPES, "training"]))
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        name, case = options.row
        return print(json.dumps(training(options.torch_compile) if case == "training"
                                else inference(name, case, options.torch_compile)))
    only, cases = options.only.split(","), options.cases.split(",")
    run_rows("memory", __file__, [(name, case) for name, case in ROWS if name in only and case in cases],
             ["--torch-compile"] * options.torch_compile)


if __name__ == "__main__":
    main()
