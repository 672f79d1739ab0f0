"""Weights that are packed, folded and cast once: never stale, whoever writes to them, and gone when their model is."""
import ctypes
import gc
import os
import re
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit import _framejit
from check import exactly_as, fresh, same, same_as  # noqa: F401


def watch_is_refused():
    """Linux before 6.7, or a container that refuses userfaultfd (system call 323 of x86-64)."""
    release = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())
    user_mode_only = 1
    made = ctypes.CDLL(None).syscall(323, os.O_CLOEXEC | user_mode_only) if release >= (6, 7) else -1
    if made >= 0:
        os.close(made)
    return made < 0


pytestmark = pytest.mark.skipif(watch_is_refused(),
                                reason="not tested: this system has no write watch, so nothing is derived")
CALLS = 6  # with FRAMEJIT_DERIVE_AFTER of 3 the values are there


class Layers(torch.nn.Module):
    """A convolution with a norm, a convolution with an addition, linear layers of two sizes."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(32)
        self.body = torch.nn.Conv2d(32, 32, 3, padding=1)
        self.wide = torch.nn.Linear(32, 256)
        self.narrow = torch.nn.Linear(256, 512)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(self.body(x) + x)
        return self.narrow(F.gelu(self.wide(x.mean((2, 3)))))


def model():
    torch.manual_seed(0)
    return Layers().eval()


def image():
    torch.manual_seed(1)
    return torch.randn(4, 3, 16, 16)


def warm(compiled, x):
    for _ in range(CALLS):
        got = compiled(x)
    return got


def derived():
    return framejit.stats()["derived_values"]


def skip_without_packed_bfloat16():
    """Elsewhere products of bfloat16 are computed in float32, and nothing is packed for them. oneDNN claims support on
    every processor with AVX-512; the instruction decides (TargetInfo::multiplies_bf16)."""
    if not torch.cpu._is_avx512_bf16_supported():
        pytest.skip("not tested: packed weights of bfloat16, which this processor does not have")


def near_eagers(m, compiled, x):
    """The library sums in another order with a packed weight: the norms of several layers are a matter of luck."""
    same(compiled(x), m(x), exactly_as(lambda: m(x)), luck="norms")


def check(m, compiled, x):
    """Each element is near eager's. With an old weight, some are off by far more."""
    got, want = compiled(x), m(x)
    most = 3e-2 if torch.is_autocast_enabled("cpu") or want.dtype == torch.bfloat16 else 1e-5
    assert got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride()
    off = (got - want).abs() / (want.abs() + want.norm() / want.numel() ** 0.5)
    assert off.max() <= most, f"off by {off.max()}"


@pytest.fixture(autouse=True)
def weights_are_packed():
    """Even where that does not pay: on other machines, and for images as small as these."""
    _framejit.replace_costs("packed_rows=1, conversion=0")
    yield
    _framejit.replace_costs("")


def test_results_are_as_near_as_eagers():
    _framejit.replace_costs("conversion=0")
    m, x = model(), image()
    compiled = framejit.compile(m)
    warm(compiled, x)
    assert derived() >= 3
    near_eagers(m, compiled, x)


def test_values_are_derived_and_used():
    m, x = model(), image()
    compiled = framejit.compile(m)
    compiled(x)
    assert derived() == 0, "one call pays for nothing"
    check(m, compiled, x)
    warm(compiled, x)
    made = framejit.stats()["derived_made"]
    assert derived() >= 4, framejit.stats()
    warm(compiled, x)
    check(m, compiled, x)
    assert framejit.stats()["derived_made"] == made
    assert framejit.stats()["fallbacks"] == 0


