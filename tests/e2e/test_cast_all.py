"""framejit::cast_all, which GPU plans call, on tensors of the CPU."""
import pytest
import torch

import framejit  # noqa: F401, registers the op

pytestmark = pytest.mark.nothing_captured


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_each_tensor_is_cast(dtype):
    tensors = [torch.randn(5, 3), torch.randn(0, 4), torch.randn(7), torch.randn(2, 3, 4, 5)]
    for cast, tensor in zip(torch.ops.framejit.cast_all(tensors, [1] * 4, dtype), tensors, strict=True):
        assert torch.equal(cast, tensor.to(dtype)) and cast.stride() == tensor.stride()


def test_several_are_rows_of_one_result():
    a, b, c, d = torch.randn(5, 3), torch.randn(2, 3), torch.randn(7), torch.randn(4)
    single, rows, vector = torch.ops.framejit.cast_all([b, a, b, c, d], [1, 2, 2], torch.float16)
    assert torch.equal(single, b.half())
    assert torch.equal(rows, torch.cat([a, b]).half()) and rows.is_contiguous()
    assert torch.equal(vector, torch.cat([c, d]).half())


@pytest.mark.parametrize("counts", [[1], [1, 2], [2, 0], [3, -1]])
def test_counts_of_other_tensors(counts):
    with pytest.raises(RuntimeError, match="counts of other tensors"):
        torch.ops.framejit.cast_all([torch.randn(2), torch.randn(2)], counts, torch.float16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_each_tensor_is_put_last(dtype):
    tensors = [torch.randn(5, 4, 3, 3), torch.randn(0, 4, 1, 2), torch.randn(2, 3, 4, 5)]
    for cast, tensor in zip(torch.ops.framejit.cast_all_last(tensors, dtype), tensors, strict=True):
        assert torch.equal(cast, tensor.to(dtype)) and cast.is_contiguous(memory_format=torch.channels_last)
