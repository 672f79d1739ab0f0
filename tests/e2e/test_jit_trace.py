"""torch.jit.trace of compiled functions and modules: it records what eager runs."""
import pytest
import torch

import framejit


def test_under_jit_trace_the_program_runs_plainly():
    """A trace records the ops that run, not what a kernel returned for these values."""
    def f(x):
        return x.sin() + 1
    compiled = framejit.compile(f)
    x = torch.randn(3)
    with torch.no_grad():
        assert torch.allclose(compiled(x), f(x))
        traced = torch.jit.trace(compiled, (x,))
    assert "aten::sin" in str(traced.graph) and framejit.stats()["break_reasons"] == {"modes_unsupported": 1}
    assert torch.allclose(traced(x + 1), f(x + 1))


@pytest.mark.breaks(modes_unsupported=1)
def test_a_module_under_jit_trace():
    """nn.Module asks for the state of the trace, and writes its scopes to it. It is another object in each trace."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    compiled, x = framejit.compile(net), torch.randn(2, 4)
    with torch.no_grad():
        assert torch.allclose(compiled(x), net(x))
        for _ in range(3):
            traced, want = (torch.jit.trace(f, (x,)) for f in (compiled, net))
            assert torch.allclose(traced(x + 1), net(x + 1))
            assert [node.kind() for node in traced.inlined_graph.nodes()] == \
                   [node.kind() for node in want.inlined_graph.nodes()]
        assert torch.allclose(compiled(x), net(x))
    stats = framejit.stats()
    assert not stats["fallbacks"] and stats["break_reasons"].pop("modes_unsupported"), stats


@pytest.mark.nothing_captured
def test_the_state_of_jit_trace_is_read_anew():
    state = framejit.compile(lambda: torch._C._get_tracing_state())
    seen = []

    def f(x):
        seen.append(state() == torch._C._get_tracing_state() and state() is not None)
        return x + 1
    assert state() is None
    for _ in range(3):
        torch.jit.trace(f, (torch.ones(2),), check_trace=False)
        assert state() is None
    assert seen == [True] * 3 and framejit.stats()["break_reasons"] == {"modes_unsupported": 1}
