"""argmax and argmin: the earliest of equal values, NaN before all others, in rows of any length, along any dimension,
in any layout."""
import pytest
import torch

import framejit

SIZES = ((3, 7), (2, 67), (3, 300), (9, 5, 33), (40, 40))
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8)


def extremes(dtype):
    return (float("-inf"), float("inf")) if dtype.is_floating_point else (torch.iinfo(dtype).min,
        torch.iinfo(dtype).max)


def inputs(dtype):
    torch.manual_seed(1)
    for size in SIZES:
        x = (torch.randn(size) * 50).abs().to(dtype)
        yield x
        yield torch.zeros(size, dtype=dtype)
        for value in extremes(dtype):
            yield torch.full(size, value, dtype=dtype)
            yield x.index_fill(-1, torch.tensor([2, 5 % size[-1]]), value)
        if dtype.is_floating_point:
            with_nan = x.clone()
            with_nan.view(-1)[torch.randint(0, x.numel(), (5,))] = float("nan")
            yield with_nan


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_positions_equal_eager(dtype):
    for x in inputs(dtype):
        for dim in (None, 0, -1):
            for y in (x, x.transpose(0, -1)):
                framejit.reset()
                fn = lambda y: (y.argmax(dim), y.argmin(dim))
                for got, expected in zip(framejit.compile(fn)(y), fn(y)):
                    assert torch.equal(got, expected), (x.shape, dim, y.is_contiguous(), y, got, expected)
                assert framejit.stats()["graphs"] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8], ids=str)
def test_rows_of_symbolic_length(dtype):
    """Shorter than a vector too: no element of the next row may be read."""
    compiled = {name: framejit.compile(lambda x, find=find: find(x, -1), dynamic=True) for name,
                find in (("argmax", torch.argmax), ("argmin", torch.argmin))}
    for length in [40, *range(2, 20), 63, 64, 65, 300]:
        x = torch.arange(7 * length).reshape(7, length).remainder(251).to(dtype)
        for rows in (x, x.flip(1), x.flip(0)):
            for name, find in compiled.items():
                assert torch.equal(find(rows), getattr(rows, name)(-1)), (name, length)
    assert framejit.stats()["fallbacks"] == 0
