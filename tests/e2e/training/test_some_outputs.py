"""A backward from some outputs of compiled code, and from others later."""
import pytest
import torch
from torch import nn

from steps import Program, check_step, cotangent, leaf

ZEROS = {
    "sign": lambda x, w: x.sign(), "round": lambda x, w: x.round() + w,
    "floor": lambda x, w: torch.div(x, w, rounding_mode="floor"), "zero_": lambda x, w: (x * 2).zero_(),
    "fill_": lambda x, w: (x * 2).fill_(1.0), "copy_": lambda x, w: (x * 2).copy_(w), "times 0": lambda x, w: x * 0,
    "no rows": lambda x, w: (x * 2)[:0], "where": lambda x, w: torch.where(torch.zeros(3, dtype=torch.bool), x, w),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zeros_are_no_none(name):
    """What the gradient depends on belongs to the other output; eager has zeros."""
    def step(run, args, k):
        first, _ = run(*args)
        return torch.autograd.grad(first, args, cotangent(first), allow_unused=True)
    check_step(lambda: Program(lambda x, w: (ZEROS[name](x, w), x * w), leaf(3), leaf(3), step=step), graphs=1)


def test_a_write_that_only_another_output_minds():
    """Two losses in one forward, each with its optimizer."""
    def make():
        nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2))
        optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.nets = nets

            def forward(self, x):
                return [net(x).pow(2).mean() for net in self.nets]

        def step(run, args, k):
            losses = run(*args)
            for loss, optimizer in zip(losses, optimizers):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return losses
        return Program(Both(), torch.randn(5, 4), step=step)
    check_step(make, backward=6, graphs=1)


@pytest.mark.parametrize("of", ["input", "output"])
def test_a_write_to_what_another_output_keeps(of):
    def step(run, args, k):
        x, p = args
        y, z = run(x, p)
        with torch.no_grad():
            (p if of == "input" else y).add_(1)
        return torch.autograd.grad(z.sum(), x)
    fn = (lambda x, p: (x * p, x.sum(0) + x)) if of == "input" else (lambda x, p: (x.exp(), x * 2))
    check_step(lambda: Program(fn, leaf(3), leaf(3), step=step), graphs=1)


@pytest.mark.parametrize("fn", [torch.abs, torch.relu, torch.exp, lambda p: p * p, lambda p: p.max(0).values])
def test_a_write_to_what_this_output_keeps(fn):
    def step(run, args, k):
        x, p = args
        y, z = run(x, p)
        with torch.no_grad():
            p.add_(1)
        return torch.autograd.grad(z.sum(), x), torch.autograd.grad(y.sum(), p)
    check_step(lambda: Program(lambda x, p: (fn(p), x * x), leaf(3), leaf(3), step=step), steps=1, backward=None)


def layouts_meet(x, w):
    s = x.sigmoid()
    total = x.sum(0, keepdim=True)
    return x + s, total, total.sin()


def pieces_meet(x, w):
    a, b = x.chunk(2)
    return a.exp() * w[:1], b.exp(), (b * 2).tanh()


def rows_meet(x, w):
    h = x * w
    return h.softmax(-1), h.t(), h[1:].square(), h.mean(-1)


@pytest.mark.parametrize("fn", [layouts_meet, pieces_meet, rows_meet], ids=lambda f: f.__name__)
def test_each_set_of_outputs(fn):
    """Backward from some outputs, then from the others. None reads what the first has freed, and no undefined gradient
    becomes zeros."""
    def step(run, args, k):
        found = []
        for chosen in range(1, 2 ** len(fn(*args))):
            outputs = run(*args)
            for part in (chosen, ~chosen):
                some = [t for i, t in enumerate(outputs) if part >> i & 1]
                if some:
                    found.append(torch.autograd.grad(some, args, [t.detach() for t in some], allow_unused=True,
                                                     retain_graph=part == chosen))
            found.append(args[0].grad)
            torch.autograd.backward([t.sum() for t in run(*args)])
        return found
    # A gradient by itself may be an expanded view in eager; here each has the layout of the sum of all.
    check_step(lambda: Program(fn, leaf(4, 4), leaf(4, 4), step=step), graphs=1, backward=None, steps=1, strides=False)
