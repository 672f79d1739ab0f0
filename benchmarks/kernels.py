"""Pointwise and row kernels: eager, framejit and (with --torch-compile) torch.compile in turn, and the share of the
copy limit.

    python benchmarks/kernels.py [--torch-compile] [--only softmax,rope] [--sizes 128x768,4096x4096] [--dtypes f32,bf16]
    [--threads 1,2]

A row's share is the time of copying the bytes that it must read and write, measured next to it on the same machine,
divided by its own time: 1.00 is the limit of memory, more means that the data came from a cache. Results are allocated
in each call, large ones in huge pages, which the system zeroes fastest (clone() uses small pages; its time is given
too, as "clone"). For the bytes that a row only reads, the copy is in place.
"""
import argparse
import ctypes
import math

import torch
import torch.nn.functional as F

import framejit
from pairs import assert_hits, measure, median, ratio
from rows import line, summary, told

SIZES = ["128x768", "8x128x3072", "4096x4096", "127x769"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
# for each result, and for the mean: a row with wrong results does not count
NEAR = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


def rms_norm(x, w):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:2 * half], x[..., :half], x[..., 2 * half:]), -1)
    return x * cos + rotated * sin


def masked_softmax(x, mask):
    return torch.softmax(x.masked_fill(mask, -math.inf), -1)


def batch_norm_relu_add(x, y, mean, var, w, b):
    return torch.relu(F.batch_norm(x, mean, var, w, b, False)) + y


def cases(size, dtype):
    """(name, function, arguments, tensors read, tensors written), counted in tensors of the full size."""
    def full():
        return torch.randn(size).to(dtype)
    cols = size[-1]
    w, b = torch.randn(cols).to(dtype), torch.randn(cols).to(dtype)
    x, y = full(), full()
    yield "bias+gelu erf", lambda x, b: F.gelu(x + b), (x, b), 1, 1
    yield "bias+gelu tanh", lambda x, b: F.gelu(x + b, approximate="tanh"), (x, b), 1, 1
    yield "layer_norm", lambda x, w, b: F.layer_norm(x, (cols,), w, b), (x, w, b), 1, 1
    yield "rms_norm", rms_norm, (x, w), 1, 1
    yield "softmax", lambda x: torch.softmax(x, -1), (x,), 1, 1
    rows = x.numel() // cols
    target = torch.randint(0, cols, (rows,))
    yield "log_softmax+nll", lambda x, t: F.cross_entropy(x.reshape(-1, cols), t), (x, target), 1, 0
    yield "residual+norm", lambda x, y, w, b: F.layer_norm(x + y, (cols,), w, b), (x, y, w, b), 2, 1
    yield "rope", rope, (x, torch.randn(size[-2:]).to(dtype), torch.randn(size[-2:]).to(dtype)), 1 + 2 * size[
        -2] * cols / x.numel(), 1
    mask = torch.rand(size[-2:]) > 0.8
    yield "masked softmax", masked_softmax, (x, mask), 1 + mask.nbytes / x.nbytes, 1
    channels = size[0] if len(size) == 2 else size[1]
    planes = x.reshape(1, channels, -1) if len(size) == 2 else x
    stats = [torch.rand(channels) + 0.5 for _ in range(4)]
    yield "bn+relu+add", batch_norm_relu_add, (planes, torch.randn_like(planes), *stats), 2, 1
    yield "column sum", lambda x: x.reshape(-1, cols).sum(0), (x,), 1, 0
    yield "argmax", lambda x: x.argmax(-1), (x,), 1, 0
    yield "full sum", lambda x: x.sum(), (x,), 1, 0
    yield "transposed add", lambda x, y: x.transpose(-1, -2) + y, (x, full().transpose(-1, -2).contiguous()), 2, 1
    yield "broadcast mul", lambda x, c: torch.relu(x * c), (x, torch.randn(*size[:-1], 1).to(dtype)), 1, 1


PAGE, LEAST_IN_HUGE_PAGES, MADV_HUGEPAGE = 4096, 4 << 20, 14
MADVISE = ctypes.CDLL(None).madvise


def in_huge_pages(like):
    """A new tensor, in memory for which huge pages are requested."""
    new = torch.empty_like(like)
    begin, end = new.data_ptr() // PAGE * PAGE, -(-(new.data_ptr() + new.nbytes) // PAGE) * PAGE
    MADVISE(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), MADV_HUGEPAGE)
    return new


def copies_of(read, written, dtype):
    """Copies that read and write this many elements. The written ones go to a new tensor; the others are copied in
    place."""
    source = torch.randn(int(written)).to(dtype)
    rest = max(int(read - written) // 2, 0)
    kept, target = torch.randn(rest).to(dtype), torch.empty(rest, dtype=dtype)
    copied = (lambda: in_huge_pages(source).copy_(source)) if source.nbytes >= LEAST_IN_HUGE_PAGES else source.clone
    return {"copy": lambda: (copied() if written else None, target.copy_(kept)),
            "clone": lambda: (source.clone() if written else None, target.copy_(kept))}


def run(name, fn, args, read, written, dtype, options):
    ours = framejit.compile(fn)
    candidates = {"eager": lambda: fn(*args), "framejit": lambda: ours(*args),
                  **copies_of(read * args[0].numel(), written * args[0].numel(), dtype)}
    if options.torch_compile:
        torch.compiler.reset()
        theirs = torch.compile(fn, dynamic=False)
        candidates["torch.compile"] = lambda: theirs(*args)
    for call in candidates.values():
        call(), call(), call()
    assert_hits(candidates["framejit"], 1, 0)
    exact = fn(*(a.double() if a.is_floating_point() else a for a in args))
    torch.testing.assert_close(ours(*args).to(exact.dtype), exact, rtol=NEAR[dtype],
                               atol=NEAR[dtype] * exact.double().abs().mean().item())
    assert framejit.stats()["kernels"] > 0, "nothing but library calls"
    kept, dropped = measure(candidates, rounds=options.rounds, target=options.target, warm=True)
    row = {f"{k} us": median(v) * 1e6 for k, v in kept.items()}
    row["over eager"] = ratio(kept["eager"], kept["framejit"])
    if options.torch_compile:
        row["over torch.compile"] = ratio(kept["torch.compile"], kept["framejit"])
    row["share"] = ratio(kept["copy"], kept["framejit"])
    return row | {"dropped": dropped}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--target", type=float, default=0.01)
    options = parser.parse_args()
    lines = []
    with torch.no_grad():
        for threads in map(int, options.threads.split(",")):
            torch.set_num_threads(threads)
            for size in options.sizes.split(","):
                for dtype in options.dtypes.split(","):
                    for name, fn, args, read, written in cases(tuple(map(int, size.split("x"))), DTYPES[dtype]):
                        if options.only and name not in options.only.split(","):
                            continue
                        framejit.reset()
                        row = run(name, fn, args, read, written, DTYPES[dtype], options)
                        lines.append(line(name, size, dtype, f"{threads}t", **row))
                        print(lines[-1], flush=True)
    print("", *(told(*ratios) for ratios in summary("kernels", lines)), sep="\n")


if __name__ == "__main__":
    main()
