"""Empty tensors: every way to make one, then every op on it, in pairs, compared with eager: results, or the error.

An empty tensor has no memory. A loop over it never runs, and nothing in that loop may be moved out of it.
EMPTY=all takes every pair, in both dtypes and with symbolic sizes; without it, each pair is taken in one of these
forms.
"""
import os

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, fresh, outcome, same  # noqa: F401
from stated import RUN_ERRORS

BACKENDS = ("framejit", "interp")
NONE = torch.empty(0, dtype=torch.long)
ALL = os.environ.get("EMPTY") == "all"


def long(*sizes):
    return torch.zeros(sizes, dtype=torch.long)


# Each takes x [1, 4], y [4, 3] and n, which is 0 and may be a symbol in a compiled function.
MADE = {
    "slice": lambda x, y, n: y[:n],
    "slice_of_columns": lambda x, y, n: y[:, 1:n + 1],
    "narrow_and_work": lambda x, y, n: y.narrow(1, 2, n) * 2 + 1,
    "gather_of_columns": lambda x, y, n: x[:, NONE],
    "gather_unsqueezed": lambda x, y, n: x[:, NONE].unsqueeze(2),
    "gather_of_rows": lambda x, y, n: y[NONE],
    "two_gathers": lambda x, y, n: y[NONE, :][:, NONE],
    "index_select": lambda x, y, n: y.index_select(1, NONE) - 1,
    "gather": lambda x, y, n: y.gather(0, long(0, 3)),
    "take": lambda x, y, n: y.take(long(0, 2)),
    "embedding": lambda x, y, n: F.embedding(long(2, 0), y),
    "new": lambda x, y, n: x.new_zeros(2, n, 3) + x[0, 0],
    "view": lambda x, y, n: y[:n].view(1, n, 3, 1),
    "expanded_to_none": lambda x, y, n: x[:, :1].expand(n, 3),
    "expanded_from_none": lambda x, y, n: y[:n].view(n, 1, 3).expand(n, 2, 3),
    "transposed": lambda x, y, n: y[:, :n].transpose(0, 1) * x,
    "cat": lambda x, y, n: torch.cat([y[:n], y[4:]], 0),
    "cat_of_one": lambda x, y, n: torch.cat([y[:n], y], 0),
    "stack": lambda x, y, n: torch.stack([y[:n], y[4:]], 1),
    "repeat": lambda x, y, n: y[:n].repeat(2, 2),
    "repeat_none": lambda x, y, n: y.repeat(0, 1),
    "pad": lambda x, y, n: F.pad(y[:n], (1, 1, 0, 0), value=2),
    "padded_to_some": lambda x, y, n: F.pad(y[:n], (0, 1, 1, 1), value=2),
    "sum": lambda x, y, n: y[:n].sum(0),
    "sum_of_columns": lambda x, y, n: y[:, NONE].sum(1, keepdim=True),
    "sum_of_a_view": lambda x, y, n: x[:, NONE].view(n, 1).expand(1, n, 3).sum(1),
    "product": lambda x, y, n: y[:n].prod(0),
    "any": lambda x, y, n: (y[:, :n] > 1).any(1).to(y.dtype),
    "running_sum": lambda x, y, n: y[:n].cumsum(0),
    "matmul_over_none": lambda x, y, n: y[:, :n] @ y[:n, :],
    "matmul_to_none": lambda x, y, n: y[:n] @ y.T,
    "scatter": lambda x, y, n: y.scatter(0, long(0, 3), y[:n]),
    "put_of_none": lambda x, y, n: y.index_put((NONE,), y[:n]),
    "written_slice": lambda x, y, n: written(y * 1, (slice(1, -1), slice(3, 3)), x[:, NONE].view(1, n)),
    "triangle": lambda x, y, n: torch.tril(y[:, :n]),
    "flipped": lambda x, y, n: y[:n].flip(1),
    "where": lambda x, y, n: torch.where(y[:n] > 0, y[:n], x[:, :3]),
}


def written(into, at, value):
    into[at] = value
    return into


def around(t):
    return t.new_ones([s + 2 for s in t.shape]), tuple(slice(1, -1) for _ in t.shape)


