"""On a machine with a GPU: functions on CUDA tensors run through generated kernels and equal eager.

    make test-gpu                       builds and runs this file
    python tests/gpu/test_gpu.py        as a program: the same tests, and those of test_graphs.py, test_row_products.py,
                                        test_one_query.py and test_short_attention_kernel.py, without pytest, then
                                        host_times.py and kernel_times.py; "tests": without these two

Elsewhere every test is skipped.
"""
import datetime
import pathlib
import subprocess
import sys
import traceback

import torch
import torch.nn.functional as F

import framejit
import host_times
import kernel_times

sys.path.append(str(pathlib.Path(__file__).parent.parent / "e2e"))  # as a program: conftest.py is not read

import test_graphs
import test_one_query
import test_row_products
import test_short_attention_kernel
from bounds import assert_close, exactly_as, part

try:
    import pytest
    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="not tested: there is no GPU")
except ImportError:  # as a program
    pytest = None


def randn(*size, dtype=torch.float32):
    return torch.randn(*size, device="cuda").to(dtype)


def kernels_run():
    return framejit.stats()["kernels"]


def check(fn, *args, kernels=None):
    """Asserts that compiled equals eager within the contract's bound, bit for bit if results are discrete, and that at
    least one kernel, or the given number, was made."""
    with torch.no_grad():
        eager = fn(*args)
        framejit.reset()
        compiled = framejit.compile(fn)
        explained = framejit.explain(fn)(*args)
        sources = [e for e in explained.events if e.event == "Kernel" and e.fields["form"] == "hip"]
        assert sources, "no kernel was generated: " + str(explained)
        if kernels is not None:
            assert len(sources) == kernels, [e.artefact for e in sources]
        first = compiled(*args)
        for _ in range(3):
            got = compiled(*args)
        torch.cuda.synchronize()
    assert framejit.stats()["fallbacks"] == 0
    exact = exactly_as(lambda: fn(*args))
    outputs = zip(*[v if isinstance(v, tuple) else (v,) for v in (got, first, eager)])
    for k, (mine, before, theirs) in enumerate(outputs):
        assert torch.equal(mine, before), "other bits in another call"
        assert mine.device == theirs.device and mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        assert_close(mine, theirs, part(exact, lambda v: v[k] if isinstance(v, list) else v), f"output {k}")


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def test_pointwise_softmax_layer_norm():
    for dtype in DTYPES:
        for size in ((64, 768), (3, 5, 130), (17, 5000), (2, 1)):
            check(kernel_times.block, randn(*size, dtype=dtype),
                  randn(size[-1], dtype=dtype), randn(size[-1], dtype=dtype))


def test_the_function_is_one_kernel():
    check(kernel_times.block, randn(64, 768), randn(768), randn(768), kernels=1)


def test_library_calls_between_kernels():
    def mlp(x, w, v, b):
        return F.gelu(x @ w + b) @ v + x
    check(mlp, randn(50, 64), randn(64, 256), randn(256, 64), randn(256))


def test_columns_whole_sums_and_positions():
    check(lambda x: (x.sum(0), x.amax(0), x.mean(0)), randn(1000, 300))
    # no cancellation: if the sum is near zero, eager's own error is chance
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
    for dtype in (*DTYPES, torch.float64):
        check(lambda x: (x.to(torch.uint8), x.to(torch.int16), x.long()), x.to(dtype) / 4)


def test_new_sizes_make_symbols():
    compiled = framejit.compile(kernel_times.block)
    w, b = randn(96), randn(96)
    with torch.no_grad():
        for rows in (4, 9, 33, 64):
            x = randn(rows, 96)
            torch.testing.assert_close(compiled(x, w, b), kernel_times.block(x, w, b))


def test_current_stream():
    compiled = framejit.compile(kernel_times.block)
    x, w, b = randn(4096, 1024), randn(1024), randn(1024)
    with torch.no_grad():
        expected = kernel_times.block(x, w, b)
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


