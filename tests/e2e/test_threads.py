"""Bits do not depend on the number of threads: kernels that are large enough for several, one case for each way of
dividing them, and models."""
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import fresh, tensors_in, threads  # noqa: F401
from small_models import make
from test_own_kernels import CASES

COUNTS = (1, 2, 3)
SHAPE = (300, 1030)
# Cases about a few rows or columns, or with a result that is a square of their size.
SHAPES = {"nll_loss": (4, 90_000), "nll_loss of images": (4, 6), "cross_entropy": (4, 90_000),
          "copies of parts": (60_000, 6), "diagonals": (64, 96), "trace": (4000, 4001), "max_pool": (64, 96),
          "avg_pool": (64, 96), "pools of many lanes": (64, 96)}
# nests of at most a few thousand points
ONE_THREAD = {"trace", "nll_loss", "nll_loss of images", "index_select", "without dimensions"}


def parallel_kernels(fn, *args):
    """How many kernels of a call's plans are divided among threads."""
    report = framejit.explain(fn)(*args)
    steps = [line.strip() for event in report.events if event.event == "Steps" for line in event.artefact.split("\n")]
    return sum(s.startswith("kernel ") and " grain " in s and " grain -1" not in s for s in steps)


def test_small_work_stays_on_one_thread():
    """Thirty steps over 4096 elements take microseconds: waiting for a thread whose core is busy takes longer."""
    def steps(y, x):
        for _ in range(30):
            y = y * x + 0.1
        return y
    with threads(2):
        assert parallel_kernels(steps, torch.randn(4096), torch.rand(4096)) == 0
        assert parallel_kernels(steps, torch.randn(1 << 20), torch.rand(1 << 20)) == 1


def bits(value):
    return [t.contiguous().view(-1).view(torch.uint8) for t in tensors_in(value)]


def results_on(fn, args, kwargs, counts):
    results = []
    for count in counts:
        with threads(count):
            results.append(bits(fn(*args, **kwargs)))
    return results


def assert_same_bits(compiled, args):
    results = results_on(compiled, args, {}, COUNTS)
    stats = framejit.stats()
    assert stats["graphs"] and not stats["fallbacks"], stats
    for count, other in zip(COUNTS[1:], results[1:]):
        different = [i for i, (a, b) in enumerate(zip(results[0], other)) if not torch.equal(a, b)]
        assert not different, f"results {different} on {count} threads differ from those on one"


