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


def test_bits_of_roundings_are_told():
    import torch
    third, half = torch.full((2,), 1 / 3), torch.full((2,), 0.5)
    assert graphs_fuzz.shows_rounding([third, third.view(torch.int32)]) and graphs_fuzz.shows_rounding(
        [half.view(torch.int32)[:1], half.copy_(third)])
    assert not graphs_fuzz.shows_rounding([third, third.long()]) and not graphs_fuzz.shows_rounding(
        [third, half.zero_(), half.view(torch.int32)])


def test_the_reference_is_float64_throughout():
    import torch
    assert graphs_fuzz.widened("def f(n):\n    return torch.sigmoid(n)", [torch.arange(3)])[0].dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32
    assert graphs_fuzz.widened("def f(a):\n    return a.view(torch.int32)", [torch.ones(3)]) is None


@pytest.mark.filterwarnings("ignore")
def test_roundings_are_no_differences(monkeypatch):
    """A sigmoid that is off by a unit in the last place: programs must not read its bits, and must expect integers to
    become float32."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Rounded(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func is not torch.ops.aten.sigmoid.default:
                return result
            return torch.where(result * 16 == (result * 16).round(), result,
                               result.nextafter(torch.ones((), dtype=result.dtype)))

    def backend(graph, examples):
        def run(*inputs):
            with Rounded():
                return graph(*inputs)
        return run

    monkeypatch.setattr(graphs_fuzz, "POINTWISE", ["torch.sigmoid({t})", "torch.sigmoid({e}.long())", "{t} + {u}",
                                                   "{t}.float()", "{t}.double()"])
    monkeypatch.setattr(graphs_fuzz, "VIEWS", [move for move in graphs_fuzz.MOVES if "torch.int32" in move] + ["{t}.T"])
    monkeypatch.setattr(graphs_fuzz, "DISCRETE", graphs_fuzz.VIEWS)
    monkeypatch.setattr(graphs_fuzz, "REDUCTIONS", graphs_fuzz.POINTWISE)
    failures, whole = graphs_fuzz.fuzz(0, 40, backend)
    assert not failures, "\n".join(failures)
