"""framejit::cast_all, which GPU plans call, on tensors of the CPU."""
import pytest
import torch

import framejit  # noqa: F401, registers the op

pytestmark = pytest.mark.nothing_captured


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_each_tensor_is_cast(dtype):
    tensors = [torch.randn(5, 3), torch.randn(0, 4), torch.randn(7), torch.randn(2, 3, 4, 5)]
    for cast, tensor in zip(torch.ops.framejit.cast_all(tensors, dtype), tensors, strict=True):
        assert torch.equal(cast, tensor.to(dtype)) and cast.stride() == tensor.stride()
