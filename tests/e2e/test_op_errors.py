"""Errors that eager's kernels raise for the shapes they are given: the compiled function raises the same one, and found out while tracing."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, threads

CASES = {
    "convolution without channels": lambda: F.conv1d(torch.ones(2, 3, 4), torch.ones(0, 3, 3)),
    "fft of nothing": lambda: torch.fft.fft(torch.ones(0, 5), dim=0),
    "norm of nothing": lambda: torch.ones(0, 5).norm(float("-inf")),
    "embedding without rows": lambda: F.embedding(torch.tensor([0]), torch.ones(0, 3)),
    "index into nothing": lambda: torch.ones(0, 3)[torch.tensor([0])],
    "boundaries that are no list": lambda: torch.bucketize(torch.tensor(1.0), torch.tensor(1.0)),
    "slice_scatter of a number": lambda: torch.slice_scatter(torch.tensor(1.0), torch.tensor(1.0)),
    "slice_scatter of another size": lambda: torch.slice_scatter(torch.ones(4), torch.ones(3), 0, 0, 2),
    "as_strided beyond the storage": lambda: torch.ones(4).as_strided((3, 3), (3, 1)),
    "batch norm with another number of channels": lambda: F.batch_norm(torch.ones(2, 3), torch.ones(4), torch.ones(4)),
    "copy into shared memory": lambda: torch.ones(1, 2).expand(3, 2).copy_(torch.ones(3, 2)),
}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_errors_of_shapes(case):
    made = []

    def program(x):
        made.append(None)
        return x + 1, case()
    with pytest.raises(Exception) as eager:
        program(torch.ones(2))
    framejit.reset()
    with pytest.raises(type(eager.value)) as compiled:
        framejit.compile(program)(torch.ones(2))
    assert str(compiled.value).splitlines()[0] == str(eager.value).splitlines()[0]
    totals = framejit.stats()
    assert totals["fallbacks"] == 0 and totals["break_reasons"].get("exception_raised") == 1, totals
    assert len(made) == 2  # the instruction that raises is executed once, what stands before it too


def test_statistics_whose_elements_share_memory():
    """Eager writes one element several times; a graph of its own copies would not. On two threads, eager's own writes race."""
    x = torch.arange(50.0).view(2, 5, 5)
    with threads(1):
        check(lambda x, m, v: F.batch_norm(x * 2, m, v, training=True) + 1, x, torch.zeros(1).expand(5), torch.ones(1).expand(5), breaks=1)


def test_results_that_keep_their_place_in_the_storage():
    x = torch.arange(60.0).view(3, 4, 5)
    for view in (x[1:], x[:, 1:3], x.as_strided((2, 2), (2, 1), 5)):
        check(lambda v: torch.select_scatter(v, torch.zeros_like(v[0]), 0, 1), view, breaks=1)
    check(lambda v: torch.select_scatter(v, torch.zeros_like(v[0]), 0, 1), x)
    check(lambda v: torch.select_scatter(v.t(), torch.zeros(3), 0, 1), x[:, :, 0].contiguous())


@pytest.mark.parametrize("shape", [(25, 5), (5, -1), (1, 125)])
def test_view_copy_of_any_strides(shape):
    x = torch.arange(125.0).view(5, 5, 5)
    for v in (x, x.transpose(1, 2), x[:1].expand(5, 5, 5)):
        check(torch.view_copy, v, shape)


def test_reversed_subtraction_of_small_integers():
    for dtype in (torch.uint8, torch.int8, torch.int16):
        check(lambda x: torch.rsub(x, 0.5) + torch.rsub(x, 2, alpha=3), torch.tensor([0, 1, 100, torch.iinfo(dtype).max], dtype=dtype))
