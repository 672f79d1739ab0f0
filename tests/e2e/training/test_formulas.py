"""Gradients whose formulas in PyTorch read data, with the same values: ties, zeros, NaN and infinities."""
import pytest
import torch

from steps import Program, check_step, leaf

NAN, INF = float("nan"), float("inf")
ROWS = {
    "plain": [[0.3, -1.5, 2.0], [0.7, 1.1, -0.2]],
    "ties": [[2.0, -1.5, 2.0], [-1.5, 2.0, 0.5]],
    "nan": [[0.3, NAN, 2.0], [NAN, 1.1, -0.2]],
    "one zero": [[0.3, -1.5, 0.0], [0.7, 1.1, -0.2]],
    "zeros": [[0.0, -1.5, 2.0], [0.7, 0.0, 0.0]],
    "zero and nan": [[0.0, -1.5, 2.0], [0.7, NAN, 0.5]],
    "zero and infinity": [[0.0, -1.5, INF], [0.7, 0.5, -INF]],
    "infinity": [[0.3, -1.5, INF], [0.7, INF, -0.2]],
    "all equal": [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
}


def largest(x):
    return (x * 2).max() * 3


def least(x):
    return x.min()


def middle(x):
    return x.median(), x.nanmedian()


def product(x):
    return x.prod()


def product_of_rows(x):
    return x.prod(1), x.prod(0, keepdim=True)


@pytest.mark.parametrize("rows", ROWS, ids=lambda name: name.replace(" ", "_"))
@pytest.mark.parametrize("fn", [largest, least, middle, product, product_of_rows], ids=lambda f: f.__name__)
def test_values(fn, rows):
    check_step(lambda: (fn, torch.tensor(ROWS[rows], requires_grad=True)), steps=2)


@pytest.mark.parametrize("fn", [largest, least, product], ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4, 1), (2, 3, 4)], ids=str)
def test_shapes(fn, shape):
    check_step(lambda: (fn, torch.randn(shape, requires_grad=True)), steps=2)


def test_a_dimension_of_one_element():
    check_step(lambda: (lambda x: x.prod(1) + x.prod(-1), leaf(4, 1)), steps=2)


def test_of_integers_that_become_floats():
    check_step(lambda: (lambda x: (x * 3).half().prod(dtype=torch.float32), leaf(2, 3)), steps=2)


def test_of_other_outputs_too():
    """The maximum is an output, and others are made of it."""
    def step(run, args, k):
        largest, scaled = run(*args)
        scaled.backward(retain_graph=True)
        largest.backward()
        return largest, scaled
    def f(x):
        largest = (x * 2).max()
        return largest, largest * 3
    check_step(lambda: Program(f, torch.tensor(ROWS["ties"], requires_grad=True), step=step), steps=2)


def test_inside_of_the_traced_code():
    def f(x):
        [g] = torch.autograd.grad(x.max() * x.prod(), x)
        return g * x.min()
    check_step(lambda: (f, leaf(4, 3)), steps=2, graphs=1)
