"""Losses that PyTorch composes from several ops overflow between two steps in float16: NaN and infinities appear where
eager has them. So do numbers that eager converts to half precision before it computes."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, fresh  # noqa: F401

VALUES = torch.tensor([0.0, 1, -1, 8, -8, 12, -12, 20, -20, 300, -300, 400, 1000, -1000, 30000, -30000, 60000, -60000,
                       65504, -65504, 6e-5])
LOSSES = {
    "mse": F.mse_loss,
    "smooth_l1": F.smooth_l1_loss,
    "smooth_l1, wide": lambda x, y, **r: F.smooth_l1_loss(x, y, beta=500.0, **r),
    "huber": F.huber_loss,
    "huber, wide": lambda x, y, **r: F.huber_loss(x, y, delta=500.0, **r),
    "soft_margin": F.soft_margin_loss,
    "logits": F.binary_cross_entropy_with_logits,
    "logits, weighted": lambda x, y, **r: F.binary_cross_entropy_with_logits(x, y.abs(), weight=x, pos_weight=y, **r),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, reduction):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        pairs = [(VALUES.repeat_interleave(len(VALUES)), VALUES.repeat(len(VALUES)))] if reduction == "none" else [
            (VALUES, VALUES.flip(0)), (VALUES[:9], VALUES[:9].flip(0))]
        for x, y in pairs:
            check(lambda x, y: LOSSES[name](x, y, reduction=reduction), x.to(dtype), y.to(dtype), breaks=0)


CONVERTED = {
    "xlogy": lambda x, n: torch.xlogy(x, n),
    "xlogy of a number": lambda x, n: torch.xlogy(n, x),
    "xlog1py": lambda x, n: torch.special.xlog1py(x, n),
    "xlog1py of a number": lambda x, n: torch.special.xlog1py(n, x),
    "power of a number": lambda x, n: n ** x,
    "atan2": lambda x, n: torch.atan2(x, torch.tensor(n)),
    "floor_divide": lambda x, n: x // n,
    "floor_divide by a tensor": lambda x, n: x // torch.tensor(n),
    "remainder": lambda x, n: x % n,
}


@pytest.mark.cpu_only("kernels of a GPU convert numbers in their own way")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CONVERTED)
def test_numbers(name, dtype):
    f, x = CONVERTED[name], torch.tensor([1.0, 2, 0.5, 1.001, 3, 0], dtype=dtype)
    compiled = framejit.compile(f)
    for n in (0.5, 2.0, 1.001, 0.3001, 70000.0, 2.0 ** -26):
        torch.testing.assert_close(compiled(x, n), f(x, n), rtol=2 * torch.finfo(dtype).eps, atol=1e-7,
                                   equal_nan=True)
    assert framejit.stats()["graphs"] > 1 and framejit.stats()["graph_breaks"] == 0
