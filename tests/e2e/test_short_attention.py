"""framejit::short_attention, which GPU plans call, on tensors of the CPU: torch's own attention, laid out as the kernel
does it."""
import pytest
import torch
import torch.nn.functional as F

import framejit  # noqa: F401, registers the op

pytestmark = pytest.mark.nothing_captured


@pytest.mark.parametrize("size", [64, 32])
@pytest.mark.parametrize("causal", [False, True])
def test_as_torch(size, causal):
    q, k, v = (torch.randn(2, n, 3 * size).view(2, n, 3, size).transpose(1, 2) for n in (5, 9, 9))
    for mask in (None, torch.randn(2, 1, 1, 9)) if not causal else (None,):
        got = torch.ops.framejit.short_attention(q, k, v, mask, causal, 0.25)
        assert torch.equal(got, F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=0.25))
        assert got.stride() == (5 * 3 * size, size, 3 * size, 1)
