"""Every pointwise op that becomes a kernel, in every dtype, at zeros of both signs, infinities, NaN, and the ends of
the ranges: as eager.

The ops are the rows of inductor/lowering/pointwise.def and the few that pointwise.cpp adds. NaN, infinities and the
sign of zero are eager's; other values are within a few ulp of eager's, except those in the tables below.
"""
import itertools
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import framejit

ROWS = re.findall(r'(?m)^POINTWISE\("([^"]+)"',
                  (Path(__file__).resolve().parents[2] / "inductor" / "lowering" / "pointwise.def").read_text())
OTHERS = ["sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar", "gelu", "gelu_backward", "div.Tensor_mode",
          "div.Scalar_mode", "clamp", "clamp.Tensor", "pow.Tensor_Scalar", "where.self"]
# At least how many ops have a kernel for the dtype.
LEAST = {torch.float32: 120, torch.float16: 120, torch.bfloat16: 120, torch.float64: 120, torch.int64: 60,
         torch.int32: 60, torch.int16: 60, torch.int8: 60, torch.uint8: 60, torch.bool: 40}
VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, 2.5, -2.5, 3.0, -3.0, float("inf"), float("-inf"),
          float("nan"), 1e-30, -1e-30, 65504.0, -65504.0, 1e30, -1e30, 88.0, -88.0, 20.0, -20.0, 0.75, -0.75, 7.0]
# denormal and greatest float32: for ops of one tensor, if no step in between overflows
ENDS = [1e-40, -1e-40, 3e38, -3e38]
FILLED = 64  # this many equal elements in a row fill vectors of every kernel, including eager's
NUMBERS = [0.0, -0.0, 0.5, -2.0, 3, float("inf"), float("nan")]
EXPONENTS = [0.5, -0.5, 0, 0.0, 1, 2, 3, -1, -2, 1.5, 2.0, -3.0, 4.0]
MODES = {"gelu": [{"approximate": "none"}, {"approximate": "tanh"}], "gelu_backward": [{"approximate": "none"}],
         "div.Tensor_mode": [{"rounding_mode": m} for m in ("floor", "trunc")],
         "div.Scalar_mode": [{"rounding_mode": m} for m in ("floor", "trunc")]}
ALIASES = {"positive"}  # of their argument: no kernel to test
# Eager itself is inconsistent here: the sign of a sum or product that is zero, of the larger of 0.0 and -0.0 (by the
# length of the vector), of a NaN.
SIGN_OF_ZERO_IS_FREE = {"lerp.Tensor", "lerp.Scalar", "softshrink", "fmax", "fmin", "clamp.Tensor", "clamp"}
# The relative error of eager: oneDNN's erf, a sum that cancels.
LOOSE = {"gelu": 1e-3, "gelu_backward": 1e-3}
# (op, dtype or None): values that are not compared. A sum that cancels to zero; Sleef's remainder of numbers 60 orders
# of magnitude apart; eager rounds each step of the float16 formula; tiny bfloat16 values are flushed; a bfloat16 NaN
# has lost its sign.
NOT_COMPARED = {("logaddexp2", None): lambda a: (a[0] == -1) & (a[1] == -1),
                ("remainder.Tensor", None): lambda a: a[1].abs() < 1e-20,
                ("fmod.Tensor", None): lambda a: a[1].abs() < 1e-20,
                ("sigmoid_backward", torch.float16): lambda a: a[0].abs() > 1000,
                ("signbit", torch.bfloat16): lambda a: a[0].isnan(),
                ("erf", torch.bfloat16): lambda a: a[0].abs() < 1e-20,
                ("special_erf", torch.bfloat16): lambda a: a[0].abs() < 1e-20}


def overload(name):
    base, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, base, None), kind or "default", None)