def test_explain_says_what_would_be_derived():
    m, x = model(), image()
    explained = framejit.explain(m)(x)
    same_as(m, explained.result, x)
    told = [line for line in str(explained).splitlines() if line.startswith("derived from weights: ")]
    assert len(told) == len(explained.derived) == 1 and "L['self']._modules['stem']" in told[0], told
    assert int(re.match(r"derived from weights: (\d+) values", told[0])[1]) >= 4
    refused = framejit.explain(torch.nn.Linear(64, 64), options={"freezing": False})(torch.randn(64, 64))
    assert not refused.derived
    compiled = framejit.compile(m)
    compiled(x)
    made = framejit.stats()["derived_made"]
    compiled(x)
    assert framejit.stats()["derived_made"] == made, "a compiled call waits as before"


def writes_by_numpy(m):
    m.wide.weight.detach().numpy()[3, 3] += 1


def another_thread(m):
    thread = threading.Thread(target=lambda: m.body.weight.data.mul_(1.5))
    thread.start()
    thread.join()


def swaps(m):
    other = torch.nn.Parameter(torch.randn_like(m.wide.weight))
    torch.utils.swap_tensors(m.wide.weight, other)


def optimizer_step(m):
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    for p in m.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()


def training_pass(m):
    m.train()
    m(image() + 3)
    m.eval()


def prunes(m):
    m.narrow.weight.data[m.narrow.weight.abs() < 0.05] = 0


def half_and_back(m):
    m.bfloat16()
    m.float()


def reads_a_file(m):
    weight = m.wide.weight.detach().numpy()
    with open("/dev/zero", "rb", buffering=0) as zeros:
        assert zeros.readinto(memoryview(weight).cast("B")[:64]) == 64


WRITES = {
    "in place": lambda m: m.wide.weight.mul_(2),
    ".data in place": lambda m: m.stem.weight.data.mul_(2),
    ".data of a norm": lambda m: m.norm.weight.data.add_(1),
    ".data of a bias": lambda m: m.wide.bias.data.add_(1),
    ".data assigned": lambda m: setattr(m.wide.weight, "data", torch.randn_like(m.wide.weight)),
    "a new parameter": lambda m: setattr(m, "wide", torch.nn.Linear(32, 256)),
    "running statistics": lambda m: m.norm.running_var.mul_(2),
    "a training pass": training_pass,
    "an optimizer step": optimizer_step,
    "a numpy view": writes_by_numpy,
    "load_state_dict": lambda m: m.load_state_dict(Layers().state_dict()),
    "load_state_dict that assigns": lambda m: m.load_state_dict(Layers().state_dict(), assign=True),
    "bfloat16 and back": half_and_back,
    "swap_tensors": swaps,
    "set_": lambda m: m.wide.weight.set_(torch.randn_like(m.wide.weight)),
    "LoRA merge": lambda m: m.wide.weight.data.addmm_(torch.ones(256, 2), torch.ones(2, 32)),
    "EMA": lambda m: [p.data.lerp_(torch.zeros_like(p), 0.1) for p in m.parameters()],
    "pruning": prunes,
    "another thread": another_thread,
    "a system call": reads_a_file,
}


@pytest.mark.parametrize("how", WRITES)
def test_every_write_is_seen(how):
    m, x = model(), image()
    compiled = framejit.compile(m)
    warm(compiled, x)
    assert derived() >= 4
    for again in range(2):
        before = m(x)
        WRITES[how](m)
        assert again or not torch.equal(m(x), before)
        check(m, compiled, x)
        for _ in range(3 * CALLS):
            check(m, compiled, x)
        assert derived() >= 4, "they are made anew"


def test_a_parameter_within_a_larger_tensor():
    whole = torch.randn(40000)
    m = torch.nn.Linear(128, 256)
    m.weight = torch.nn.Parameter(whole[100:100 + 128 * 256].view(256, 128))
    compiled, x = framejit.compile(m), torch.randn(4, 128)
    warm(compiled, x)
    assert derived() > 0
    whole[5000] += 100
    check(m, compiled, x)


@pytest.mark.filterwarnings("ignore")
def test_memory_of_another_process():
    m = torch.nn.Linear(128, 256).share_memory()
    compiled, x = framejit.compile(m), torch.randn(4, 128)
    warm(compiled, x)
    assert derived() == 0, "shared memory is not watched"
    child = os.fork()
    if child == 0:
        m.weight.data.fill_(1)
        os._exit(0)
    os.waitpid(child, 0)
    check(m, compiled, x)


