"""What capture costs: BERT-base from the frame to the functional graph, per op; and what importing framejit costs after
torch.

    python benchmarks/capture.py [--layers 12] [--rounds 20] [--torch-compile]

Time is CPU time of the calling thread, so that a busy machine does not show; the compiled call's own run is taken off.
Small hidden sizes: capture does not see them. --torch-compile adds torch.compile up to its functional ATen graph
(backend aot_eager), warm: the best of three compiles in one process.
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

IMPORT = r"""
import json, os, sys, time, torch
def children():
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as f:
        return len(f.read().split())
before = time.perf_counter(), time.process_time(), children(), set(os.listdir())
import framejit
print(json.dumps({"case": "import after torch", "seconds": time.perf_counter() - before[0],
    "cpu_seconds": time.process_time() - before[1],
                  "child_processes": children() - before[2], "files": len(set(os.listdir()) - before[3])}))
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
    return {"case": f"capture BERT, {layers} layers", "ops": ops, "milliseconds": round(seconds * 1e3, 2),
            "us_per_op": round(seconds / ops * 1e6, 1), "graph_breaks": stats["graph_breaks"],
            "traced_instructions": stats["traced_instructions"], "inlined_calls": stats["inlined_calls"]}


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
    return {"case": f"torch.compile captures BERT, {layers} layers", "milliseconds": round((best - best_run) * 1e3, 2)}


def import_cost():
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([sys.executable, "-c", IMPORT], cwd=folder, env=dict(os.environ), capture_output=True,
                             text=True)
    return json.loads(out.stdout) if out.returncode == 0 else {"case": "import after torch",
                                                               "error": out.stderr.strip().splitlines()[-1:]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--torch-compile", action="store_true")
    options = parser.parse_args()
    print(json.dumps(import_cost()), flush=True)
    print(json.dumps(capture(options.layers, options.rounds)), flush=True)
    if options.torch_compile:
        print(json.dumps(capture_of_torch_compile(options.layers)), flush=True)


if __name__ == "__main__":
    main()
