"""Masks that say on which side of a border a position is (`inductor/cpu/nest_masks.cpp`), for borders in every
place."""
import pytest
import torch

import framejit

DIAGONALS = [-2**62, -2**33 + 5, -2**32, -2**32 + 7, -2**31 - 5, -2**31, -64, -63, -17, -1, 0, 1, 16, 63, 64, 2**31 - 1,
             2**31 + 5, 2**32, 2**32 + 7, 2**62]


@pytest.mark.parametrize("name", ["triu", "tril"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_diagonals_however_far(name, dynamic):
    part, x = getattr(torch, name), torch.rand(64, 64) + 1
    compiled = framejit.compile(lambda x, d: part(x, d) + 1, dynamic=True if dynamic else None)
    for d in DIAGONALS:
        if not dynamic:
            framejit.reset()
            compiled = framejit.compile(lambda x: part(x, d) + 1)
        got = compiled(x, d) if dynamic else compiled(x)
        assert torch.equal(got, part(x, d) + 1), d
    assert framejit.stats()["kernels"] > 0