def test_fork(one_thread):  # OpenMP's threads are gone in a forked child
    m, x = model(), image()
    compiled = framejit.compile(m)
    warm(compiled, x)
    child = os.fork()
    if child == 0:
        try:
            check(m, compiled, x)
            m.wide.weight.data.mul_(3)
            for _ in range(2 * CALLS):
                check(m, compiled, x)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    check(m, compiled, x)
    m.wide.weight.data.mul_(2)
    check(m, compiled, x)


def test_values_go_with_their_model():
    m, x = model(), image()
    compiled = framejit.compile(m)
    warm(compiled, x)
    assert derived() >= 4
    del m, compiled
    gc.collect()
    assert derived() == 0 and framejit.stats()["derived_bytes"] == 0
    other = model()
    with torch.no_grad():
        other.wide.weight.add_(1)
    compiled = framejit.compile(other)
    for _ in range(CALLS):
        check(other, compiled, x)


def test_instances_share_the_graph_and_not_the_values():
    blocks = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(4))
    compiled, x = [framejit.compile(b) for b in blocks], torch.randn(8, 256)
    for _ in range(CALLS):
        for b, c in zip(blocks, compiled):
            check(b, c, x)
    assert framejit.stats()["graphs"] == 1
    assert derived() == 4


def test_tied_weights_are_one_value():
    m = torch.nn.Sequential(torch.nn.Linear(256, 256, bias=False), torch.nn.Linear(256, 256, bias=False))
    m[1].weight = m[0].weight
    compiled, x = framejit.compile(m), torch.randn(8, 256)
    warm(compiled, x)
    check(m, compiled, x)
    assert derived() == 1


def test_special_values_pass():
    m, x = model(), image()
    compiled = framejit.compile(m)
    warm(compiled, x)
    x[0, 0, 3, 3] = float("nan")
    x[1, 1, 5, 5] = float("inf")
    want, got = m(x), compiled(x)
    assert torch.equal(want.isnan(), got.isnan()) and torch.equal(want.isinf(), got.isinf())


def test_freezing_is_asked_for_or_refused():
    x = torch.randn(4, 128)
    never = torch.nn.Linear(128, 256)
    warm(framejit.compile(never, options={"freezing": False}), x)
    assert derived() == 0
    trusted = torch.nn.Linear(128, 256).share_memory()
    compiled = framejit.compile(trusted, options={"freezing": True})
    warm(compiled, x)
    assert derived() > 0
    trusted.weight.mul_(2)  # its version changes
    check(trusted, compiled, x)
    warm(compiled, x)
    other = torch.nn.Linear(128, 256).share_memory()
    compiled_other = framejit.compile(other, options={"freezing": True})
    warm(compiled_other, x)
    old = compiled_other(x)
    trusted.weight.data.mul_(2)
    other.weight.data.mul_(2)
    framejit.refresh(trusted)
    check(trusted, compiled, x)
    assert torch.equal(compiled_other(x), old)
    framejit.refresh(other)
    check(other, compiled_other, x)
    with pytest.raises(TypeError, match="the nn.Module whose weights have changed, not function"):
        framejit.refresh(check)
    with pytest.raises(ValueError, match="freezing"):
        framejit.compile(never, options={"freezing": "maybe"})


def test_new_weights_in_each_call():
    layer, x = torch.nn.Linear(128, 256).bfloat16(), torch.randn(4, 128).bfloat16()
    compiled, alive = framejit.compile(layer), []
    for _ in range(200):
        alive.append(layer.weight)
        layer.weight = torch.nn.Parameter(torch.randn_like(layer.weight))
        check(layer, compiled, x)
    assert framejit.stats()["derived_made"] <= 6, "each change doubles the calls that are waited for"


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(128, 256)

    def forward(self, x, rows):
        return torch.embedding(self.wide(x), rows)


