"""mode="reduce-overhead" if nothing can be replayed: the same results, and the reason in the log. What is replayed:
tests/unit/runtime_aten/graph_replay_test.cpp without a GPU, tests/gpu/test_graphs.py on one."""
import pytest
import torch

import framejit


def refusals_of(fn, *args, **settings):
    explained = framejit.explain(fn, **settings)(*args)
    return [e for e in explained.events if e.event == "NotReplayed"], explained


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_nothing_runs_on_a_gpu(mode):
    def f(x):
        return torch.softmax(x @ x.T, -1)
    x = torch.randn(100, 300)
    with torch.no_grad():
        events, explained = refusals_of(f, x, mode=mode)
        compiled = framejit.compile(f, mode=mode)
        for _ in range(4):
            torch.testing.assert_close(compiled(x), f(x))
    assert [(e.channel, e.fields["reason"]) for e in events] == [("replay", "no_device")]
    assert events == explained.replays and "is not replayed, no_device: none of its steps runs" in str(explained)
    assert framejit.stats()["recordings"] == framejit.stats()["replays"] == 0


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_other_modes_do_not_ask(mode):
    with torch.no_grad():
        events, _ = refusals_of(lambda x: x + 1, torch.randn(3), mode=mode)
    assert not events
