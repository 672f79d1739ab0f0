"""On a machine with a GPU and compute-sanitizer: own kernels of every form touch no memory but their own, read nothing
that was not written, and do not race.

    python tests/gpu/test_sanitizer.py      runs the programs, without compute-sanitizer

Each tensor has memory of its own from the driver, so that the tool sees where it ends. Blocks that share rows read each
other's shared memory, which racecheck does not follow.
"""
import os
import shutil
import subprocess
import sys

import torch
import torch.nn.functional as F

import framejit

TOOLS = ("memcheck", "racecheck", "initcheck")
DTYPES = (torch.float32, torch.bfloat16)


def randn(*size, dtype=torch.float32):
    return torch.randn(*size, device="cuda").to(dtype)


def norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def cached(x, i, y):
    return torch.ops.aten.index_put(x, [None, i], y), x.exp()


def attended(qkv, keys, values, at, mask):
    q, k, v = (t.view(1, 2, 1, 64) for t in qkv.split(128, -1))
    keys.index_copy_(2, at, k * 2)
    values.index_copy_(2, at, v)
    return F.scaled_dot_product_attention(q + 1, keys, values, mask)


def programs():
    """Function and arguments: a kernel of every form of inductor/gpu, with lengths that are whole words and others."""
    for dtype in DTYPES:
        for size in ((33, 256), (7, 1023), (2, 5000), (300, 24), (5, 60001)):
            x, w, b = (randn(*s, dtype=dtype) for s in (size, size[1:], size[1:]))
            yield lambda x, w, b: torch.softmax(norm(x, w, b), -1), x, w, b  # rows
            yield lambda x, w, b: F.gelu(x + b) * w, x, w, b  # points
            yield lambda x: (x.sum(0), x.amax(0)), x  # columns
            yield lambda x: (x.argmax(-1), x.argmin(0)), x
            yield lambda x: x.sum(), x  # parts
        yield lambda x, y: x.T + y, randn(70, 45, dtype=dtype), randn(45, 70, dtype=dtype)  # tiles
        yield lambda x, w: x @ w.T, randn(2, 512, dtype=dtype), randn(301, 512, dtype=dtype)  # products
        yield lambda x: x.softmax(0) + x.sum(), randn(7, 4, 9, dtype=dtype)  # mixed rows
        yield cached, randn(3, 50, 8, dtype=dtype), torch.tensor([7], device="cuda"), randn(3, 1, 8, dtype=dtype)
        yield lambda x: x.cumsum(-1), randn(5, 300, dtype=dtype)
        caches = (randn(1, 2, 75, 64, dtype=dtype) for _ in range(2))
        yield (attended, randn(1, 384, dtype=dtype), *caches, torch.tensor([70], device="cuda"),
               randn(1, 1, 1, 75, dtype=dtype))  # attention of one query


def run():
    torch.manual_seed(0)
    count = 0
    with torch.no_grad():
        for fn, *args in programs():
            framejit.reset()
            before = framejit.stats()["kernels"]
            got, want = framejit.compile(fn)(*args), fn(*args)
            for mine, theirs in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
                # Other tests compare values; memory that is not written would be off by more.
                torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)
            count += framejit.stats()["kernels"] - before
    weights = [randn(*size) for size in ((64, 64, 3, 3), (8, 3, 7, 7), (130, 300, 3, 3), (5, 1, 3, 3))]
    torch.ops.framejit.cast_all_last(weights, torch.bfloat16)
    torch.cuda.synchronize()
    assert count > 0
    print(f"ran {count} kernels")


def sanitized(tool):
    environment = dict(os.environ, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    # initcheck must see what other kernels write.
    own = [] if tool == "initcheck" else ["--kernel-name", "kernel_substring=fj_"]
    command = ["compute-sanitizer", "--tool", tool, *own, "--error-exitcode", "9", sys.executable, __file__]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def check_tool(tool):
    result = sanitized(tool)
    text = result.stdout + result.stderr
    assert result.returncode == 0, text[-3000:]
    assert "ran " in result.stdout and ("ERROR SUMMARY: 0 errors" in text or "RACECHECK SUMMARY: 0 hazards" in text), (
        text[-3000:])


if __name__ == "__main__":
    run()
else:
    import pytest

    @pytest.mark.skipif(not torch.cuda.is_available() or shutil.which("compute-sanitizer") is None,
                        reason="not tested: there is no GPU, or no compute-sanitizer")
    @pytest.mark.parametrize("tool", TOOLS)
    def test_own_kernels(tool):
        check_tool(tool)