def test_indices():
    def embed(table, index):
        return F.layer_norm(F.embedding(index, table) + 1, (64,))
    def take(table, index):
        return table[index] * 2, table[:, index[:3]], table.gather(0, index[:, None].abs())
    index = torch.randint(-100, 100, (7,), device="cuda")
    check(embed, randn(100, 64), index.abs(), kernels=1)
    check(take, randn(100, 100), index)


def test_indices_of_the_cpu_are_moved():
    here = torch.tensor([3, 1, 9])
    def known(x):
        y = x.clone()
        y[torch.arange(3)] = 2.0
        y[:, torch.tensor([1, 4])] += 1
        return x[torch.tensor([3, 1, 9])] * 2, x[torch.arange(x.shape[0] // 2)[:, None], here[:2].cuda()] + 1, y
    def given(x, index):
        return x[index] * 2, x[:, index], torch.sin(x).index_put((index,), x[0])
    x = randn(10, 10)
    for fn, args in ((known, (x,)), (given, (x, here))):
        with torch.no_grad():
            framejit.reset()
            compiled = framejit.compile(fn, fullgraph=True)
            for _ in range(3):
                for mine, theirs in zip(compiled(*args), fn(*args)):
                    torch.testing.assert_close(mine, theirs)
        assert framejit.stats()["fallbacks"] == 0 and framejit.stats()["graphs"] == 1


ASSERTS = """
import torch, framejit
table, index = torch.randn(100, 64, device="cuda"), torch.tensor([3, 100], device="cuda")
with torch.no_grad():
    framejit.compile(lambda table, index: table[index] * 2)(table, index)
assert framejit.stats()["kernels"] == 1, framejit.stats()
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error)
"""


def test_an_index_out_of_range_asserts_on_the_device():
    done = subprocess.run([sys.executable, "-c", ASSERTS], capture_output=True, text=True, check=False, timeout=120)
    assert "device-side assert" in done.stdout, done.stdout + done.stderr


def test_a_cache_is_written_in_place():
    def step(keys, at, key):
        keys[:, :, at] = key
        return (keys * 2).sum(2)
    keys = randn(1, 4, 50, 16)
    expected, compiled = keys.clone(), framejit.compile(step)
    large = randn(1, 4, 2 ** 16, 64)
    with torch.no_grad():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        framejit.compile(lambda *args: step(*args))(large, torch.tensor([7], device="cuda"), randn(1, 4, 1, 64))
        assert torch.cuda.max_memory_allocated() - before < large.nbytes / 2, "a copy of the cache was made"
        for turn in range(4):
            at, key = torch.tensor([turn * 7], device="cuda"), randn(1, 4, 1, 16)
            version = keys._version
            torch.testing.assert_close(compiled(keys, at, key), step(expected, at, key))
            assert torch.equal(keys, expected) and keys._version > version


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


def unaligned(x):
    """The same values at an address between words of 16 bytes, and in rows that are padded by three elements."""
    memory = torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)[1:].view(x.shape)
    padded = torch.empty(*x.shape[:-1], x.shape[-1] + 3, device="cuda", dtype=x.dtype)[..., :x.shape[-1]]
    return memory.copy_(x), padded.copy_(x)


def test_rows_of_every_length_and_address():
    for dtype in DTYPES:
        for size in ((300, 33), (9000, 16), (513, 2048), (260, 20000), (3, 131072)):
            x, w, b = randn(*size, dtype=dtype), randn(size[1], dtype=dtype), randn(size[1], dtype=dtype)
            check(kernel_times.block, x, w, b)
            check(lambda x: (x.abs().sum(-1), x.amax(-1), x.argmax(-1), torch.log_softmax(x, -1)), x)
            if size == (513, 2048):
                for moved in unaligned(x):
                    check(kernel_times.block, moved, w, b)
                    check(lambda x, w: (x * w, (x * w).sum(0)), moved, w)


def test_long_columns_and_whole_sums():
    for size in ((40000, 3), (9000, 16), (4099, 1023), (1, 100000)):
        x = randn(*size)
        check(lambda x: (x.sum(0), x.amax(0), x.abs().mean(0)), x)
        check(lambda x: x.abs().sum(), x)


def test_transposed_loads():
    for dtype in DTYPES:
        check(lambda x: x.T.contiguous() + 1, randn(1000, 333, dtype=dtype))
        check(lambda x, y: x.transpose(1, 2) * y, randn(3, 65, 40, dtype=dtype), randn(3, 40, 65, dtype=dtype))


def test_lengths_as_symbols():
    def columns(x):
        return x.sum(0), x.T * 2
    for fn in (lambda x: torch.softmax(x, -1), lambda x: F.layer_norm(x, (x.shape[-1],)), columns):
        compiled = framejit.compile(fn, dynamic=True)
        with torch.no_grad():
            for size in ((4, 64), (300, 37), (5, 30000), (1000, 8), (64, 64)):
                x = randn(*size)
                torch.testing.assert_close(compiled(x), fn(x), rtol=1e-5, atol=1e-4)


def compare_under_autocast(fn, *args, **settings):
    """Asserts that the last of some calls equals eager within the contract's bound."""
    def under_autocast():
        with torch.no_grad(), torch.autocast(args[0].device.type, torch.bfloat16):
            return fn(*args)

    eager = under_autocast()
    framejit.reset()
    with torch.no_grad():
        with torch.autocast(args[0].device.type, torch.bfloat16):
            compiled = framejit.compile(fn, **settings)
            for _ in range(6):
                got = compiled(*args)
    assert framejit.stats()["fallbacks"] == 0, framejit.stats()
    assert got.dtype == eager.dtype and got.stride() == eager.stride()
    assert_close(got, eager, exactly_as(under_autocast), "result")


class Residual(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = (torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.one, self.two = torch.nn.BatchNorm2d(channels), torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        y = torch.relu(self.one(self.a(x)))
        return torch.relu(self.two(self.b(y)) + x)


def test_convolutions_of_half_precision():
    for channels in (3, 64):
        model = torch.nn.Sequential(Residual(channels), Residual(channels), torch.nn.Conv2d(channels, 5, 1)).cuda()
        for norm in model.modules():
            if isinstance(norm, torch.nn.BatchNorm2d):
                norm.running_var.uniform_(0.5, 1.5)
                norm.running_mean.normal_()
        model.eval()
        x = randn(2, channels, 17, 19)
        for settings in ({}, {"options": {"freezing": True}}, {"options": {"freezing": True, "graphs": True}},
                         {"mode": "reduce-overhead"}):
            compare_under_autocast(model, x, **settings)


def test_pools_and_patches_after_norms():
    """A block of a kernel would walk over whole planes: the norm and what follows it are kernels of their own."""
    class Downsampled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.each = torch.nn.Conv2d(192, 192, 3, padding=1, groups=192)  # torch adds its bias in a call of its own
            self.norm, self.patches = torch.nn.LayerNorm(192), torch.nn.Conv2d(192, 64, 2, 2)

        def forward(self, x):
            x = self.each(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            return self.patches(self.norm(x).permute(0, 3, 1, 2))

    pooled = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64),
                                 torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)).cuda().eval()
    pooled[1].running_var.uniform_(0.5, 1.5)
    for settings in ({}, {"mode": "reduce-overhead"}):
        compare_under_autocast(pooled, randn(2, 3, 224, 224), **settings)
        compare_under_autocast(Downsampled().cuda(), randn(16, 28, 28, 192), **settings)


def test_products_whose_rows_are_no_whole_words():
    for columns in (1001, 1234, 1008):
        for bias in (True, False):
            model = torch.nn.Sequential(torch.nn.Linear(64, columns, bias=bias)).cuda()
            for rows in (5, 16, 600):
                for settings in ({}, {"mode": "reduce-overhead"}, {"options": {"freezing": True}}):
                    compare_under_autocast(model, randn(rows, 64), **settings)
    for dtype in (torch.bfloat16, torch.float16):
        weight, bias = randn(1001, 64, dtype=dtype), randn(1001, dtype=dtype)
        for rows in (17, 600):
            x = randn(rows, 64, dtype=dtype)
            check(lambda x, w, b: F.linear(x, w, b).relu(), x, weight, bias)
            check(lambda x, w: F.log_softmax((x @ w).float(), -1), x, weight.T.contiguous())


def test_weights_are_cast_together():
    model = torch.nn.Sequential(*(torch.nn.Linear(48, 48) for _ in range(6))).cuda()
    for settings in ({}, {"mode": "reduce-overhead"}):
        compare_under_autocast(model, randn(5, 48), **settings)


def test_weights_are_put_last_together():
    sizes = [(64, 64, 3, 3), (8, 3, 7, 7), (130, 300, 3, 3), (5, 1, 3, 3), (4, 6, 1, 1), (3, 5, 48, 48),
             (16, 512, 2, 2)]
    for dtype in (torch.bfloat16, torch.float16):
        for own in (sizes, sizes[:5], sizes[:1] * 300):
            tensors = [randn(*size) for size in own]
            tensors[0][0, 0, 0, :3] = torch.tensor([float("nan"), float("inf"), 1e38])
            for cast, tensor in zip(torch.ops.framejit.cast_all_last(tensors, dtype), tensors, strict=True):
                assert cast.is_contiguous(memory_format=torch.channels_last)
                torch.testing.assert_close(cast, tensor.to(dtype), rtol=0, atol=0, equal_nan=True)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            torch.ops.framejit.cast_all_last([randn(*size) for size in sizes[:1] * 30], dtype)
            torch.cuda.synchronize()
        assert sum(e.count for e in profile.key_averages() if "fj_cast_last" in e.key) == 1
    model = torch.nn.Sequential(*(torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(6))).cuda()
    for settings in ({}, {"mode": "reduce-overhead"}):
        compare_under_autocast(model, randn(2, 32, 12, 12), **settings)


def test_rows_of_several_blocks():
    for dtype in DTYPES:
        for rows, length in ((1, 40000), (3, 50257), (64, 50257), (9, 131072), (80, 50257)):
            x = randn(rows, length, dtype=dtype)
            check(lambda x: torch.softmax(x, -1), x, kernels=1)
            check(lambda x: torch.log_softmax(x * 2, -1), x, kernels=1)
    check(kernel_times.block, randn(2, 60001), randn(60001), randn(60001), kernels=1)
    check(lambda x: (x - x.amax(-1, keepdim=True), x.argmax(-1)), randn(5, 70001))


def test_shapes_of_attention_have_rules():
    """Torch's shape functions of these ops are in Python. The first call of one takes seconds: it imports SymPy."""
    for dtype in DTYPES:
        for queries, width in ((1, 128), (33, 64), (64, 128)):
            q, k, v = (randn(2, n, 4, width, dtype=dtype).transpose(1, 2) for n in (queries, 300, 300))
            mask = torch.rand(1, 1, queries, 300, device="cuda") > 0.3
            check(lambda *args: F.scaled_dot_product_attention(*args) * 2, q, k, v, mask)
            assert framejit.stats()["python_shapes"] == 0, (dtype, queries, width)


def main():
    if not torch.cuda.is_available():
        print("no GPU: nothing was run")
        return 0
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True, check=False).stdout.strip()
    print(f"{datetime.date.today()}, make test-gpu, {torch.cuda.get_device_name()}, driver {driver}, "
          f"CUDA {torch.version.cuda}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    failed = 0
    others = (test_graphs, test_row_products, test_one_query, test_short_attention_kernel)
    for name, test in [*globals().items(), *(item for file in others for item in vars(file).items())]:
        if not name.startswith("test_") or not callable(test):
            continue
        torch.manual_seed(0)  # the bound is a multiple of eager's error, so it depends on the numbers
        try:
            test()
            print("passed", name)
        except Exception as error:  # each test is reported
            failed += 1
            place = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            print("FAILED", name, ", ".join(place[1:4]), type(error).__name__, str(error)[:3000])
    if failed == 0 and "tests" not in sys.argv:
        host_times.main()
        kernel_times.run()
    print("failed" if failed else "all passed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
