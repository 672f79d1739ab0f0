"""The short, seeded run of the tensor program fuzzer."""
import pytest

import graphs_fuzz


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend, seeds", [("framejit", range(40)), ("eager", range(40, 60))])
def test_programs(backend, seeds):
    failures, whole = graphs_fuzz.fuzz(seeds.start, len(seeds), backend)
    assert not failures, "\n".join(failures)
    assert whole >= 0.8 * len(seeds)


def test_a_difference_is_told():
    """The comparison itself: other values, strides and dtypes are differences."""
    import torch
    a = torch.arange(6.0).view(2, 3)
    assert graphs_fuzz.difference(a, a.clone(), None, torch.float64, "") is None
    for other in (a + 0.25, a.T.contiguous().T, a.double(), a[:1]):
        assert graphs_fuzz.difference(other, a, None, torch.float64, "")
    assert graphs_fuzz.sharing([a, a[0], a.clone()]) == [0, 0, 2]
