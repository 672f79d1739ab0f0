"""Sparse gradients: a backward returns them as they are, and code that computes with them runs plainly."""
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import framejit


def dense(t):
    """A sparse tensor as a dense one."""
    return (t.is_sparse, t.to_dense()) if isinstance(t, torch.Tensor) else t


def table():
    torch.manual_seed(0)
    return nn.Embedding(10, 4, sparse=True)


def run(forward, compiled, steps=3):
    """The gradient of the table after each step. The forward runs compiled if `compiled` says so."""
    framejit.reset()
    e = table()
    f = compiled(lambda i: forward(e, i))
    grads = []
    for k in range(steps):
        f(torch.tensor([1, 2, k])).backward()
        grads.append(dense(e.weight.grad.clone()))
    return grads


def same(got, want):
    assert len(got) == len(want)
    for (sparse, value), (should, wanted) in zip(got, want):
        assert sparse == should
        torch.testing.assert_close(value, wanted)


def test_one_lookup():
    forward = lambda e, i: e(i).sin().sum()
    want = run(forward, lambda f: f)
    same(run(forward, framejit.compile), want)
    assert framejit.stats()["backward_runs"] == 3


def test_a_batch_without_elements():
    e = table()
    f = framejit.compile(lambda i: e(i).sum())
    for shape in ((1, 2), (2, 0), (2, 2)):
        e.zero_grad()
        f(torch.ones(shape, dtype=torch.long)).backward()
        assert dense(e.weight.grad)[0] and e.weight.grad.to_dense().sum() == 4 * shape[0] * shape[1]
    assert framejit.stats()["break_reasons"] == {"no_backward": 1}, framejit.stats()


@pytest.mark.nothing_captured
@pytest.mark.parametrize("forward", [
    pytest.param(lambda e, i: (e(i).sin() + e((i + 1) % 10)).sum(), id="two lookups"),
    pytest.param(lambda e, i: (e(i) @ e.weight.T).sin().sum(), id="the table is read too"),
    pytest.param(lambda e, i: e.weight.sum() + e(i).sin().sum(), id="a dense gradient first"),
    pytest.param(lambda e, i: F.embedding_bag(i[None], e.weight, sparse=True).sin().sum() + e(i).sum(), id="a bag"),
])
def test_what_computes_with_a_sparse_gradient(forward):
    """No kernel may read its memory: the sum of two gradients once raised in the backward."""
    want = run(forward, lambda f: f)
    same(run(forward, framejit.compile), want)
    assert framejit.stats()["break_reasons"] == {"no_backward": 1}, framejit.stats()


@pytest.mark.parametrize("use", [
    pytest.param(lambda g: g.is_sparse, id="is_sparse"), pytest.param(lambda g: g.layout, id="layout"),
    pytest.param(lambda g: dense(g * 2), id="times 2"), pytest.param(lambda g: g.to_dense() * 2, id="to_dense"),
])
def test_a_sparse_gradient_inside(use, request):
    name = request.node.callspec.id
    e = table()

    def f(i):
        return use(torch.autograd.grad(e(i).sin().sum(), e.weight)[0])
    framejit.reset()
    compiled, i = framejit.compile(f), torch.tensor([1, 2, 1])
    for _ in range(2):
        got, want = compiled(i), f(i)
        torch.testing.assert_close(got, want) if isinstance(want, (torch.Tensor, tuple)) else None
        assert isinstance(want, (torch.Tensor, tuple)) or got == want
    stats = framejit.stats()
    own = 3 if name == "times 2" else 1
    assert stats["break_reasons"] == {"unsupported_op": 1, "unsupported_tensor": own} and not stats["fallbacks"], stats


@pytest.mark.breaks(unsupported_tensor=15, unsupported_write=6, unknown_callable=4, unsupported_op=2)
def test_a_step_with_a_sparse_gradient():
    def train(compiled):
        framejit.reset()
        e = table()
        optimizer = torch.optim.SparseAdam(e.parameters(), 0.1)

        def step(i):
            optimizer.zero_grad()
            loss = e(i).square().sum()
            loss.backward()
            optimizer.step()
            return loss
        f = compiled(step)
        return [f(torch.tensor([1, 2, k])).detach() for k in range(3)] + [e.weight.detach()]
    torch.testing.assert_close(train(framejit.compile), train(lambda f: f))


@pytest.mark.nothing_captured
@pytest.mark.breaks(no_backward=1)
def test_the_reason_names_the_cause_and_the_line():
    details = []
    token = framejit._framejit.add_listener(lambda e: e["event"] == "Break" and details.append(e["fields"]["detail"]))
    weight = torch.randn(7, 3, requires_grad=True)

    def lookup(i):
        return F.embedding(i, weight, padding_idx=0, sparse=True)
    got = framejit.compile(lookup)(torch.tensor([1, 0, 2]))
    framejit._framejit.remove_listener(token)
    assert torch.equal(got, lookup(torch.tensor([1, 0, 2])))
    [detail] = details
    line = lookup.__code__.co_firstlineno + 1
    assert detail.endswith("the result size of index.Tensor depends on data, in the backward of "
                           f"test_sparse_gradients.py:{line} "
                           "test_the_reason_names_the_cause_and_the_line.<locals>.lookup"), detail
