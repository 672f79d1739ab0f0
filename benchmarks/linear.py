"""Linear layers in torch: addmm and mm compared with oneDNN's product, and layers over one input with a joined one.

    python benchmarks/linear.py [--joined] [--dtype f32] [--threads 1 2] [--rounds 10]

Weights have the layout of nn.Linear: nothing is packed before, and a joined product copies its weights in each call.
mkl::_mkl_linear takes only packed weights, so it is not included. Kernels are framejit's, in float32, whatever its cost
model says. A ratio above 1 says that the second candidate is faster. Before the times of oneDNN's product: whether one
thread and two give the same bits.
"""
import argparse
import os
import statistics

import torch
import torch.nn.functional as F

os.environ["FRAMEJIT_PRODUCTS"] = "kernels"
import framejit  # noqa: E402
from pairs import assert_hits, measure  # noqa: E402

LAYERS = [(512, 512), (512, 2048), (768, 768), (768, 3072), (3072, 768), (1024, 1024), (1024, 4096), (4096, 1024)]
ROWS = (1, 128, 197, 512)
JOINED = [("Q, K, V", 768, (768,) * 3), ("Q, K, V", 1024, (1024,) * 3), ("gate, up", 1024, (2816,) * 2),
          ("Q, K, V", 512, (512,) * 3)]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
pointwise = torch.ops.mkldnn._linear_pointwise


def single(rows, depth, width, dtype):
    framejit.reset()  # only a limited number of entries is kept for one lambda
    x, w, b = torch.randn(rows, depth).to(dtype), (torch.randn(width, depth) * depth ** -0.5).to(dtype), torch.randn(
        width).to(dtype)
    other, turned = torch.randn(rows, width).to(dtype), w.t()
    kernels = {"mm ": lambda: torch.mm(x, turned),
               "kernel": framejit.compile(lambda: torch.mm(x, turned))} if dtype == torch.float32 and rows > 1 else {}
    return {
        "addmm": lambda: torch.addmm(b, x, turned),
        "oneDNN": lambda: pointwise(x, w, b, "none", [], ""),
        "mm": lambda: torch.mm(x, turned),
        "oneDNN, no bias": lambda: pointwise(x, w, None, "none", [], ""),
        **kernels,
        "addmm, relu": lambda: torch.addmm(b, x, turned).relu_(),
        "oneDNN relu": lambda: pointwise(x, w, b, "relu", [], ""),
        "addmm, gelu": lambda: F.gelu(torch.addmm(b, x, turned)),
        "oneDNN gelu": lambda: pointwise(x, w, b, "gelu", [], "none"),
        "addmm, add": lambda: torch.addmm(b, x, turned).add_(other),
        "oneDNN add": lambda: pointwise.binary(x, other, w, b, "add"),
    }


def joined(rows, depth, widths, dtype):
    x = torch.randn(rows, depth).to(dtype)
    weights, biases = [(torch.randn(n, depth) * depth ** -0.5).to(dtype) for n in widths], [torch.randn(n).to(dtype)
        for n in widths]
    whole, bias = torch.cat(weights).t(), torch.cat(biases)
    return {
        "apart": lambda: [torch.addmm(b, x, w.t()) for w, b in zip(weights, biases)],
        "joined": lambda: torch.addmm(torch.cat(biases), x, torch.cat(weights).t()).split(widths, 1),
        "apart ": lambda: [torch.addmm(b, x, w.t()) for w, b in zip(weights, biases)],
        "views of one weight": lambda: torch.addmm(bias, x, whole).split(widths, 1),
    }


def same_bits(call):
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(call())
    return torch.equal(*results)


def row(name, candidates, threads, rounds):
    torch.set_num_threads(threads)
    try:
        for call in candidates.values():
            call()
    except RuntimeError as error:
        print(f"{name}  threads {threads}  not there: {str(error).splitlines()[0][:90]}", flush=True)
        return
    if "kernel" in candidates:
        torch.testing.assert_close(candidates["kernel"](), candidates["mm"](), rtol=1e-4, atol=1e-4)
        assert_hits(candidates["kernel"], 1, 0)
        assert framejit.stats()["kernels"] > 0, "the kernel is a library call"
    bits = f"  same bits {same_bits(candidates['oneDNN'])}" if "oneDNN" in candidates else ""
    torch.set_num_threads(threads)
    seconds, dropped = measure(candidates, rounds=rounds, target=0.01)
    names = list(candidates)
    ratios = [f"{a.strip()} / {b} {statistics.median(x / y for x, y in zip(seconds[a], seconds[b])):.2f}" for a,
              b in zip(names[::2], names[1::2])]
    print(f"{name}  threads {threads}{bits}  dropped {dropped}  {names[0]} us "
          f"{statistics.median(seconds[names[0]]) * 1e6:.0f}  {'  '.join(ratios)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--joined", action="store_true")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=None)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    dtype = DTYPES[options.dtype]
    with torch.no_grad():
        for threads in options.threads:
            if options.joined:
                for name, depth, widths in JOINED:
                    for rows in options.rows or (1, 16, 128, 512, 2048):
                        row(f"{name} rows {rows} {depth} -> {'+'.join(map(str, widths))}",
                            joined(rows, depth, widths, dtype), threads, options.rounds)
            else:
                for depth, width in LAYERS:
                    for rows in options.rows or ROWS:
                        row(f"rows {rows} {depth} -> {width}", single(rows, depth, width, dtype), threads,
                            options.rounds)


if __name__ == "__main__":
    main()
