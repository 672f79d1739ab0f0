"""torch.set_flush_denormal(): constants that are computed while compiling are those of the mode of the call."""
import pytest
import torch

import framejit
from check import backend, fresh  # noqa: F401


@pytest.fixture(autouse=True)
def as_before():
    yield
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("first", [False, True])
def test_constants_follow_the_mode(first, backend):
    def f(x):
        return torch.full((64,), 1e-30) * 1e-10, x * 1e-10
    if not torch.set_flush_denormal(True):
        pytest.skip("not tested: this kind of CPU flushes no denormal numbers")
    compiled, x = framejit.compile(f, backend=backend), torch.full((64,), 1e-30)
    for mode in (first, not first, first, not first):
        torch.set_flush_denormal(mode)
        results = [[t.view(torch.int32).tolist() for t in call(x)] for call in (f, compiled)]
        assert results[0] == results[1] and all(bits == [0] * 64 for bits in results[0]) == mode
    assert framejit.stats()["graphs"] == 2
