"""Parameters that get other data between a forward and its backward: eager's formulas read the new data, and so does a
compiled backward, or it raises what eager raises. Values that were computed from the old data stay as they were."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from steps import Program, check_step, leaf


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))

    def forward(self, x):
        return (x * self.weight).tanh() * self.weight


MODELS = {
    "linear": lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)),
    "elementwise": lambda: nn.Sequential(Scale(), Scale()),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 1)),
}


def with_other_values(model):
    for p in model.parameters():
        p.data = p.data * 2


def with_other_strides(model):
    for p in model.parameters():
        p.data = p.data.mT.contiguous().mT if p.dim() > 1 else p.data.repeat_interleave(2)[::2]


def with_other_sizes(model):
    for p in model.parameters():
        p.data = torch.ones(*p.shape[:-1], p.shape[-1] + 1)


def with_new_parameters(model):
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(p.detach() * 2))


CHANGES = {
    "double": lambda model: model.double(), "half": lambda model: model.half(),
    "bfloat16": lambda model: model.bfloat16(), "float": lambda model: model.float(),
    "other values": with_other_values, "other strides": with_other_strides, "other sizes": with_other_sizes,
    "new parameters": with_new_parameters,
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("change", CHANGES)
def test_between_forward_and_backward(model, change):
    def make():
        made = MODELS[model]()
        x = torch.rand(4, 3, requires_grad=True)

        def step(run, args, k):
            y = run(x)
            CHANGES[change](made)
            y.sum().backward()
            return y
        return Program(made, x, step=step)
    check_step(make, steps=1, backward=None)


def swap(a, b):
    a.data, b.data = b.data, a.data


def restore(a, b):
    """The data that a tensor has in the end counts."""
    kept = a.data
    a.data = b.data
    a.data = kept


def show_otherwise(a, b):
    """The same memory."""
    a.data = a.data.t()


def extend(a, b):
    b.data = torch.ones(5, 3, 3)


REPLACE = {"swap": swap, "restore": restore, "show otherwise": show_otherwise, "extend": extend}
PROGRAMS = {
    "formulas read both": lambda a, b: (a * b).tanh() * a, "one of them": lambda a, b: (a * b).sin(),
    "a view": lambda a, b: (a.t() @ b).tanh() @ b, "a constant": lambda a, b: a.detach() * b + a.sin(),
    "dropout": lambda a, b: F.dropout(a * b, 0.5) * a, "a sum": lambda a, b: (a + b).exp(),
    "two outputs": lambda a, b: ((a * b).cos(), b.pow(3)), "written": lambda a, b: (a * 1).mul_(b).mul_(a),
    "one without a gradient": lambda a, b: (a * b.detach()).exp() * b.detach(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", REPLACE)
def test_inputs(name, how):
    def step(run, args, k):
        y = run(*args)
        REPLACE[how](*args)
        sum(t.square().sum() for t in (y if isinstance(y, tuple) else (y,))).backward()
        return y
    check_step(lambda: Program(PROGRAMS[name], leaf(3, 3), leaf(3, 3), step=step), steps=1, backward=None)


@pytest.mark.parametrize("create_graph", [False, True])
def test_two_backwards(create_graph):
    """Each reads the data that is there at that time."""
    def step(run, args, k):
        a, b = args
        y = run(a, b).sum()
        first = torch.autograd.grad(y, args, retain_graph=True)
        swap(a, b)
        second = torch.autograd.grad(y, args, retain_graph=True, create_graph=create_graph)
        b.data = b.data * 2
        return first, second, torch.autograd.grad(y, args)
    check_step(lambda: Program(lambda a, b: (a * b).tanh() * a, leaf(3, 3), leaf(3, 3), step=step), steps=1,
               backward=None)


def test_what_eager_does_not_hold_may_change():
    """No formula reads the shift. Its plan runs."""
    def step(run, args, k):
        a, shift = args
        y = run(a, shift)
        shift.data = torch.zeros(7)
        y.sum().backward(inputs=[a])
        shift.data = torch.ones(3)
        return y
    check_step(lambda: Program(lambda a, shift: (a + shift).exp(), leaf(3), leaf(3), step=step))


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        w, = ctx.saved_tensors
        return g * w / 2, g / 2


@pytest.mark.fallbacks(no_backward=1)
def test_a_limit_is_an_error():
    """torch has no formula here that could read the new data. The function runs plainly from then on."""
    x, w = leaf(3), leaf(3)
    run = framejit.compile(lambda: Half.apply(x, w))
    y = run().sum()
    w.data = torch.ones(3)
    with pytest.raises(RuntimeError, match="a backward after an input got new data is not possible"):
        y.backward()
    y = run().sum()
    w.data = torch.full((3,), 4.0)
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


PAIRS = {"products": lambda a, b, c, d: (a * b, c * d), "a sum": lambda a, b, c, d: (a * b + c, c * d),
         "a function": lambda a, b, c, d: ((a * b).sin() - c * 2, c.sin() * d)}


@pytest.mark.parametrize("fn", PAIRS)
@pytest.mark.parametrize("creates_graph", [False, True])
def test_a_write_that_only_another_output_minds(fn, creates_graph):
    found = []
    for run in PAIRS[fn], framejit.compile(PAIRS[fn]):
        for _ in range(2):
            a, b, c, d = (torch.arange(float(k), k + 3).requires_grad_() for k in range(4))
            y, z = run(a, b, c, d)
            with torch.no_grad():
                c.add_(1)
            if not creates_graph:
                a.data = a.data * 2
            given = torch.autograd.grad(y.sum(), (a, b, c), create_graph=creates_graph, allow_unused=True)
            if creates_graph:
                given += torch.autograd.grad(given[0].sin().sum(), (a, b), allow_unused=True)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()
            found.append([g if g is None else g.tolist() for g in given])
    assert found[2:] == found[:2]
