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
