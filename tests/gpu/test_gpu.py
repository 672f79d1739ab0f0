"""On a machine with a GPU: functions on CUDA tensors run through generated kernels and equal eager.

    make test-gpu                       builds and runs this file
    python tests/gpu/test_gpu.py        as a program: the same tests without pytest, then times beside eager

Elsewhere every test is skipped.
"""
import statistics
import sys

import torch
import torch.nn.functional as F

import framejit

try:
    import pytest
    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
except ImportError:  # as a program
    pytest = None


def randn(*size, dtype=torch.float32):
    return torch.randn(*size, device="cuda").to(dtype)


def kernels_run():
    return framejit.stats()["kernels"]


def check(fn, *args, kernels=None, tolerance=None):
    """Compiled equals eager, bit for bit where results are discrete; at least one kernel, or as many as given, was
    made."""
    with torch.no_grad():
        eager = fn(*args)
        reference = fn(*(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args))
        framejit.reset()
        compiled = framejit.compile(fn)
        explained = framejit.explain(fn)(*args)
        sources = [e for e in explained.events if e.event == "Kernel" and e.fields["form"] == "hip"]
        assert sources, "no kernel was generated: " + str(explained)
        if kernels is not None:
            assert len(sources) == kernels, [e.artefact for e in sources]
        for _ in range(3):
            got = compiled(*args)
        torch.cuda.synchronize()
    assert framejit.stats()["fallbacks"] == 0
    pairs = zip(*[v if isinstance(v, tuple) else (v,) for v in (got, eager, reference)])
    for mine, theirs, exact in pairs:
        assert mine.device == theirs.device and mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        if not theirs.is_floating_point():
            assert torch.equal(mine, theirs)
            continue
        bound = 2 * (theirs.double() - exact).abs().max() + 2 * torch.finfo(theirs.dtype).eps * exact.abs().max()
        worst = (mine.double() - exact).abs().max()
        assert worst <= (bound if tolerance is None else tolerance), f"off by {worst}, allowed {bound}"


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def block(x, w, b):
    y = F.layer_norm(torch.tanh(x * 2 + 1), (x.shape[-1],), w, b)
    return torch.softmax(y, -1)


def test_pointwise_softmax_layer_norm():
    for dtype in DTYPES:
        for size in ((64, 768), (3, 5, 130), (17, 5000), (2, 1)):
            check(block, randn(*size, dtype=dtype), randn(size[-1], dtype=dtype), randn(size[-1], dtype=dtype))


def test_the_function_is_one_kernel():
    check(block, randn(64, 768), randn(768), randn(768), kernels=1)


def test_library_calls_between_kernels():
    def mlp(x, w, v, b):
        return F.gelu(x @ w + b) @ v + x
    check(mlp, randn(50, 64), randn(64, 256), randn(256, 64), randn(256), tolerance=1e-2)


def test_columns_whole_sums_and_positions():
    check(lambda x: (x.sum(0), x.amax(0), x.mean(0)), randn(1000, 300))
    # no cancellation: where the sum is near zero, eager's own error is chance
    check(lambda x: x.sum(), randn(123, 457).abs())
    check(lambda x: (x.argmax(1), x.argmin(0)), randn(64, 1001))
    check(lambda x: (x > 0).any(1), randn(64, 1001))


def test_layouts():
    check(lambda x: torch.relu(x), randn(8, 16, 64, 32).transpose(1, 2))
    check(lambda x, y: x.T + y, randn(70, 90), randn(90, 70))
    check(lambda x: x[::2, 3:].exp(), randn(70, 90))
    check(lambda x, y: x + y, randn(4, 1, 7), randn(5, 1))