def random(shape, dtype, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.breaks(data_dependent_value={"foreach alpha": 2})
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_own_kernels(name, dtype):
    args = [random(SHAPES.get(name, SHAPE), dtype, seed) for seed in range(3)]
    CASES[name](*args)  # torch imports modules in a first call
    assert_same_bits(framejit.compile(CASES[name]), args)
    framejit.reset()
    assert bool(parallel_kernels(CASES[name], *args)) != (name in ONE_THREAD)


def mean_and_scale(x, w):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


WAYS = {
    "flat": lambda x, y, w: torch.sigmoid(x) * y + w,
    "tiles": lambda x, y, w: x.t().contiguous() + torch.relu(y).t(),
    "rows": lambda x, y, w: torch.softmax(x * 0.3, -1),
    "rows, stepped": lambda x, y, w: torch.softmax(x[:, ::2], -1),
    "layer_norm chain": lambda x, y, w: F.gelu(F.layer_norm(x + y, x.shape[-1:], w, w)) + x,
    "rms_norm chain": lambda x, y, w: mean_and_scale(x + y, w) * torch.sigmoid(y),
    "group_norm": lambda x, y, w: F.group_norm(x.view(5, 60, -1), 4) + 1,
    "batch_norm": lambda x, y, w: torch.relu(F.batch_norm(x, w.sigmoid(), w.sigmoid(), w, w)),
    "columns": lambda x, y, w: (x.sum(0), (x * y).amax(0), x.var(0)),
    "columns of three": lambda x, y, w: x.view(3, 100, -1).logsumexp(1),
    "few rows": lambda x, y, w: x.view(3, -1).sum(1),
    "whole": lambda x, y, w: (x.sum(), x.amin(), x.exp().mean(), x.std(), x.argmax()),
    "argmax": lambda x, y, w: (x.argmax(1), y.argmin(0)),
    "ordered": lambda x, y, w: (x.cumsum(1), y.cumsum(0), x.cummax(1)[0]),
    "gathered": lambda x, y, w: F.embedding(torch.arange(900).reshape(30, 30) % 300, x) * 2,
    "scattered": lambda x, y, w: x.index_add(0, torch.arange(300) // 7, y),
    "cat": lambda x, y, w: torch.cat((x, y * 2, x[:, :7]), 1).tanh(),
    "written": lambda x, y, w: x.clone().add_(y).mul_(w),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_ways_of_cutting(way, dtype, dynamic):
    args = [random(SHAPE, dtype, 0), random(SHAPE, dtype, 1), random(SHAPE[1:], dtype, 2)]
    assert_same_bits(framejit.compile(WAYS[way], dynamic=dynamic), args)
    framejit.reset()
    assert parallel_kernels(WAYS[way], *args)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8], ids=str)
def test_integers(dtype):
    x, y = ((random(SHAPE, torch.float32, seed) * 50).to(dtype) for seed in range(2))
    assert_same_bits(framejit.compile(lambda x, y: (x * y + 3, x.sum(0), y.sum(), x.amax(1), (x > y).t().contiguous(),
                                                    x.cumsum(1))), (x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "convnext"])
def test_models(name, dtype):
    """The products are the library's: if its own bits depend on threads, as eager's show, ours may too."""
    pytest.importorskip("transformers")
    model, inputs = make(name, "sdpa", dtype)
    inputs = {k: v.repeat(32, *[1] * (v.dim() - 1)) for k, v in inputs.items()}

    def call(**kwargs):
        return model(**kwargs).to_tuple()[:1]
    compiled = framejit.compile(call)
    eager, ours = results_on(call, (), inputs, (1, 2)), results_on(compiled, (), inputs, (1, 2))
    assert framejit.stats()["graphs"] == 1 and not framejit.stats()["fallbacks"]
    if not torch.equal(*(r[0] for r in eager)):
        pytest.skip("not tested: eager's own bits depend on the threads")
    assert torch.equal(*(r[0] for r in ours))


TEAM = """
import os, sys, threading
import torch
torch.set_num_threads(3)
def count():
    return len(os.listdir("/proc/self/task"))
before = count()
import framejit
f = framejit.compile(lambda x: torch.softmax(x + 1, -1))
with torch.no_grad():
    small, large = torch.randn(4, 8), torch.randn(600, 1024)
    f(small)
    assert count() == before, "a small call makes no threads"
    expected = f(large)
    assert count() == before + 2, count() - before
    f(large)
    assert count() == before + 2
    results = [None] * 4
    def call(i):
        with torch.no_grad():
            for _ in range(50):
                results[i] = f(large)
    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    [t.start() for t in callers], [t.join() for t in callers]
    assert all(torch.equal(r, expected) for r in results)
    as_bytes = expected.numpy().tobytes()
    child = os.fork()
    if child == 0:
        alone = count()
        right = f(large).numpy().tobytes() == as_bytes and \\
            count() == alone + 2  # OpenMP of the system does not work in a child
        os._exit(0 if right else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(f(large), expected)
print("fine")
"""


@pytest.mark.nothing_captured
def test_when_threads_are_made():
    """Not at import, not for small calls; anew in a child; with several callers at once."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    ran = subprocess.run([sys.executable, "-c", TEAM], capture_output=True, text=True, timeout=120, env=environment)
    assert ran.returncode == 0 and ran.stdout == "fine\n", ran.stderr


DAEMONS = """
import sys, threading
import torch, framejit
torch.set_num_threads(2)
class Dropped:
    def __del__(self):
        sum(i for i in range(200))
def f(x, log):
    x.mul_(1.0)
    log.append(Dropped())
    print(end="")
    log.clear()
    x.add_(0.0)
    last = Dropped()
    hash("a")
    x.mul_(1.0)
inputs = [torch.randn(rows, columns) for rows, columns in ((4, 8), (600, 1024), (1024, 1024))]
compiled, running = framejit.compile(f), threading.Semaphore(0)
def work(x):
    log = []
    with torch.no_grad():
        while True:
            compiled(x, log)
            running.release()
with torch.no_grad():
    for _ in range(4):
        graphs = framejit.stats()["graphs"]
        [compiled(x, []) for x in inputs]
for x in inputs:
    threading.Thread(target=work, args=(x,), daemon=True).start()
for _ in range(int(sys.argv[1])):
    assert running.acquire(timeout=60)
assert graphs > 0 and framejit.stats()["graphs"] == graphs and not framejit.stats()["fallbacks"], framejit.stats()
print("fine")
"""


@pytest.mark.slow
@pytest.mark.nothing_captured
def test_daemon_threads_when_the_process_ends():
    """They run segments, kernels, breaks and __del__. No tensor is made or freed, and nothing is compiled: torch's own
    functions release the GIL, and until Python 3.13 they abort the process when they take it back (plain daemon
    threads that compute do that too)."""
    for rounds in (3, 30, 100, 200, 300, 1000):
        ran = subprocess.run([sys.executable, "-c", DAEMONS, str(rounds)], capture_output=True, text=True, timeout=120)
        assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr
