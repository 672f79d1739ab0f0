"""Losses that PyTorch composes from several ops overflow between two steps in float16: NaN and infinities appear where
eager has them."""
import pytest
import torch
import torch.nn.functional as F

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
