"""Gradients whose formulas in PyTorch read data, with the same values: ties, zeros, NaN and infinities."""
import pytest
import torch
import torch.nn.functional as F

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
    """The maximum is an output, and other outputs are computed from it."""
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


# ---- writes by a mask


ROW_MASK = torch.tensor([True, False, True, False])
GRID_MASK = torch.tensor([[True, False, True], [False, False, True], [True, True, False], [False, True, True]])


def one_row_for_all(x, token):
    h = x.sin()
    h[ROW_MASK] = token
    return h


def one_row_of_two_dimensions(x, token):
    h = x.sin()
    h[ROW_MASK] = token.unsqueeze(0)
    return h * 2


def rows_one_by_one(x, rows):
    h = x.sin()
    h[ROW_MASK] = rows
    return h


def elements_one_by_one(x, elements):
    return x.sin().index_put((GRID_MASK,), elements.sin())


def one_element_for_all(x, element):
    h = x.sin()
    h[GRID_MASK] = element
    return h


def columns(x, column):
    h = x.sin()
    h[:, torch.tensor([True, False, True])] = column
    return h


def added(x, rows):
    return x.index_put((ROW_MASK,), rows, accumulate=True)


def part_of_a_view(x, token):
    h = (x * 2).view(2, 2, 3)
    h[1].view(2, 3)[torch.tensor([False, True])] = token
    return h


def mask_from_data(x, token):
    h = x * 2
    h[x[:, 0] > 0] = token
    return h


def result_of_the_same(x, rows):
    h = x * 2
    h[ROW_MASK] = h[ROW_MASK.nonzero_static(size=2)[:, 0]] * rows
    return h


MASKED = [(one_row_for_all, (3,)), (one_row_of_two_dimensions, (3,)), (rows_one_by_one, (2, 3)),
          (elements_one_by_one, (7,)), (one_element_for_all, ()), (columns, (4, 1)), (added, (2, 3)),
          (part_of_a_view, (3,)), (mask_from_data, (3,)), (result_of_the_same, (2, 3))]


@pytest.mark.parametrize("fn, shape", MASKED, ids=lambda v: getattr(v, "__name__", ""))
def test_masked_writes(fn, shape):
    check_step(lambda: (fn, leaf(4, 3), torch.randn(shape, requires_grad=True)), steps=2, graphs=1)


def test_a_masked_write_of_which_one_side_asks():
    check_step(lambda: (one_row_for_all, leaf(4, 3), torch.randn(3)), steps=2, graphs=1)
    check_step(lambda: (one_row_for_all, torch.randn(4, 3), leaf(3)), steps=2, graphs=1)


def test_a_masked_write_inside_of_the_traced_code():
    def f(x, token):
        h = x * token
        h[ROW_MASK] = token
        [by_x, by_token] = torch.autograd.grad(h.square().sum(), [x, token], create_graph=True)
        return by_x.sum() + by_token.square().sum()
    check_step(lambda: (f, leaf(4, 3), leaf(3)), steps=2, graphs=1)


def test_second_derivatives_of_a_masked_write():
    def step(run, args, k):
        h = run(*args)
        first = torch.autograd.grad(h.square().sum(), args, create_graph=True)
        sum(g.square().sum() for g in first).backward()
    check_step(lambda: Program(mask_from_data, leaf(4, 3), leaf(3), step=step), steps=2, backward=None)


def test_too_few_rows_are_the_error_of_eager():
    stats = check_step(lambda: (rows_one_by_one, leaf(4, 3), leaf(3, 3)), steps=1, breaks=None, backward=None,
                       captured=False)
    assert (stats["break_reasons"], stats["fallback_reasons"]) in (({"exception_raised": 1}, {}),
                                                                   ({}, {"run_failed": 1}))


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 4)], ids=["2d", "3d"])
def test_grids_of_sizes_that_vary(sizes, align):
    def fn(x, theta):
        return F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=align), align_corners=align)

    def make_inputs(k):
        dims, taller = len(sizes), (sizes[0] + k // 3, *sizes[1:])
        return leaf(2 + k, 2, *taller), leaf(2 + k, dims, dims + 1)
    check_step(lambda: Program(fn, make_inputs=make_inputs), steps=5, graphs=None)