def test_integers():
    x = torch.randint(-1000, 1000, (999,), device="cuda")
    check(lambda x: (x * x % 7, x // 3, x > 5, x.to(torch.uint8), (x * 2 ** 40).abs()), x)


def test_new_sizes_make_symbols():
    compiled = framejit.compile(block)
    w, b = randn(96), randn(96)
    with torch.no_grad():
        for rows in (4, 9, 33, 64):
            x = randn(rows, 96)
            torch.testing.assert_close(compiled(x, w, b), block(x, w, b))


def test_current_stream():
    compiled = framejit.compile(block)
    x, w, b = randn(4096, 1024), randn(1024), randn(1024)
    with torch.no_grad():
        expected = block(x, w, b)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(10):
                y = compiled(x * 1, w, b)
            done = y * 1
        stream.synchronize()
        torch.testing.assert_close(done, expected)


def test_written_inputs():
    def step(x):
        x.mul_(2).add_(1)
        return x * 3
    a = randn(333)
    b = a.clone()
    with torch.no_grad():
        assert torch.allclose(framejit.compile(step)(a), step(b)) and torch.equal(a, b)


def test_indices_stay_with_the_library():
    def embed(table, index):
        return F.layer_norm(F.embedding(index, table) + 1, (64,))
    with torch.no_grad():
        table, index = randn(100, 64), torch.randint(0, 100, (7,), device="cuda")
        torch.testing.assert_close(framejit.compile(embed)(table, index), embed(table, index))


def test_cuda_and_cpu_tensors_in_one_function():
    def both(x, c):
        return torch.tanh(x) * 2, torch.relu(c) + 1
    x, c = randn(100), torch.randn(100)
    with torch.no_grad():
        got, expected = framejit.compile(both)(x, c), both(x, c)
    for g, e in zip(got, expected):
        torch.testing.assert_close(g, e)


def test_new_tensors_on_the_current_device():
    c = torch.randn(7, 5)
    for fn in (lambda c: torch.zeros_like(c, device="cuda"), lambda c: torch.full_like(c, 2, device="cuda")
               + 1, lambda c: c.new_ones(3, device="cuda"),
               lambda c: torch.arange(6, device="cuda") * 2, lambda c: torch.ones(3, device="cuda:0").sum()):
        with torch.no_grad():
            got, expected = framejit.compile(fn)(c), fn(c)
        assert got.device == expected.device
        torch.testing.assert_close(got, expected)


def microseconds(call, count=50):
    for _ in range(5):
        call()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / count)
    return statistics.median(times)


def times():
    cases = {
        "gelu(x + b)": (lambda x, w, b: F.gelu(x + b), 2), "softmax": (lambda x, w, b: torch.softmax(x, -1), 2),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), 2),
        "tanh, layer_norm, softmax": (block, 2), "column sum": (lambda x, w, b: x.sum(0), 1),
        "argmax": (lambda x, w, b: x.argmax(-1), 1),
    }
    for size in ((197, 768), (8192, 8192)):
        for dtype in (torch.float32, torch.bfloat16):
            x, w, b = randn(*size, dtype=dtype), randn(size[1], dtype=dtype), randn(size[1], dtype=dtype)
            copy = microseconds(lambda: x.clone())
            print(f"{size} {dtype} clone {copy:.1f} us")
            for name, (fn, moved) in cases.items():
                compiled = framejit.compile(fn)
                with torch.no_grad():
                    compiled(x, w, b)
                    eager, ours = microseconds(lambda: fn(x, w, b)), microseconds(lambda: compiled(x, w, b))
                rate = moved * x.numel() * x.element_size() / ours / 1e3
                print(f"  {name:26} eager {eager:8.1f} us   framejit {ours:8.1f} us   {eager / ours:5.2f}x   "
                      f"{rate:6.0f} GB/s")


def main():
    if not torch.cuda.is_available():
        print("no GPU: nothing was run")
        return 0
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "CUDA", torch.version.cuda)
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print("passed", name)
        except Exception as error:  # each test is reported
            failed += 1
            print("FAILED", name, type(error).__name__, str(error)[:3000])
    if failed == 0:
        times()
    print("failed" if failed else "all passed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
