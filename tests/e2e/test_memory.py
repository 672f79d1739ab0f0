"""The peak memory of a call is at most eager's (benchmarks/memory.py measures it), and results stay right."""
import gc
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, fresh, same_as  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from memory import peak_of  # noqa: E402

SIZE = 256


def matrices(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape) / 8 for shape in shapes]


def mlp(x, w):
    for _ in range(3):
        x = F.gelu(x @ w)
        x = torch.tanh(x @ w.t())
    return x


def attention(x, w):
    q, k, v = (x @ w).view(SIZE, 4, -1).transpose(0, 1), (x @ w.t()).view(SIZE, 4, -1).transpose(0, 1), x.view(SIZE, 4,
        -1).transpose(0, 1)
    scores = (q @ k.transpose(1, 2)) * 0.125
    return ((scores + 1).softmax(-1) @ v).transpose(0, 1).reshape(SIZE, -1) @ w


def norms(x, w):
    for _ in range(3):
        x = F.layer_norm(x @ w, [SIZE])
        x = F.rms_norm(x @ w + x, [SIZE])
    return x


def written_in_place(x, w):
    y = x @ w
    y.relu_().add_(1).mul_(0.5)
    z = y @ w
    return z.tanh_()


LAYERS = [torch.nn.Linear(SIZE, SIZE) for _ in range(6)]


def autocast(x, w):
    """Each weight is cast before its product; eager keeps all its casts until the end."""
    with torch.autocast("cpu", torch.bfloat16):
        for layer in LAYERS:
            x = torch.relu(layer(x))
        return x


def convolutions(x, w):
    kernel = w[:64, :144].reshape(64, 16, 3, 3)
    y = F.conv2d(x.view(1, 16, 64, 64), kernel, padding=1)
    y = torch.relu(F.batch_norm(y, w[0, :64], w[1, :64].abs() + 1))
    return F.avg_pool2d(torch.sigmoid(y) * 2, 2)


def peaks(plain, compiled):
    """(peak, kept) of each call. Memory from other tests may be freed during a measurement: then both are measured once
    more."""
    for _ in range(5):
        gc.collect()
        of_each = peak_of(plain), peak_of(compiled)
        if of_each[0][1] == of_each[1][1]:
            break
    return of_each


