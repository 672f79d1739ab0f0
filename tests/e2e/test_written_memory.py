"""Ops that write memory which they also read or write through another tensor. Eager refuses them, or reads what it has
already written. Plain Python must do that, so such an op is a graph break. Views that interleave share no element, and
are captured."""
import pytest
import torch

import framejit
from check import check, fresh, outcome, threads, told_by  # noqa: F401

# name -> (the written view of a matrix of 4x6, another view of it)
SHARED = {
    "itself": (lambda m: m, lambda m: m),
    "rows": (lambda m: m[1:], lambda m: m[:-1]),
    "rows, backwards": (lambda m: m[:-1], lambda m: m[1:]),
    "columns": (lambda m: m[:, 1:], lambda m: m[:, :-1]),
    "columns, backwards": (lambda m: m[:, :-1], lambda m: m[:, 1:]),
    "every second column": (lambda m: m[:, ::2], lambda m: m[:, :3]),
    "transposed": (lambda m: m[:, :4], lambda m: m[:, :4].t()),
    "a row": (lambda m: m, lambda m: m[2].expand(4, 6)),
}
APART = {
    "rows": (lambda m: m[:2], lambda m: m[2:]),
    "columns": (lambda m: m[:, :3], lambda m: m[:, 3:]),
    "every second column": (lambda m: m[:, ::2], lambda m: m[:, 1::2]),
    "every second row": (lambda m: m[::2], lambda m: m[1::2]),
    "blocks": (lambda m: m[:2, :3], lambda m: m[2:, 3:]),
}
# Ops that write to w and read r.
OPS = {
    "copy_": lambda w, r: w.copy_(r),
    "add_": lambda w, r: w.add_(r),
    "lerp_": lambda w, r: w.lerp_(r, 0.25),
    "where": lambda w, r: torch.where(r > 3, r, 0.5, out=w),
    "masked_fill_": lambda w, r: w.masked_fill_(r > 3, 2.0),
    "mul out": lambda w, r: torch.mul(r, 2, out=w),
    "cumsum out": lambda w, r: torch.cumsum(r, 1, out=w),
    "softmax out": lambda w, r: torch.softmax(r, 1, out=w),
    "sort out": lambda w, r: torch.sort(r, 1, descending=True, out=(w, torch.empty(0, dtype=torch.long))),
    "cat out": lambda w, r: torch.cat([r[:1], r[1:]], out=w),
    "stack out": lambda w, r: torch.stack(list(r), out=w),
    "normal out": lambda w, r: torch.normal(r, 1.0, out=w),
    "masked_scatter_": lambda w, r: w.masked_scatter_(w > 3, r),
    "index_add_": lambda w, r: w.index_add_(0, torch.arange(r.shape[0]).flip(0), r),
    "scatter_": lambda w, r: w.scatter_(0, torch.zeros(r.shape, dtype=torch.long), r),
    "foreach add": lambda w, r: torch._foreach_add_([w], [r]),
    "foreach chain": lambda w, r: torch._foreach_add_([w, r], [r * 2, w * 3]),
    "foreach mul": lambda w, r: torch._foreach_mul_([w, r], 2.0),
    "foreach copy": lambda w, r: torch._foreach_copy_([torch.zeros_like(w), w], [r, r]),
}


def matrix():
    return torch.arange(24.0).view(4, 6)


def of(op, views):
    written, read = views

    def program(m):
        OPS[op](written(m), read(m))
        return m * 2
    return program


# Ops that read each element before they write it.
IN_PLACE = ("copy_", "add_", "lerp_", "mul out", "cumsum out", "foreach add", "foreach copy")


def breaks_of(op, views):
    """masked_fill_ has made the mask before it writes. The program with where() raises."""
    if op == "masked_fill_" or (views == "itself" and op in IN_PLACE):
        return {}
    return {"exception_raised" if op == "where" else "unsupported_op": 1}


