"""The gradient sweep's floor: the first sample of each op of torch's op_db that has a backward, in worker processes."""
import pytest
import torch

import framejit
import gradient_sweep_worker as worker
import op_sweep
import op_sweep_worker

LEAST = "90"  # percent of the ops whose samples are all whole, forward and backward


@pytest.mark.slow
@pytest.mark.nothing_captured  # here: the workers compile
def test_first_samples():
    """In float32; make sweep takes every sample, and bfloat16."""
    assert op_sweep.main(["--gradients", "--samples", "1", "--dtype", "float32", "--at-least", LEAST]) == 0


# ---- the sweep itself


class Wrong(torch.autograd.Function):
    """Its input unchanged, and a gradient that is changed on the way back."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return ctx.change(g), None


def row_of(name, compiled, dtype=torch.float32):
    op = next(op for op in op_sweep_worker.op_database() if op_sweep_worker.label_of(op) == name)
    real, framejit.compile = framejit.compile, compiled
    try:
        return [worker.run_one(op, sample, "framejit") for sample in worker.samples_of(op, dtype, 3)]
    finally:
        framejit.compile = real


CHANGES = {"twice": lambda g: g * 2, "zeros": torch.zeros_like, "one element": lambda g: torch.cat([g.reshape(-1)[:-1],
           g.reshape(-1)[-1:] + 0.1]).view(g.shape), "off by 1%": lambda g: g * 1.01}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["mul", "sin", "logsumexp"])
def test_a_wrong_gradient_is_seen(name, change):
    def compiled(fn, **options):
        return lambda x, *a, **k: fn(Wrong.apply(x, CHANGES[change]), *a, **k)
    assert all(row["status"] == "differs" for row in row_of(name, compiled))


@pytest.mark.nothing_captured
def test_none_is_not_zeros():
    def compiled(fn, **options):
        return lambda *a, **k: fn(*a, **k) + 0 * sum(t.sum() for t in a if isinstance(t, torch.Tensor)
                                                     and t.requires_grad)

    class OneOfTwo:
        op = staticmethod(lambda a, b: a * 2 + b.detach())
        name, variant_test_name = "one of two", ""

    class Sample:
        input = torch.randn(3, requires_grad=True)
        args, kwargs = (torch.randn(3, requires_grad=True),), {}
        output_process_fn_grad = staticmethod(lambda result: result)
    real, framejit.compile = framejit.compile, compiled
    try:
        row = worker.run_one(OneOfTwo, Sample, "framejit")
    finally:
        framejit.compile = real
    assert row["status"] == "differs", row


@pytest.mark.nothing_captured
def test_an_op_without_gradient_is_no_row():
    assert row_of("eq", lambda fn, **options: fn) == [None] * 3


def test_a_right_gradient_is_whole():
    rows = row_of("mul", framejit.compile) + row_of("softmax", framejit.compile)
    assert rows and all(row["status"] == "whole" for row in rows), rows


@pytest.mark.nothing_captured
def test_a_backward_that_ran_plainly_is_not_whole():
    totals = {"graphs": 1, "hits": 1, "plain_hits": 0, "graph_breaks": 0, "fallbacks": 0, "recompiles": 0,
              "traced_instructions": 5, "break_reasons": {}, "fallback_reasons": {}, "backward_runs": 2}
    assert worker.verdict(totals, "returned")["status"] == "whole"
    for changed in (dict(backward_runs=0), dict(backward_runs=1), dict(fallbacks=1), dict(recompiles=1)):
        assert worker.verdict({**totals, **changed}, "returned")["status"] != "whole"
    broken = {**totals, "graph_breaks": 1, "break_reasons": {"unsupported_op": 1}}
    assert worker.verdict(broken, "returned")["status"] == "break"
