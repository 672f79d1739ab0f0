"""Kernels whose operands lie across each other: transposed, permuted, in all dtypes, with edges that fill no register."""
import pytest
import torch

import framejit

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
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
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        x, y = torch.randn(517, 1031), torch.randn(1031, 517)
        same(lambda x, y: x.t() * 2 + y, (x, y))
    finally:
        torch.set_num_threads(before)