# Each takes such a tensor.
DONE = {
    "itself": lambda t: t,
    "pointwise": lambda t: (t * 2 + 1, t > 1),
    "broadcast": lambda t: t.unsqueeze(0) + t.unsqueeze(1),
    "slice_assigned": lambda t: written(*around(t), t),
    "last_slice_assigned": lambda t: written(t.new_zeros(*t.shape[:-1], t.shape[-1] + 2), (..., slice(1, -1)), t),
    "slice_of_none_assigned": lambda t: written(t.new_zeros(2, *t.shape), (slice(1, 1),), t),
    "slice_of_none_assigned_a_broadcast": lambda t: written(t.new_zeros(1, 2, 3), (slice(None), slice(1, -1)),
                                                            t.flatten()[:0].view(1, 0).unsqueeze(2)),
    "slice_with_steps_assigned": lambda t: written(t.new_zeros(t.shape[0] * 2, *t.shape[1:]), (slice(None, None, 2),),
                                                   t * 2),
    "row_assigned": lambda t: written(t.new_zeros(2, *t.shape), 1, t),
    "added_in_place": lambda t: t.clone().add_(1),
    "view_added_in_place": lambda t: t.clone().view(-1).add_(1),
    "filled": lambda t: written(t * 1, (slice(None),), 3),
    "scatter": lambda t: t.new_zeros(4, *t.shape[1:]).scatter(0, torch.zeros_like(t, dtype=torch.long), t),
    "scatter_add": lambda t: t.new_zeros(4, *t.shape[1:]).scatter_add(0, torch.zeros_like(t, dtype=torch.long), t),
    "scatter_amax": lambda t: t.new_zeros(4, *t.shape[1:]).scatter_reduce(0, torch.zeros_like(t, dtype=torch.long), t,
        "amax"),
    "put": lambda t: t.new_zeros(5, *t.shape[1:]).index_put((torch.arange(t.shape[0]),), t),
    "put_and_added": lambda t: t.new_zeros(5, *t.shape[1:]).index_put((long(t.shape[0]),), t, True),
    "put_in_place": lambda t: written(t.new_zeros(5, *t.shape[1:]), torch.arange(t.shape[0]), t),
    "put_of_columns": lambda t: written(t.new_zeros(2, *t.shape), (slice(None), NONE), 1),
    "index_add": lambda t: t.new_zeros(3, *t.shape[1:]).index_add(0, long(t.shape[0]), t),
    "index_copy": lambda t: t.new_zeros(5, *t.shape[1:]).index_copy(0, torch.arange(t.shape[0]), t),
    "index_fill": lambda t: t.index_fill(0, NONE, 7),
    "gather": lambda t: t.gather(0, long(0, *t.shape[1:])),
    "gather_of_all": lambda t: t.gather(-1, torch.zeros_like(t, dtype=torch.long)),
    "index": lambda t: t[NONE],
    "index_in_range": lambda t: t[torch.arange(t.shape[0])],
    "index_out_of_range": lambda t: t[long(2) + 7],
    "index_select": lambda t: t.index_select(-1, NONE),
    "sum": lambda t: (t.sum(), t.sum(0), t.sum(-1)),
    "mean": lambda t: (t.float().mean(), t.float().mean(-1)),
    "product": lambda t: (t.prod(0), t.prod(-1, keepdim=True)),
    "largest": lambda t: t.amax(-1),
    "place_of_largest": lambda t: t.argmax(0),
    "any_and_all": lambda t: (t.bool().any(), t.bool().all(0), t.bool().any(-1)),
    "variance": lambda t: t.float().var(-1),
    "norm": lambda t: t.float().norm(dim=-1),
    "softmax": lambda t: t.float().softmax(-1),
    "softmax_of_rows": lambda t: t.float().softmax(0),
    "log_of_sums": lambda t: t.float().logsumexp(0),
    "running_sum": lambda t: t.cumsum(-1),
    "running_largest": lambda t: t.cummax(0),
    "layer_norm": lambda t: F.layer_norm(t.float(), t.shape[-1:]),
    "product_with_itself": lambda t: t @ t.transpose(-1, -2),
    "linear": lambda t: F.linear(t, t.new_ones(2, t.shape[-1]), t.new_ones(2)),
    "outer_product": lambda t: torch.outer(t.flatten(), t.new_ones(3)),
    "contraction": lambda t: torch.einsum("i,j->j", t.flatten(), t.flatten()),
    "cat": lambda t: torch.cat([t, t, t.new_ones(2, *t.shape[1:])]),
    "cat_of_columns": lambda t: torch.cat([t, t * 2], -1),
    "stack": lambda t: torch.stack([t, t + 1], -1),
    "split": lambda t: t.split(2, -1),
    "pad": lambda t: F.pad(t, (1, 2), value=3),
    "crop": lambda t: F.pad(t, (0, -t.shape[-1])),
    "repeat": lambda t: t.repeat(2, *[1] * t.dim()),
    "flipped": lambda t: t.flip(0),
    "rolled": lambda t: t.roll(1, 0),
    "triangle": lambda t: t.tril(),
    "where": lambda t: torch.where(t > 0, t, 5),
    "masked": lambda t: t.masked_fill(t > 0, 5),
    "transposed": lambda t: t.transpose(0, -1).contiguous(),
    "reshaped": lambda t: (t + 1).reshape(-1).unsqueeze(0),
    "sorted": lambda t: t.sort(-1),
    "diagonal": lambda t: t.diag_embed(),
    "another_dtype": lambda t: t.to(torch.int32) + 1,
    "pool": lambda t: F.avg_pool2d(t.float().reshape(1, 1, -1, 1), (2, 1)),
    "convolution": lambda t: F.conv1d(t.float().flatten().view(-1, 1, 1), torch.ones(2, 1, 1)),
    "resampled": lambda t: F.interpolate(t.float().flatten().view(-1, 1, 1), 4),
}