PROGRAMS = {f.__name__: f for f in (mlp, attention, norms, written_in_place, autocast, convolutions)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_peak_is_at_most_eagers(name):
    f, arguments = PROGRAMS[name], matrices((SIZE, SIZE), (SIZE, SIZE))
    compiled = framejit.compile(f)
    for _ in range(2):
        compiled(*arguments)
    before = framejit.stats()["hits"]
    (eager, kept), (ours, ours_kept) = peaks(lambda: f(*arguments), lambda: compiled(*arguments))
    assert framejit.stats()["hits"] > before
    assert ours_kept == kept
    assert kept <= ours <= eager, f"{ours} bytes, eager {eager}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal(name):
    check(PROGRAMS[name], *matrices((SIZE, SIZE), (SIZE, SIZE)), breaks=0)


CHAINS = {
    "read again": lambda x, w: (lambda y: (y.relu() @ w) + y)(x @ w),
    "two results of one operand": lambda x, w: (lambda y: (y.exp() @ w) + (y.sin() @ w))(x @ w),
    "both leave": lambda x, w: (lambda y: (y.exp(), (y.sin() @ w).tanh()))(x @ w),
    "a view leaves": lambda x, w: (lambda y: ((y @ w).cos()[3:].t(), y.sum()))((x @ w).exp()),
    "in another dtype": lambda x, w: ((x @ w) * 100).to(torch.int32),
    "in another shape": lambda x, w: ((x @ w).view(2, -1, SIZE) + 1).relu(),
    "by columns": lambda x, w: ((x @ w).softmax(0) @ w).flip(0),
    "transposed": lambda x, w: (x @ w).t().contiguous().exp(),
    "written to an argument": lambda x, w: x.copy_((x @ w).exp()),
    "the same twice": lambda x, w: [(x @ w).tanh().tanh_()] * 2,
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_results_over_operands(name, inference):
    with torch.inference_mode(inference):
        check(CHAINS[name], *matrices((SIZE, SIZE), (SIZE, SIZE)), breaks=0)


def test_results_are_tensors_of_their_own():
    f = framejit.compile(lambda x, w: (x @ w).relu())
    x, w = matrices((SIZE, SIZE), (SIZE, SIZE))
    first = [f(x, w) for _ in range(3)]
    assert len({t.data_ptr() for t in first}) == 3 and all(t._version == 0 and t._base is None
                                                           and t.storage_offset() == 0 for t in first)
    first[0].zero_()
    assert torch.equal(first[1], (x @ w).relu())


class Residual(torch.nn.Module):
    """First large activations; then convolutions whose weight, which the library reorders in each call, is larger than
    the activations."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 32, 3, padding=1)
        self.widen = torch.nn.Conv2d(32, 512, 1)
        self.last = torch.nn.ModuleList(torch.nn.Conv2d(512, 512, 3, padding=1) for _ in range(2))
        self.head = torch.nn.Linear(512, 100)

    def forward(self, x):
        x = F.avg_pool2d(torch.sigmoid(self.first(x)) * 2, 4)
        x = F.max_pool2d(torch.relu(self.widen(x)), 4)
        for layer in self.last:
            x = torch.relu(layer(x)) + x
        return self.head(x.mean((2, 3)))


class LanguageModel(torch.nn.Module):
    """Its result is larger than everything that it is computed from."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(SIZE, 3 * SIZE) for _ in range(2))
        self.head = torch.nn.Linear(SIZE, 12000, bias=False)

    def forward(self, x):
        for layer in self.layers:
            q, k, v = (t.view(1, -1, 4, SIZE // 4).transpose(1, 2) for t in layer(x).split(SIZE, -1))
            x = F.layer_norm(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
                             + x, [SIZE])
        return self.head(x)


BESIDE_THE_ARENA = {"weights": (Residual, (1, 3, 128, 128)), "logits": (LanguageModel, (1, 64, SIZE))}


@pytest.mark.parametrize("name", BESIDE_THE_ARENA)
def test_peak_where_tensors_stand_beside_the_arena(name):
    model, shape = BESIDE_THE_ARENA[name]
    model, x = model().eval(), matrices(shape)[0]
    compiled = framejit.compile(model)
    with torch.no_grad():
        for _ in range(2):
            same_as(model, compiled(x), x)
        before = framejit.stats()["hits"]
        (eager, kept), (ours, ours_kept) = peaks(lambda: model(x), lambda: compiled(x))
    assert framejit.stats()["hits"] > before
    assert ours_kept == kept
    assert kept <= ours <= eager, f"{ours} bytes, eager {eager}"


def flags_of(tensor):
    """The flags of the mapping in which a tensor begins (VmFlags of /proc/self/smaps)."""
    inside = False
    for line in open("/proc/self/smaps"):
        words = line.split()
        if words[0] == "VmFlags:" and inside:
            return words[1:]
        if not words[0].endswith(":"):
            low, high = (int(end, 16) for end in words[0].split("-"))
            inside = low <= tensor.data_ptr() < high
    return []


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(),
                    reason="not tested: this system has no huge pages to lend")
def test_large_results_ask_for_huge_pages():
    compiled = framejit.compile(lambda x: torch.relu(x) + 1)
    large, small = torch.randn(4096, 4096), torch.randn(64, 64)
    before = "hg" in flags_of(large)  # malloc may have taken it from memory in which a result was
    assert "hg" in flags_of(compiled(large))
    assert ("hg" in flags_of(large)) == before
    assert torch.equal(compiled(large), torch.relu(large) + 1)
    assert torch.equal(compiled(small), torch.relu(small) + 1)
