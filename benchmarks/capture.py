"""What capture costs: BERT-base from the frame to the functional graph, per op; and what importing framejit costs after
torch.

    python benchmarks/capture.py [--layers 12] [--rounds 20] [--torch-compile]

Time is CPU time of the calling thread, so a busy machine does not matter; the time to run the compiled call is
subtracted. Hidden sizes are small, because they do not affect capture. --torch-compile adds torch.compile up to its
functional ATen graph (backend aot_eager), warm: the best of three compiles in one process.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch

import framejit
from rows import show

IMPORT = r"""
import json, os, sys, time, torch
def children():
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as f:
        return len(f.read().split())
before = time.perf_counter(), time.process_time(), children(), set(os.listdir())
import framejit
print(json.dumps({"s": time.perf_counter() - before[0], "processor s": time.process_time() - before[1],
                  "child processes": children() - before[2], "files": len(set(os.listdir()) - before[3])}))
"""


def bert(layers):
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(hidden_size=24, intermediate_size=96, num_hidden_layers=layers)).eval()
    return model, dict(input_ids=torch.randint(0, 1000, (1, 8)), attention_mask=torch.ones(1, 8, dtype=torch.long))


def thread_seconds(call):
    start = time.thread_time()
    call()
    return time.thread_time() - start


def capture(layers, rounds):
    model, inputs = bert(layers)
    torch.set_num_threads(1)
    best = best_run = float("inf")
    with torch.no_grad():
        model(**inputs)
        for _ in range(rounds):
            framejit.reset()
            compiled = framejit.compile(model, backend="eager")
            best = min(best, thread_seconds(lambda: compiled(**inputs)))
            best_run = min(best_run, *(thread_seconds(lambda: compiled(**inputs)) for _ in range(3)))
    stats = framejit.stats()
    ops, seconds = stats["ops"], best - best_run
    return {"ms": seconds * 1e3, "us an op": seconds / ops * 1e6, "ops": ops, "breaks": stats["graph_breaks"],
            "traced instructions": stats["traced_instructions"], "inlined calls": stats["inlined_calls"]}


def capture_of_torch_compile(layers):
    model, inputs = bert(layers)
    torch.set_num_threads(1)
    best = best_run = float("inf")
    with torch.no_grad():
        model(**inputs)
        for _ in range(3):
            torch._dynamo.reset()
            compiled = torch.compile(model, backend="aot_eager")
            best = min(best, thread_seconds(lambda: compiled(**inputs)))
            best_run = min(best_run, *(thread_seconds(lambda: compiled(**inputs)) for _ in range(3)))
    return {"ms": (best - best_run) * 1e3}


def import_cost():
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([sys.executable, "-c", IMPORT], cwd=folder, env=dict(os.environ), capture_output=True,
                             text=True)
    if out.returncode:
        raise SystemExit(out.stderr)
    return json.loads(out.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--torch-compile", action="store_true")
    options = parser.parse_args()
    captured = f"capture of BERT with {options.layers} layers"
    show("framejit", "import after torch", **import_cost())
    show("framejit", captured, **capture(options.layers, options.rounds))
    if options.torch_compile:
        show("torch.compile", captured, **capture_of_torch_compile(options.layers))


if __name__ == "__main__":
    main()
