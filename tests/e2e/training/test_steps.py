"""check_step() itself: it sees a difference in each thing that it compares, and accepts roundings."""
import pytest
import torch
from torch import nn

import framejit
import steps
from steps import Program, assert_counts, check_step, leaf

pytestmark = pytest.mark.nothing_captured


class Wrong(torch.autograd.Function):
    """Its input unchanged, and a gradient that is changed on the way back."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return ctx.change(g), None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.unused = nn.Linear(3, 3), nn.Linear(2, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return self.linear(x).tanh()


def reads_unused(model, x):
    return model(x) + 0 * model.unused.weight.sum()


def forgets_the_buffer(model, x):
    result = model(x)
    model.seen -= 1
    return result


def draws_once_more(model, x):
    torch.rand(1)
    return model(x)


def writes_the_input(model, x):
    with torch.no_grad():
        x.mul_(1)
    return model(x)


def raises(model, x):
    raise ValueError("not today")


DEFECTS = {
    "another output": lambda model, x: model(x) * 1.001,
    "other strides": lambda model, x: model(x).t().contiguous().t(),
    "another dtype": lambda model, x: model(x).double(),
    "no gradient": lambda model, x: model(x).detach(),
    "a gradient that is off": lambda model, x: Wrong.apply(model(x), lambda g: g * 1.001),
    "one element of a gradient": lambda model, x: Wrong.apply(model(x), lambda g: g + torch.eye(5, 3) * 1e-3),
    "zeros in place of None": reads_unused,
    "None in place of a gradient": lambda model, x: model(x.detach()),
    "a buffer": forgets_the_buffer,
    "the generator": draws_once_more,
    "a version": writes_the_input,
    "an exception": raises,
    "another container": lambda model, x: [model(x)],
}


def program():
    return Program(Model(), leaf(5, 3))


def compiled_as(change, monkeypatch):
    monkeypatch.setattr(framejit, "compile", lambda model: lambda x: change(model, x))
    monkeypatch.setattr(steps, "assert_counts", lambda *args, **asked: None)  # nothing is compiled here


@pytest.mark.parametrize("name", DEFECTS)
def test_a_difference_is_seen(name, monkeypatch):
    compiled_as(DEFECTS[name], monkeypatch)
    with pytest.raises(AssertionError):
        check_step(program)


@pytest.mark.parametrize("name, step", [("later", 2), ("at once", 0)])
def test_the_step_is_told(name, step, monkeypatch):
    calls = []

    def change(model, x):
        calls.append(0)
        return model(x) * (2 if len(calls) > step else 1)
    compiled_as(change, monkeypatch)
    with pytest.raises(AssertionError, match=f"step {step}: returned"):
        check_step(program)


def test_roundings_are_no_differences(monkeypatch):
    """Sums in another order, and a gradient that is zero except for eager's roundings."""
    def other_order(model, x):
        model.seen += 1
        order = torch.tensor([2, 0, 1])
        return (x[:, order] @ model.linear.weight[:, order].t() + model.linear.bias).tanh()
    compiled_as(other_order, monkeypatch)
    check_step(program)

    def normed():
        return Program(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), leaf(6, 3))
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    compiled_as(lambda model, x: model(x[order])[order.argsort()], monkeypatch)
    check_step(normed)


def test_errors_are_compared(monkeypatch):
    def make():
        def f(x):
            raise ValueError("always")
        return Program(f, leaf(3))
    compiled_as(lambda f, x: f(x), monkeypatch)
    check_step(make)
    compiled_as(raises, monkeypatch)
    with pytest.raises(AssertionError):
        check_step(make)


def test_counts_are_asserted():
    stats = {"graphs": 1, "hits": 2, "graph_breaks": 0, "break_reasons": {}, "fallbacks": 0, "fallback_reasons": {},
             "recompiles": 0, "backward_graphs": 1, "backward_runs": 3}
    assert_counts(stats, 3, graphs=1, backward_graphs=1)
    for changed, asked in [(dict(backward_runs=2), {}), (dict(backward_graphs=0), {}), (dict(graph_breaks=1), {}),
                           (dict(fallbacks=1), {}), (dict(graphs=0), {}), (dict(graphs=2), dict(graphs=1)),
                           (dict(backward_graphs=2), dict(backward_graphs=1)), ({}, dict(backward=False)),
                           (dict(backward_runs=4), dict(backward=3)), ({}, dict(breaks=1))]:
        with pytest.raises(AssertionError):
            assert_counts({**stats, **changed}, 3, **asked)
