"""F.interpolate by factors: what torch's kernels choose by sizes, memory formats and the factor itself."""
import itertools

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import fresh  # noqa: F401

FACTORS = (0.4, 0.5, 0.97, 1.0, 1.03, 1.1, 1.9, 2.0, 2.03, 2.1, 2.5, 3.0)
FORMATS = {4: (torch.contiguous_format, torch.channels_last), 5: (torch.contiguous_format, torch.channels_last_3d)}


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_elements_are_those_of_eager(dimensions, mode):
    differing = []
    for factor, size, channels in itertools.product(FACTORS, (5, 6, 30), (1, 2, 5)):
        for memory_format in FORMATS.get(dimensions + 2, (torch.contiguous_format,)):
            def f(x):
                return F.interpolate(x, scale_factor=factor, mode=mode)
            sizes = (1, channels) + (size if dimensions < 3 else min(size, 6),) * dimensions
            x = torch.arange(float(torch.Size(sizes).numel())).view(sizes).contiguous(memory_format=memory_format)
            framejit.reset()
            with torch.no_grad():
                got, want = framejit.compile(f)(x), f(x)
            if not torch.equal(got, want) or got.stride() != want.stride():
                differing.append((factor, sizes, memory_format))
            assert framejit.stats()["graphs"] == 1 and not framejit.stats()["graph_breaks"]
    assert not differing
