"""detach_() between a forward and its backward: an error where eager's formulas hold the tensor; otherwise it changes
nothing."""
import gc
import weakref

import pytest
import torch

import framejit
from steps import Program, check_step, leaf


def squared(x, w):
    y = torch.logsumexp(x * 2, 0)
    return y, y ** 2 * w


def exponential(x, w):
    y = (x * 2).exp()
    return y, y + w


def of_a_view(x, w):
    y = (x * 2).sum(0, keepdim=True) + x
    return y, y[1:] ** 2 * w


@pytest.mark.parametrize("fn", [squared, exponential, of_a_view], ids=lambda f: f.__name__)
@pytest.mark.parametrize("keeps", [True, False])
def test_an_output(fn, keeps):
    """A product holds it. A formula that holds its own result does not mind, and a view is another tensor."""
    def step(run, args, k):
        y, z = run(*args)
        y.detach_()
        if not keeps:
            del y
        z.sum().backward()
        return z
    check_step(lambda: Program(fn, leaf(3, 3), leaf(3), step=step), steps=1, backward=None)


def test_inside():
    """The graph ends there. The value is gone before its backward runs."""
    def fn(x, w):
        y = torch.hypot(x, w + 3)
        z = x * y
        y.detach_()
        return z.t()[0]
    check_step(lambda: Program(fn, leaf(3, 3), leaf(3)), steps=1, breaks=1, graphs=None, backward=None)


def test_a_write_is_still_the_error():
    def step(run, args, k):
        y, z = run(*args)
        y.detach_().add_(1)
        z.sum().backward()
    check_step(lambda: Program(squared, leaf(3, 3), leaf(3), step=step), steps=1, backward=None)


INPUTS = {"itself": lambda x, w: (x * w).sin(), "its values": lambda x, w: torch.maximum(x.detach(), w).sin(),
          "a view": lambda x, w: x[1:] * w, "not held": lambda x, w: (x + w).sin()}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("create_graph", [False, True])
def test_an_input(name, create_graph):
    """Its history stays that of the forward."""
    def step(run, args, k):
        x, w = args
        given = x * 1
        y = run(given, w)
        given.detach_()
        slopes = torch.autograd.grad(y.sum(), [x, w], create_graph=create_graph, allow_unused=True)
        if create_graph:
            sum(s.square().sum() for s in slopes if s is not None).backward()
        return slopes
    check_step(lambda: Program(INPUTS[name], leaf(3, 3), leaf(3), step=step), steps=2, backward=None)


def test_a_node_holds_no_output_of_its_own():
    """The holder of a value must die with the results that need it."""
    run = framejit.compile(squared)
    y, z = run(leaf(3, 3), leaf(3))
    seen = weakref.ref(y)
    gc.collect()
    gc.disable()
    try:
        del y, z
        assert seen() is None
    finally:
        gc.enable()
