"""max_pool1d: without gradients, torch's own code reads the memory of its argument, which a trace does not have."""
import pytest
import torch
import torch.nn.functional as F

from check import check, fresh  # noqa: F401

NAN, INF = float("nan"), float("inf")
POOLED = {
    "windows": lambda x: F.max_pool1d(x * 2, 3) + 1,
    "strides": lambda x: F.max_pool1d(x, 3, stride=2),
    "borders": lambda x: F.max_pool1d(x, 4, stride=3, padding=2),
    "steps": lambda x: F.max_pool1d(x, 3, dilation=2, stride=1),
    "rounded up": lambda x: F.max_pool1d(x, 3, stride=2, padding=1, ceil_mode=True),
    "no batch": lambda x: F.max_pool1d(x[0], 3),
    "no samples": lambda x: F.max_pool1d(x[:0], 3),
    "channels last in memory": lambda x: F.max_pool1d(x.mT.contiguous().mT, 3, 2),
    "a part": lambda x: F.max_pool1d(x[..., 1::2], 3),
    "a module": lambda x: torch.nn.MaxPool1d(3, 2, 1)(x),
    "no view": lambda x: (y := torch.max_pool1d(x, 3), y._is_view()),
    "with indices": lambda x: F.max_pool1d(x, 3, return_indices=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", POOLED)
def test_equal(name, dtype):
    check(POOLED[name], torch.randn(2, 3, 17).to(dtype), breaks=0, fallbacks=0)


@pytest.mark.parametrize("name", POOLED)
def test_special_values(name):
    x = torch.randn(2, 3, 17)
    x[0, :, ::4], x[1, 0], x[1, 1, 3:9] = torch.tensor([NAN, -INF, INF])[:, None], -INF, 0.0
    x[1, 2, ::2], x[1, 2, 1::2] = -0.0, 0.0
    check(POOLED[name], x, breaks=0, fallbacks=0)


@pytest.mark.parametrize("name", POOLED)
def test_with_and_without_gradients(name):
    for asks in (False, True):
        for grad in (False, True):
            check(POOLED[name], torch.randn(2, 3, 17).requires_grad_(asks), breaks=0, fallbacks=0, grad=grad)


def test_sizes_that_vary():
    stats = check(POOLED["borders"], torch.randn(2, 3, 17), breaks=0, fallbacks=0, dynamic=True)
    assert stats["graphs"] == 1


REFUSED = {
    "wide borders": lambda x: F.max_pool1d(x, 3, padding=2), "no window": lambda x: F.max_pool1d(x, 0),
    "borders of steps": lambda x: F.max_pool1d(x, 3, padding=2, dilation=3),
    "no steps": lambda x: F.max_pool1d(x, 3, dilation=0), "no stride": lambda x: F.max_pool1d(x, 3, stride=0),
    "two sizes": lambda x: F.max_pool1d(x, (3, 3)), "no channels": lambda x: F.max_pool1d(x[:, :0], 3),
    "a row": lambda x: F.max_pool1d(x[0, 0], 3), "a long window": lambda x: F.max_pool1d(x, 30),
}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", REFUSED)
def test_errors(name):
    check(REFUSED[name], torch.randn(2, 3, 17), fallbacks=0)
