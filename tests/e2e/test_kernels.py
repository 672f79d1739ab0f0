"""Kernels whose operands have different layouts: transposed, permuted, in all dtypes, with edges that do not fill a
register."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, same_as, threads

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool]
SHAPES = [(127, 769), (8, 8), (64, 64), (9, 200), (3, 100, 70), (2, 3, 50, 33)]


def same(fn, args, **options):
    framejit.reset()
    with torch.no_grad():
        eager, own = fn(*args), framejit.compile(fn, **options)(*args)
    assert own.dtype == eager.dtype and own.stride() == eager.stride()
    torch.testing.assert_close(own, eager, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transposed_operands(dtype, dynamic):
    for shape in SHAPES:
        x = (torch.randn(shape) * 50).to(dtype)
        y = (torch.randn(shape) * 50).to(dtype).transpose(-1, -2).contiguous()
        same(lambda x, y: torch.bitwise_xor(x.mT, y) if dtype is torch.bool else x.mT + y, (x, y), dynamic=dynamic)
        same(lambda x: x.mT.contiguous(), (x,), dynamic=dynamic)
        same(lambda x: x.permute(*reversed(range(x.ndim))).contiguous(), (x,), dynamic=dynamic)


def test_transposed_operands_on_two_threads():
    with threads(2):
        x, y = torch.randn(517, 1031), torch.randn(1031, 517)
        same(lambda x, y: x.t() * 2 + y, (x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy(reduction, dtype):
    x, weight = torch.randn(37, 50).log_softmax(-1).to(dtype), torch.rand(50).to(dtype)
    target = torch.randint(0, 50, (37,))
    target[5] = target[9] = 3
    cases = [lambda x, t: F.cross_entropy(x, t, reduction=reduction),
             lambda x, t: F.cross_entropy(x, t, weight, reduction=reduction),
             lambda x, t: F.cross_entropy(x, t, weight, ignore_index=3, reduction=reduction),
             lambda x, t: F.nll_loss(x, t, ignore_index=3, reduction=reduction) * 2,
             lambda x, t: F.nll_loss(x[0], t[0], weight, reduction=reduction),
             lambda x, t: torch.ops.aten.nll_loss_forward(x, t, weight, ["none", "mean", "sum"].index(reduction), 3)]
    for fn in cases:
        framejit.reset()
        with torch.no_grad():
            same_as(fn, framejit.compile(fn)(x, target), x, target)


@pytest.mark.parametrize("columns", [1, 7, 8, 131])
def test_equality_with_a_position(columns):
    # Only the low 32 bits of some are a position.
    at = torch.tensor([0, columns - 1, columns, -1, 1 << 32, (1 << 32) + 1, -(1 << 63), (1 << 63) - 1, 5, -100])
    places, x = torch.arange(columns), torch.randn(10, columns)
    cases = [lambda at, x: torch.where(at[:, None] == places, x * 2, -x),
             lambda at, x: torch.where(places != at[:, None], x * 2, -x).amax(1),
             lambda at, x: torch.where((places + 3 == at[:, None]) & (at[:, None] != 5), x.t()[:, :10].amax(), x),
             lambda at, x: torch.cat([x, -x], 1) * (torch.arange(2 * columns) == at[:, None]),
             lambda at, x: (x * (places == at[:, None])).amax(0)]
    for fn in cases:
        same(fn, (at, x))
        same(fn, (at, x), dynamic=True)


def test_cross_entropy_without_a_counted_row_is_nan():
    fn = framejit.compile(lambda x, t: F.cross_entropy(x, t, ignore_index=3))
    with torch.no_grad():
        assert fn(torch.randn(4, 5), torch.full((4,), 3)).isnan()


@pytest.mark.fallbacks(kernel_check=2)
def test_cross_entropy_refuses_what_eager_refuses():
    def loss(x, t):
        return F.cross_entropy(x, t)
    compiled = framejit.compile(loss)
    x = torch.randn(4, 5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, torch.tensor([0, 1, 2, 4])), loss(x, torch.tensor([0, 1, 2, 4])))
        for wrong in (5, -1):
            target = torch.tensor([0, 1, 2, wrong])
            with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds."):
                compiled(x, target)


def test_empty_inputs_without_strides():
    empty = torch.empty(0).as_strided((0,), (0,))
    for fn in (torch.clone, lambda x: x * 2 + 1, lambda x: x.sum(0), lambda x: x[None].expand(3,
        0).sum(1), lambda x: x.new_zeros(0).copy_(x)):
        check(fn, empty, strides=False)


def all_of_a_sum(x):
    total = x.sum(0, keepdim=True)
    total[0] = 2.0
    return total, total * -0.25


def all_of_a_maximum(x):
    most = x.amax(-1)
    most[:] = x[:, 0]
    return most, most + 1


def part_of_a_sum(x):
    total = x.sum(0)
    total[1:] = 0.5
    return total, total.exp()


def twice(x):
    y = x * 2
    y[:] = x.sum(1, keepdim=True)
    y.copy_(x + 1)
    return y, y.sum(0)


@pytest.mark.parametrize("fn", [all_of_a_sum, all_of_a_maximum, part_of_a_sum, twice], ids=lambda f: f.__name__)
def test_a_reduction_that_is_overwritten(fn):
    for rows, columns in ((3, 4), (5, 40), (1, 1)):
        check(fn, torch.randn(rows, columns))


def test_a_range_of_fractions_in_whole_numbers():
    """Eager truncates start, end and step of an int64 result before it counts, and those of other dtypes after it."""
    def f(x):
        return [x + 1, *(torch.arange(*ends, dtype=d) for d in (torch.int64, torch.int32, torch.float32)
                         for ends in ((0.0, -8.000001, -4.0), (0.5, 5), (7.9,), (-1.5, 6.5, 2.5)))]
    check(f, torch.ones(2))
