"""The short, seeded run of the fuzzer of values."""
import pytest
import torch

import values_fuzz


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend, seeds", [("framejit", range(40)), ("eager", range(40, 50))])
def test_programs(backend, seeds):
    failures, whole = values_fuzz.fuzz(seeds.start, len(seeds), backend)
    assert not failures, "\n".join(failures)
    assert whole >= 0.75 * len(seeds)


class OfFloat32:
    unit, overflows = 2**-23, False


@pytest.mark.parametrize("other", [[float("nan"), 0.0, 2.0], [1.0, -0.0, 2.0], [1.0, 0.0, 2.001],
                                   [1.0, 0.0, float("inf")]])
def test_a_difference_is_told(other):
    want = torch.tensor([1.0, 0.0, 2.0])

    def told(got):
        return values_fuzz.difference(got, want, OfFloat32, lambda: want.double(), lambda: torch.zeros(3), "", True)
    assert told(want.clone()) is None and told(torch.tensor(other)) and told(want.double())