def integers(dtype):
    """Small numbers, counts of bits and their neighbours, and the ends of the range."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    info = torch.iinfo(dtype)
    some = {0, 1, -1, 2, -2, 3, -3, 7, -7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, info.max, info.max - 1, info.min,
            info.min + 1}
    return torch.tensor(sorted(n for n in some if info.min <= n <= info.max), dtype=dtype)


def calls_of(name, op, dtype, filled=False):
    """(arguments, keywords) that fill every argument without a default with special values; filled: each FILLED times
    in a row."""
    values = torch.tensor(VALUES, dtype=torch.float64).to(dtype) if dtype.is_floating_point else integers(dtype)
    first, second = values.repeat_interleave(len(values)), values.repeat(len(values))
    kinds = [str(a.type) for a in op._schema.arguments if not a.has_default_value()
             and a.name not in MODES.get(name, [{}])[0]]
    tensors = [values] if kinds.count("Tensor") == 1 else [first, second, first.flip(0)]
    numbers = EXPONENTS if name.startswith("pow.Tensor") else NUMBERS
    if name == "hardtanh_backward":  # eager's vectors and the elements after them disagree about bounds that are NaN
        numbers = numbers[:-1]
    # the least number divided by -1 kills eager
    if dtype in (torch.int32, torch.int64) and re.match("div|floor_div|remainder|fmod", name):
        first, second = first.clamp(min=-100), second.clamp(min=-100)
        tensors = [values.clamp(min=-100)] if len(tensors) == 1 else [first, second, first.flip(0)]
    if not dtype.is_floating_point:
        numbers = [0, 1, -1, 3, -7, 8, 31, 64, 0.5, True]
    if name.startswith("where"):
        tensors = [(first > second), first, second]
    if name.startswith("clamp") and kinds == ["Tensor"]:
        tensors = [first]
        kinds += ["number", "number"] if name == "clamp" else ["Tensor", "Tensor"]
        tensors = [first, second, first.flip(0)]
    if filled:
        tensors = [torch.cat([values, torch.tensor(ENDS, dtype=torch.float64).to(dtype)])] if len(
            tensors) == 1 else tensors
        tensors = [t.repeat_interleave(FILLED) for t in tensors]
    choices = [numbers if k == "number" else [False] if k == "bool" else [None] for k in kinds]
    for chosen in itertools.islice(itertools.product(*choices), 2 if filled else 20):
        given = iter(tensors)
        for mode in MODES.get(name, [{}]):
            yield [next(given) if k.startswith("Tensor") or k == "Optional[Tensor]" else c for k,
                   c in zip(kinds, chosen)], mode
            given = iter(tensors)


def wrong(name, got, want):
    """Positions where two results differ, as a mask."""
    if not want.dtype.is_floating_point:
        return got != want
    a, b = got.double(), want.double()
    info = torch.finfo(want.dtype)
    near = torch.isfinite(a) & torch.isfinite(b) & ((a - b).abs() <= (16 * info.eps + LOOSE.get(name, 0)) * b.abs()
                                                    + 4 * info.smallest_normal)
    same = (a == b) | (a.isnan() & b.isnan()) | near
    signs = (a.signbit() == b.signbit()) | (a != 0) | (b != 0)
    return ~same if name in SIGN_OF_ZERO_IS_FREE else ~(same & signs)


def compare(name, op, arguments, mode):
    """None, or the difference; "skip" if eager has no such op."""
    def call(*tensors):
        return op(*tensors, **mode)
    with torch.no_grad():
        try:
            want = call(*arguments)
        except (RuntimeError, NotImplementedError):
            return "skip"
        framejit.reset()
        got = framejit.compile(call)(*arguments)
    totals = framejit.stats()
    if totals["graph_breaks"] or totals["fallbacks"] or not totals["graphs"] == 1:
        return f"not captured: {totals['break_reasons']}"
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype} {tuple(got.shape)} instead of {want.dtype} {tuple(want.shape)}"
    bad = wrong(name, got, want)
    for key in ((name, None), (name, want.dtype), (name, getattr(arguments[0], "dtype", None))):
        if key in NOT_COMPARED:
            bad &= ~NOT_COMPARED[key](arguments)
    if not bad.any():
        return None if totals["kernels"] else "extern"
    at = int(bad.flatten().nonzero()[0])
    return (f"{int(bad.sum())} values, first at "
        f"{[a.flatten()[at].item() if isinstance(a, torch.Tensor) else a for a in arguments]}: {got.flatten()[at]} "
        f"instead of {want.flatten()[at]}")


@pytest.mark.parametrize("dtype, least", LEAST.items(), ids=lambda d: str(d).removeprefix("torch."))
def test_special_values(dtype, least):
    failures, compared = [], set()
    for name in [*ROWS, *OTHERS]:
        op = overload(name)
        if op is None or name in ALIASES:
            continue
        calls = itertools.chain(calls_of(name, op, dtype), calls_of(name, op, dtype, filled=True)
                                if dtype.is_floating_point else [])
        for arguments, mode in calls:
            answer = compare(name, op, arguments, mode)
            if answer is None:
                compared.add(name)
            elif answer != "skip" and answer != "extern":
                failures.append(f"{name} {[a for a in arguments if not isinstance(a, torch.Tensor)]} {mode}: {answer}")
    assert not failures, "\n".join(failures)
    assert len(compared) >= least, sorted(set([*ROWS, *OTHERS]) - compared)


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log1p", "tanh", "erf", "sigmoid", "sin"])
def test_a_value_has_the_same_bits_wherever_it_is_computed(name):
    """In a flat kernel, for one row after its reduction (one lane), for columns side by side, and for a few
    elements."""
    function = getattr(torch, name)
    values = torch.cat([torch.randn(61) * 4, torch.tensor([0.13, 1e-3, 9.5])])
    flat = framejit.compile(lambda x: function(x))
    rows, columns = framejit.compile(lambda x: function(x.amax(1))), framejit.compile(lambda x: function(x.amax(0)))
    expected = flat(values)
    across = values[:, None].expand(64, 40).contiguous()
    kernels = framejit.stats()["kernels"]
    for got in [rows(across), columns(across.t().contiguous()),
                torch.cat([flat(values[k:k + 3]) for k in range(0, 63, 3)] + [flat(values[63])[None]])]:
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    assert framejit.stats()["kernels"] >= kernels + 3


LEAST_INT = -2**63  # eager's sub() adds, and negating this number as an int64 does not change it
ROW = torch.tensor([[0.5, 1.0, -0.25, 2.0, 3.0], [1.0] * 5])
ARGUMENTS = {
    "norm": lambda x, n: (x.norm(p=n), x.norm(p=n, dim=1), F.normalize(x, p=n), torch.linalg.vector_norm(x, n, 0)),
    "layer norm": lambda x, n: (F.layer_norm(x, (5,), eps=n), F.layer_norm(x, (5,), -x[0], eps=n),
                                F.layer_norm(x, (5,), x[0], -x[0], eps=n)),
    "difference": lambda x, n: (x.sub(x, alpha=n), torch.rsub(x, x, alpha=n), x.sub(2.0, alpha=n),
                                torch.rsub(x, 2.0, alpha=n), x.long().sub(x.long(), alpha=n)),
}
OUTSIDE = {"norm": (1e39, -1e39, 1e308, 3.5e38, 1e-50, -1e-50), "layer norm": (math.inf, 1e39),
           "difference": (LEAST_INT, LEAST_INT + 1, 2**63 - 1)}


@pytest.mark.parametrize("name, dtype", [(name, dtype) for name in OUTSIDE for dtype in LEAST if dtype.is_floating_point
                                         and (name, dtype) != ("difference", torch.float16)], ids=str)
def test_numbers_outside_of_the_range_of_a_kernel(name, dtype):
    for n in OUTSIDE[name]:
        framejit.reset()
        x = ROW.to(dtype)
        want, got = ARGUMENTS[name](x, n), framejit.compile(ARGUMENTS[name])(x, n)
        assert framejit.stats()["graphs"] == 1 and not framejit.stats()["graph_breaks"]
        for k, (ours, eager) in enumerate(zip(got, want)):
            assert not wrong(name, ours, eager).any(), (n, k, ours, eager)


@pytest.mark.parametrize("bias", [None, 0.0, -0.0, 2.0])
@pytest.mark.parametrize("weight", [None, 1.0, -1.0, 0.0])
def test_zeros_of_a_batch_norm(weight, bias):
    """Without a bias, eager subtracts the mean from 0.0, so that no result is -0.0."""
    def f(x, mean, given):
        return F.batch_norm(x, mean, torch.ones(2), *given)
    given = [None if n is None else torch.full((2,), n) for n in (weight, bias)]
    compiled = framejit.compile(f)
    for value, mean in itertools.product([0.0, -0.0, 1.0], [0.0, -0.0, 1.0]):
        args = torch.full((3, 2, 8), value), torch.full((2,), mean), given
        got, want = compiled(*args), f(*args)
        assert torch.equal(got.signbit(), want.signbit()) and torch.equal(got.isnan(), want.isnan()), (value, mean)
    assert framejit.stats()["graphs"] and not framejit.stats()["graph_breaks"]


SPREADS = {  # of what fraction of the largest number; the second is the spread
    "large": (0.9, 0.01), "equal": (0.9, 0.0), "scattered": (0.0, 1e-3), "small": (1e-3, 1e-4), "ordinary": (None, 1.0)}
DEVIATIONS = {
    "all": lambda x: (x.std(), x.var()), "rows": lambda x: (x.std(1), x.var(1, correction=0)),
    "columns": lambda x: (x.std(0), x.var(0)), "one row": lambda x: (x[:1].std(1), x[:1].var(1, keepdim=True)),
    "with means": lambda x: (*torch.std_mean(x, 1), *torch.var_mean(x)),
}


@pytest.mark.cpu_only("the kernels of a GPU compute in float32")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviations_overflow_where_those_of_eager_do(name, dtype):
    fn, compiled = DEVIATIONS[name], framejit.compile(DEVIATIONS[name])
    for kind, (centre, spread) in SPREADS.items():
        torch.manual_seed(0)
        most = 1.0 if centre is None else torch.finfo(dtype).max
        x = (((centre or 0.0) + torch.randn(4, 24, dtype=torch.float64).clamp(-3, 3) * spread) * most).to(dtype)
        for infinite in (False, True):
            if infinite:
                x[1, 3] = math.inf
            for ours, eager in zip(compiled(x), fn(x)):
                assert torch.equal(torch.isinf(ours), torch.isinf(eager)), (kind, infinite, ours, eager)
                assert torch.equal(ours.isnan(), eager.isnan()), (kind, infinite, ours, eager)
                held = torch.isfinite(eager)
                torch.testing.assert_close(ours[held], eager[held])
    assert framejit.stats()["graphs"] == 1 and not framejit.stats()["graph_breaks"]


@pytest.mark.parametrize("alpha", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_celu_of_an_alpha_that_is_not_finite(alpha, dtype):
    """Zeros stay, because eager multiplies only negative numbers by it."""
    def f(x):
        return F.celu(x, alpha)
    x = torch.tensor([0.0, -0.0, -1.0, 2.0, math.inf, -math.inf, math.nan] * FILLED, dtype=dtype)
    got, want = framejit.compile(f)(x), f(x)
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.nan_to_num(), want.nan_to_num())
    assert torch.equal(got[:2].signbit(), want[:2].signbit())