def test_an_error_of_a_call_drops_nothing():
    skip_without_packed_bfloat16()
    m, x = Rows().bfloat16(), torch.randn(8, 128).bfloat16()
    compiled = framejit.compile(m)
    for _ in range(CALLS):
        compiled(x, torch.tensor([1, 2]))
    held, made = derived(), framejit.stats()["derived_made"]
    assert held > 0
    for _ in range(3):
        with pytest.raises(IndexError):
            compiled(x, torch.tensor([1, 80]))
    assert (derived(), framejit.stats()["derived_made"]) == (held, made)


def test_memory_that_is_not_there_takes_what_was_derived():
    skip_without_packed_bfloat16()
    class Grown(Rows):
        def forward(self, x, size):
            return torch.zeros(size).sort()[0][:1].bfloat16() + self.wide(x)

    m, x = Grown().bfloat16(), torch.randn(8, 128).bfloat16()
    compiled = framejit.compile(m)
    for n in range(CALLS):
        compiled(x, 10 + n)
    assert derived() > 0
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        compiled(x, 1 << 50)
    assert derived() == 0


def test_bfloat16_under_autocast():
    m, x = model(), image()
    compiled = framejit.compile(m)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(CALLS):
            check(m, compiled, x)
    assert derived() > 0
    m.wide.weight.data.mul_(2)
    with torch.autocast("cpu", torch.bfloat16):
        check(m, compiled, x)


def random_writes(compiled, m, x, seed):
    """Calls and writes in random order."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        for _ in range(int(rng.integers(1, 8))):
            check(m, compiled, x)
        WRITES[sorted(WRITES)[int(rng.integers(len(WRITES)))]](m)
        for p in m.parameters():
            p.data.clamp_(-3, 3)
    check(m, compiled, x)


@pytest.mark.parametrize("seed", range(2))
def test_random_programs_with_random_writes(seed):
    m = model()
    random_writes(framejit.compile(m), m, image(), seed)
    assert framejit.stats()["derived_made"] > 4


class TestFloat32Products:
    """MKL's packed weights, even on machines where they do not pay."""

    @staticmethod
    def layers(sizes):
        torch.manual_seed(2)
        return torch.nn.Sequential(*[torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]).eval()

    @staticmethod
    def packed(m, *inputs):
        framejit.reset()
        compiled = framejit.compile(m)
        for x in inputs:
            warm(compiled, x)
        return compiled, derived()

    @pytest.mark.parametrize("rows", [4, 11, 16, 17, 100, 256])
    def test_results_are_as_near_as_eagers(self, rows):
        _framejit.replace_costs("packed_rows=4")
        m, x = self.layers([512, 768, 320, 512]), torch.randn(rows, 512)
        compiled, values = self.packed(m, x)
        assert values == 3
        near_eagers(m, compiled, x)

    def test_few_rows_and_rows_that_vary_are_left_alone(self):
        _framejit.replace_costs("packed_rows=16")
        m = self.layers([512, 768, 320, 512])
        assert self.packed(m, torch.randn(15, 512))[1] == 0
        compiled, values = self.packed(m, torch.randn(16, 512), torch.randn(40, 512), torch.randn(90, 512))
        assert values == 3, "of the first number of rows alone"
        for rows in (16, 40, 90, 5):
            x = torch.randn(rows, 512)
            same_as(m, compiled(x), x)

    def test_a_weight_that_lies_the_other_way_round(self):
        _framejit.replace_costs("packed_rows=16")

        class Turned(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.randn(512, 640))
                self.bias = torch.nn.Parameter(torch.randn(640))

            def forward(self, x):
                return torch.addmm(self.bias, x, self.weight).relu()

        m, x = Turned(), torch.randn(32, 512)
        compiled, values = self.packed(m, x)
        assert values == 1
        same_as(m, compiled(x), x)
        m.weight.data.mul_(2)
        same_as(m, compiled(x), x)
