"""Gradients lie in the memory of values that were saved for the backward, if no one else holds these."""
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import framejit
from steps import Program, backward, check_step

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
from memory import peak_of  # noqa: E402

ROWS = 64


def loss_of(logits, labels):
    return F.cross_entropy(logits, labels)


@pytest.mark.parametrize("classes", [2048, 50_000])  # a row fits into the scratch of a kernel, or does not
def test_cross_entropy_needs_its_logits_once(classes):
    labels = torch.randint(0, classes, (ROWS,))
    peaks = {}
    for name, run in ("eager", loss_of), ("ours", framejit.compile(loss_of)):
        logits = torch.randn(ROWS, classes, requires_grad=True)

        def call():
            run(logits, labels).backward()
        for _ in range(3):
            call()
            logits.grad = None  # the memory of an earlier gradient, freed in the call, may count or not
        peaks[name] = peak_of(call)[0]
    bytes_of_logits = ROWS * classes * 4
    assert bytes_of_logits <= peaks["ours"] < 1.1 * bytes_of_logits, peaks
    assert peaks["ours"] <= peaks["eager"] / 2, peaks


@pytest.mark.parametrize("loss", [lambda x, w: (x @ w.t()).sum(), lambda x, w: (w.exp() * x[0]).sin().sum()],
                         ids=["a product", "kernels"])
def test_large_gradients_and_saved_values_take_no_new_pages(loss):
    run, x = framejit.compile(loss), torch.randn(16, 4096)
    w = torch.randn(4096, 4096, requires_grad=True)  # torch's allocator gives back what is as large as its gradient

    def step():
        run(x, w).backward()
        w.grad = None
    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        step()
    pages = w.nbytes // resource.getpagesize()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages / 10
    assert framejit.stats()["backward_runs"] == 6


def test_a_gradient_that_passes_through_a_view_is_not_copied():
    """The gradient of logits in two shapes: of the loss's input, and of the output."""
    layer, labels = torch.nn.Linear(4, 50_000), torch.randint(0, 50_000, (ROWS,))

    def logits_and_loss(x):
        logits = layer(x)
        return logits, F.cross_entropy(logits.view(ROWS, -1), labels)
    run, x = framejit.compile(logits_and_loss), torch.randn(ROWS // 8, 8, 4)
    for _ in range(3):
        logits, loss = run(x)
        peak = peak_of(loss.backward)[0]
    assert peak < logits.nbytes / 2, peak
    assert framejit.stats()["backward_runs"] == 9  # of the loss, of the view, of the layer


SHOWN = {
    "a view": lambda x, z: x.view(-1) + 1.0,
    "itself": lambda x, z: x + 1.0,
    "transposed": lambda x, z: x.t() + 1.0,
    "expanded": lambda x, z: x.expand(4, 3, 5) + 1.0,
    "of two": lambda x, z: x + z,
    "of two, in another shape": lambda x, z: (x + z).view(-1),
    "two views": lambda x, z: x.view(-1) + z.reshape(5, 3).view(-1),
    "two equal views": lambda x, z: x.view(-1) + z.view(-1),
    "added up": lambda x, z: x.view(-1) + x.reshape(5, 3).view(-1),
    "summed": lambda x, z: x.view(1, 3, 5).sum(0) + 1.0,
    "computed": lambda x, z: x.view(-1).neg() + z.view(-1),
}


@pytest.mark.parametrize("keeps", [True, False], ids=["the program keeps the gradient", "it does not"])
@pytest.mark.parametrize("name", SHOWN)
def test_gradients_lie_in_the_memory_of_the_given_one_only_where_those_of_eager_do(name, keeps):
    def gradients(run):
        x, z = torch.ones(3, 5, requires_grad=True), torch.ones(3, 5, requires_grad=True)
        out, given = run(x, z), []
        out.register_hook(lambda g: given.append(g if keeps else g.data_ptr()))
        (out * torch.arange(1.0, out.numel() + 1).view(out.shape)).sum().backward()
        address = given[0].data_ptr() if keeps else given[0]
        found = [t.grad for t in (x, z) if t.grad is not None]
        return found, [g.data_ptr() == address for g in found]
    run = framejit.compile(SHOWN[name])
    want, are_shown = gradients(SHOWN[name])
    for _ in range(2):
        got, are_ours = gradients(run)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert all(eagers or not ours for eagers, ours in zip(are_shown, are_ours))
        if name == "a view":
            assert are_ours == are_shown == [True]
    assert framejit.stats()["backward_runs"] == 2


def squares(x):
    return x.exp().sin()


def test_a_graph_that_is_kept_has_its_values_again():
    def step(run, args, k):
        y = run(*args)
        for keep in (True, True, False):
            backward(y, retain_graph=keep)
        return y
    check_step(lambda: Program(squares, torch.randn(7, 40, requires_grad=True), step=step), graphs=1, backward=9)


def test_gradients_of_several_steps_do_not_share_memory():
    run, x = framejit.compile(squares), torch.randn(7, 40, requires_grad=True)
    kept = []
    for _ in range(5):
        kept.append(torch.autograd.grad(run(x).sum(), x)[0])
    assert len({g.data_ptr() for g in kept}) == 5
    want, = torch.autograd.grad(squares(x).sum(), x)
    for got in kept:
        torch.testing.assert_close(got, want)
    assert framejit.stats()["backward_runs"] == 5


@pytest.mark.parametrize("give", [lambda array: torch.from_numpy(array), lambda array: torch.tensor(array)],
                         ids=["their memory", "a copy"])
def test_what_hooks_give_back_is_not_written_over(give):
    run, x, packed = framejit.compile(squares), torch.randn(7, 40, requires_grad=True), []

    def pack(tensor):
        packed.append(tensor.detach().numpy().copy())
        return len(packed) - 1
    want, = torch.autograd.grad(squares(x).sum(), x)
    for _ in range(3):
        packed.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda i: give(packed[i])):
            y = run(x)
        before = [array.copy() for array in packed]
        got, = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(got, want)
        assert before and all(np.array_equal(a, b) for a, b in zip(before, packed))
    assert framejit.stats()["backward_runs"] == 3


def test_a_saved_value_that_the_program_has_too():
    def two(x):
        y = x.exp()
        return y, y.sin()

    def step(run, args, k):
        y, z = run(*args)
        z.sum().backward()
        return y, z, y.sum()
    check_step(lambda: Program(two, torch.randn(7, 40, requires_grad=True), step=step), graphs=1)


def test_a_compile_takes_no_memory_of_the_size_of_an_embedding():
    weight = torch.empty(2_000_000, 64, requires_grad=True)  # pages that nobody has touched
    run = framejit.compile(lambda weight, at: F.embedding(at, weight).sum())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    run(weight, torch.zeros(4, dtype=torch.int64))
    pages = weight.nbytes // resource.getpagesize()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages / 4
    assert framejit.stats()["graphs"] == 1