def forms(made, done):
    """(dtype, whether sizes are symbols)"""
    every = [(torch.float32, False), (torch.int64, False), (torch.float32, True)]
    return every if ALL else [every[(list(MADE).index(made) + list(DONE).index(done)) % 3]]


def program(made, done):
    make, do = MADE[made], DONE[done]

    def f(x, y, n):
        return do(make(x, y, n))
    return f


def differs(fn, dtype, dynamic, backend, breaks=()):
    """The difference from eager, or None. `breaks`: reasons that do not count as a difference."""
    framejit.reset()
    compiled, raised = framejit.compile(fn, backend=backend, dynamic=True if dynamic else None), False
    x, y = torch.arange(4).view(1, 4).to(dtype), torch.arange(12).view(4, 3).to(dtype)
    for n in (2, 1, 0, 0) if dynamic else (0, 0):
        want, got = outcome(fn, (x, y, n), {}), outcome(compiled, (x.clone(), y.clone(), n), {})
        raised = raised or want[0] == "raised"
        try:
            assert got[0] == want[0], f"{got} instead of {want}"
            if want[0] == "returned":
                same(got[1], want[1])
            else:
                assert type(got[1]) is type(want[1]) and str(got[1]) == str(
                    want[1]), f"{got[1]!r} instead of {want[1]!r}"
        except AssertionError as e:
            return f"n = {n}, {backend}, {dtype}{', dynamic' if dynamic else ''}: {e}"
    breaks = set(framejit.stats()["break_reasons"].copy()) - set(breaks)
    fallbacks = framejit.stats()["fallback_reasons"].copy()
    # if a size is a symbol, indices are checked before it is known that nobody uses them: plain Python runs
    if dynamic:
        fallbacks = {reason: count for reason, count in fallbacks.items() if reason not in RUN_ERRORS}
    if raised:
        breaks.discard("exception_raised")
    return f"{backend}, {dtype}: {breaks}, {fallbacks}" if breaks or fallbacks and want[0] == "returned" else None


def wrong_pairs(made):
    pairs = [(done, *form) for done in DONE for form in forms(made, done)]
    # a variance of nothing warns
    found = [(done, differs(program(made, done), dtype, dynamic, backend, ["unsupported_op"] * (done == "variance")))
             for done, dtype, dynamic in pairs for backend in BACKENDS]
    return [(made, *pair) for pair in found if pair[1]]


@pytest.mark.parametrize("made", MADE)
def test_what_is_done_with_what_was_made(made):
    assert not wrong_pairs(made)


def test_a_slice_that_nothing_is_assigned_to():
    def f(x):
        o = torch.zeros(1, 2, 3)
        o[:, 1:-1] = x[:, NONE].unsqueeze(2)
        return o
    check(f, torch.ones(1, 1), breaks=0, compiles=1)


@pytest.mark.breaks(exception_raised=1)
def test_extrema_of_a_size_that_became_none():
    def f(x, n):
        return x[:n].argmax(0), x[:n].amax(0)

    compiled = framejit.compile(f, dynamic=True)
    x = torch.randn(4, 3)
    for n in (3, 2):
        same(compiled(x, n), f(x, n))
    with pytest.raises(IndexError, match="non-zero size"):
        compiled(x, 0)


@pytest.mark.cpu_only("torch's batch norm raises there")
def test_an_empty_batch_and_statistics_of_other_sizes():
    """The kernel of batch norm does not look at them."""
    def f(x, mean, variance):
        return torch.native_batch_norm(x, None, None, mean, variance, False, 0.1, 1e-5)[0]
    check(f, torch.empty(0, 3, 4), torch.ones(5), torch.ones(5), breaks=0)
    check(f, torch.empty(2, 3, 0), torch.ones(3), torch.ones(3), breaks=0)


def test_a_convolution_with_a_weight_of_no_elements():
    """Its result has the sizes of its input, whatever the weight's are."""
    def f(x):
        return F.conv1d(x[None], x[:, :1].reshape(1, -1, 1)) + 1
    check(f, torch.zeros(0, 9, dtype=torch.float64))
