"""Backwards towards some inputs, and formulas that lead to none: what eager checks and frees is on the way."""
import os

import pytest
import torch
from torch import nn

import framejit
import programs
from steps import Program, check_step, cotangent, leaf

PARTED = {
    "nothing shared": lambda x, p: x.sin().sum() + p.sin().sum(),
    "a product shared": lambda x, p: (x * p).sum(),
    "the end shared": lambda x, p: (x.sin().sum() + p.sin().sum()).exp(),
    "the start shared": lambda x, p: (x.sin() * 2).sum() + (x.sin() * p.exp()).sum(),
    "a branch": lambda x, p: (x.sin() + p.detach().exp()).sum() + (p.exp() * p).sum(),
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("name", PARTED)
def test_one_gradient_after_the_other(name, order):
    """A backward frees what lies on the way to the requested inputs."""
    def step(run, args, k):
        y = run(*args)
        return [torch.autograd.grad(y, args[i]) for i in order]
    check_step(lambda: Program(PARTED[name], leaf(3), leaf(3), step=step), steps=2, graphs=1, backward=None)


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("name", PARTED)
def test_a_write_that_only_another_gradient_minds(name, written):
    def step(run, args, k):
        y = run(*args)
        with torch.no_grad():
            args[written].add_(1)
        return torch.autograd.grad(y, args[0])
    check_step(lambda: Program(PARTED[name], leaf(3), leaf(3), step=step), steps=2, graphs=1, backward=None)


def test_two_optimizers_of_one_loss():
    def make():
        actor, critic = (nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2))
        nets = [(net, torch.optim.SGD(net.parameters(), 0.1)) for net in (actor, critic)]

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.nets = nn.ModuleList([actor, critic])

            def forward(self, x):
                return sum(net(x).sum() for net in self.nets)

        def step(run, args, k):
            loss = run(*args)
            for net, optimizer in nets:
                optimizer.zero_grad()
                loss.backward(inputs=list(net.parameters()))
                optimizer.step()
            return loss
        return Program(Both(), torch.randn(5, 4), step=step)
    check_step(make, backward=6, graphs=1)


def row_of(t):
    with torch.no_grad():
        return t[0]


def ends(x, w):
    y = row_of(x * w).logsumexp(0)
    return y.expand(2), y.view(1), w.abs()


def chain_of_ends(x, w):
    with torch.no_grad():
        t = x.tanh()
    row = row_of(torch.cat([t, w]))
    y = torch.nn.functional.softplus(row)
    return y[:2], y, w.abs()


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0), (2, 0, 1), (0, 0), (2, 0)])
@pytest.mark.parametrize("f", [ends, chain_of_ends])
def test_what_leads_to_no_input_is_freed(f, order):
    """After a view that was made without grad mode. backward() runs it, so a second one raises."""
    def step(run, args, k):
        outputs = run(*args)
        for i in order:
            outputs[i].backward(cotangent(outputs[i]))
    check_step(lambda: Program(f, leaf(3, 4), leaf(3, 4), step=step), steps=1, graphs=1, backward=None)


def test_what_leads_to_no_input_does_not_run_for_an_input():
    def step(run, args, k):
        first, _, last = run(*args)
        return [torch.autograd.grad([first, last], args[1], [cotangent(first), cotangent(last)])
                for last in (last, args[1] * 2)]
    check_step(lambda: Program(ends, leaf(3, 4), leaf(3, 4), step=step), graphs=1)


HELD = {"an end": lambda n, c, w: (row_of(c).exp() + c.sin(), c.sin()),
        "an end that holds": lambda n, c, w: (row_of(w)[n], w.sin()),
        "an end after another": lambda n, c, w: (row_of(w)[n].exp(), w.sin()),
        "what passes a gradient to an end": lambda n, c, w: (w.sin(), nn.functional.linear(c, row_of(w.unsqueeze(0))))}


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", HELD)
def test_what_leads_to_no_input_is_checked(name, which, written):
    """A write to what it holds is an error."""
    def step(run, args, k):
        outputs = run(*args)
        with torch.no_grad():
            args[written].add_(1)
        outputs[which].backward(cotangent(outputs[which]))
    check_step(lambda: Program(HELD[name], torch.tensor([0, 1]), leaf(3, 4), leaf(3, 4), step=step), steps=1, graphs=1,
               backward=None)


@pytest.mark.nothing_captured
@pytest.mark.breaks(no_backward=1)
def test_what_leads_to_no_input_is_written_inside():
    """Its backward raises, whatever comes after the forward: the function runs plainly."""
    def f(c, w):
        y = row_of(c).softmax(0)
        y.view(-1)[1:].neg_()
        return y.flatten(), w.sin()

    def step(run, args, k):
        outputs = run(*args)
        torch.autograd.backward(outputs, [cotangent(t) for t in outputs])
    check_step(lambda: Program(f, leaf(3, 4), leaf(3), step=step), steps=1, graphs=None, breaks=None, backward=None,
               captured=False)


AMONG_HOLES = """
import random, torch, framejit
def f(c, w):
    with torch.no_grad():
        row = c[0]
    y = row.softmax(0)
    y.view(-1)[1:].neg_()
    return y.flatten(), w.sin()
def history():
    y = torch.ones(4, requires_grad=True).softmax(0)
    y.view(-1)[1:].neg_()
    return y
random.seed(0)
for _ in range(40):
    framejit.reset()
    holes = [history() for _ in range(50)]  # of the sizes of nodes, so that these lie in any order
    random.shuffle(holes)
    del holes[25:]
    outputs = framejit.compile(f)(torch.randn(3, 4, requires_grad=True), torch.randn(3, requires_grad=True))
    try:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    except RuntimeError:
        print("raised")
"""


@pytest.mark.nothing_captured  # in this process
def test_what_a_write_runs_is_freed_with_it():
    """That process overwrites freed memory: reading a freed node crashes it."""
    done = programs.run(AMONG_HOLES, env=dict(os.environ, MALLOC_PERTURB_="165"))
    assert done.returncode == 0 and done.stdout == "raised\n" * 40, (done.returncode, done.stderr)


def test_a_write_is_met_before_what_is_freed():
    """Eager raises the error of the first node that it comes to."""
    def f(b, c):
        shared = c.exp()
        return torch.maximum(b, shared).square(), shared.sin()

    def step(run, args, k):
        first, second = run(*args)
        with torch.no_grad():
            args[0].add_(1)
        for y in (second, first):
            y.backward(cotangent(y))
    check_step(lambda: Program(f, leaf(3), leaf(3), step=step), steps=1, graphs=1, backward=None)


@pytest.mark.nothing_captured
def test_what_a_write_holds_for_sizes_that_vary():
    """The nodes that a write has run are freed with it, before anybody asks which of them holds what was written."""
    def f(c, w):
        y = c.flip(0).softmax(0)
        y.view(-1)[1:].neg_()
        return y.flatten(), w.sin()

    compiled = framejit.compile(f, dynamic=True)
    for rows in (3, 4):
        outputs = compiled(leaf(rows, 4), leaf(3))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.backward(outputs, [cotangent(t) for t in outputs])
    stats = framejit.stats()
    assert stats["graphs"] == 0 and not stats["fallbacks"] and stats["break_reasons"] == {"no_backward": 2}, stats