@pytest.mark.cpu_only("in which order a kernel reads and writes differs there")
@pytest.mark.parametrize("views", SHARED)
@pytest.mark.parametrize("op", OPS)
def test_shared_elements(op, views):
    program = of(op, SHARED[views])
    ours, plain = matrix(), matrix()
    framejit.reset()
    with torch.no_grad(), threads(1):  # with several, eager's own result varies from run to run
        torch.manual_seed(0)
        want = outcome(program, [plain], {})
        torch.manual_seed(0)
        got = outcome(framejit.compile(program), [ours], {})
    assert got[0] == want[0], (got, want)
    if want[0] == "raised":
        assert told_by(got[1]) == told_by(want[1])
    else:
        assert torch.equal(got[1], want[1]), (got[1], want[1])
    assert torch.equal(ours, plain)
    assert not framejit.stats()["fallbacks"]
    assert framejit.stats()["break_reasons"] == breaks_of(op, views)


WHOLE = ("copy_", "add_", "lerp_", "mul out", "foreach add", "foreach mul", "cumsum out", "softmax out")


@pytest.mark.parametrize("views", APART)
@pytest.mark.parametrize("op", WHOLE)
def test_what_lies_apart_is_captured(op, views):
    check(of(op, APART[views]), matrix(), compiles=1)


@pytest.mark.parametrize("op", WHOLE[:-1] + ("foreach copy",))
def test_an_element_that_is_read_before_it_is_written_is_captured(op):
    alone = {"foreach mul": lambda m: torch._foreach_mul_([m], m.sum())}
    program = of(op, SHARED["itself"]) if op not in alone else lambda m: alone[op](m) and m * 2
    check(program, matrix(), compiles=1)


@pytest.mark.parametrize("columns", [3, 8, 33])
def test_a_shift_by_one_column(columns):
    """The sequential order of eager's kernel shows; vectors of other widths would show another."""
    def shifted(x):
        x[:, 1:] += x[:, :-1]
        return x + 0
    framejit.reset()
    with torch.no_grad():
        x = torch.arange(4.0 * columns).view(4, columns)
        assert torch.equal(framejit.compile(shifted)(x.clone()), shifted(x.clone()))
    assert framejit.stats()["break_reasons"] == {"unsupported_op": 1, "overlapping_inputs": 1}


@pytest.mark.cpu_only("in which order a kernel reads and writes differs there")
@pytest.mark.parametrize("same", ["statistics", "weight"])
def test_statistics_that_are_one_tensor(same):
    def program(x, running, other):
        bias = torch.zeros(3)
        if same == "statistics":
            y = torch.nn.functional.batch_norm(x, running, running, training=True)
        else:
            y = torch.nn.functional.batch_norm(x, running, other, running, bias, training=True)
        return y, running + 0
    check(program, torch.arange(12.0).view(4, 3).sin(), torch.ones(3), torch.ones(3) * 2, compiles=2, breaks=1)


@pytest.mark.cpu_only("in which order a kernel reads and writes differs there")
@pytest.mark.breaks(unknown_callable=4,
                    unsupported_op={"SGD": 1, "Adam": 6, "AdamW": 7, "RMSprop": 5, "Adagrad": 3})
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_a_parameter_that_an_optimizer_has_twice(optimizer):
    def after_steps(step_of):
        p = torch.nn.Parameter(torch.ones(2))
        made = getattr(torch.optim, optimizer)([p, p], lr=0.1, foreach=True)

        def doubled():
            made.step()
            return p * 2
        step = step_of(doubled)
        for _ in range(3):
            p.grad = torch.full((2,), 0.5)
            step()
        return p.detach()
    assert torch.equal(after_steps(framejit.compile), after_steps(lambda step: step))


@pytest.mark.cpu_only("in which order a kernel reads and writes differs there")
def test_parameters_that_share_a_gradient():
    def clipped(step):
        ones = torch.ones(2)
        parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
        for p in parameters:
            p.grad = ones
        step(parameters, 1.0, torch.tensor(4.0))
        return ones
    clip = torch.nn.utils.clip_grads_with_norm_
    assert torch.equal(clipped(framejit.compile(clip)), clipped(clip))
    assert framejit.stats()["break_reasons"] == {"unsupported_op": 1}
