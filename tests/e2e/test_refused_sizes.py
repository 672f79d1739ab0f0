"""Sizes that eager refuses: a function that was compiled for varying sizes raises eager's error for them too, and
returns what eager returns for all others."""
import collections
import itertools

import pytest
import torch

import framejit
import op_sweep_worker as worker
from check import fresh, raised  # noqa: F401

SAMPLES, MOST = 3, 8  # of an op; sizes tried for a sample
# Ops whose kernels read memory outside of their arguments where eager itself does not check a size.
READ_OUTSIDE = {"nn.functional.pdist", "nn.functional.embedding_bag", "nn.functional.ctc_loss"}
OPS = {worker.label_of(op): op for op in worker.op_database()
       if op.name.startswith("nn.functional.") and torch.float32 in op.dtypes and op.name not in READ_OUTSIDE}


def resized(t, d, change):
    """One index more or less along dimension d."""
    if change < 0:
        return t.narrow(d, 0, t.shape[d] - 1).clone()
    return torch.cat([t, t.narrow(d, 0, 1)], d)


def outcome(fn, t):
    torch.manual_seed(0)
    return raised(fn, t.clone())


def programs_of(op):
    """(a function of one tensor, the other arguments being constants; that tensor) for each tensor of each sample."""
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=False), SAMPLES):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        for i, tensor in enumerate(args):
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                before, after = args[:i], args[i + 1:]
                yield lambda x, before=before, after=after: op.op(*before, x, *after, **kwargs), tensor
        for name, tensor in kwargs.items():
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                others = {k: v for k, v in kwargs.items() if k != name}
                yield lambda x, name=name, others=others: op.op(*args, **others, **{name: x}), tensor


def wrong_sizes(op, counts):
    """A line for each size at which compiled code does something else."""
    for program, tensor in programs_of(op):
        framejit.reset()
        compiled = framejit.compile(program, dynamic=True)
        if not same_kind(outcome(program, tensor), outcome(compiled, tensor)) or framejit.stats()["graphs"] == 0:
            continue
        for d, change in list(itertools.product(range(tensor.dim()), (1, -1)))[:MOST]:
            other = resized(tensor, d, change)
            want, got = outcome(program, other), outcome(compiled, other)
            counts["refused" if is_error(want) else "returned"] += 1
            if not same_kind(got, want):
                yield f"{worker.label_of(op)}: {tuple(tensor.shape)} -> {tuple(other.shape)}: {got}, eager {want}"


@pytest.mark.slow
@pytest.mark.breaks(total=558)  # of sizes that eager refuses, nearly all
@pytest.mark.fallbacks(total=59)
def test_sizes():
    counts = collections.Counter()
    wrong = [line for op in OPS.values() for line in wrong_sizes(op, counts)]
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] > 400 and counts["returned"] > 400, counts


def is_error(outcome):
    return isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[0], str)


def same_kind(got, want):
    """Whether both raise the same error, or return values that are alike; how exact they are is for op_sweep.py."""
    if is_error(got) or is_error(want):
        return got == want
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3, equal_nan=True)
    return True
