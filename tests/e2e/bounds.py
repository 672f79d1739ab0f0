"""The contract's bound on floats: how far what compiled code returns may be from what eager returns.

The reference is the program in float64 (wide.py). These functions need no pytest, so that the GPU tests run as
programs too.
"""
import functools
import math

import torch

from devices import DEVICE
from wide import in_float64

RUNS = 16  # at most this many disturbed runs show what roundings do to an element
TRUSTED = 16  # a reference holds if eager is at most this many times as far from it as disturbed runs are
TIMES = 8 if DEVICE == "cpu" else 16  # an element may be this many times as far off; a GPU adds in its own order


def ulp(dtype):
    return torch.finfo(dtype).eps


def norms(t):
    """The two norms of the contract's bound."""
    return (float(t.abs().max()), float(t.norm())) if t.numel() else (0.0, 0.0)


def least(dtype):
    """Two steps of the smallest numbers."""
    return 2 * torch.finfo(dtype).smallest_normal * ulp(dtype)


def reference_of(ref64, finite, otherwise, *noise):
    """The elements of the reference where eager's are finite, or None. Elements of it that are not finite are replaced
    by `otherwise`."""
    made = ref64(*noise) if callable(ref64) else ref64
    if not isinstance(made, torch.Tensor) or made.shape != finite.shape:
        return None
    made = made.detach()[finite].double()
    return torch.where(made.isfinite(), made, otherwise)


def disturbed_runs(ref64, finite, exact):
    """How far each element of a disturbed run is from the exact one, run by run."""
    for n in range(RUNS if callable(ref64) else 0):
        disturbed = reference_of(ref64, finite, exact + math.inf, n)
        if disturbed is None:
            return
        yield (disturbed - exact).abs()


def is_trusted(eager, exact, dtype, runs):
    """Whether roundings explain how far eager is from the reference: those of disturbed runs, and an ulp of the largest
    element, since terms cancel inside of ops. If not, the reference is wrong: the program has written memory in a way
    that wide.py does not see, for example."""
    off, reach, asked = (eager - exact).abs(), ulp(dtype) * exact.abs().max(), False
    while bool((off > TRUSTED * reach).any()) and (moved := next(runs, None)) is not None:
        reach, asked = moved.maximum(reach), True
    return not asked or not bool((off > TRUSTED * reach).any())


def assert_norms(got, eager, exact, slack, runs, where):
    """Asserts the bound in both norms. runs: disturbed runs; a norm may be TIMES as large as theirs."""
    for k, (o, n, m) in enumerate(zip(norms(got - exact), norms(eager - exact), norms(exact))):
        allowed = bound = 2 * n + slack * m + 1e-30
        for moved in runs():
            if o <= allowed:
                break
            allowed = max(allowed, bound + TIMES * norms(moved)[k])
        assert o <= allowed, f"{where}: off by {o:.3g}, allowed {allowed:.3g}"


def assert_elements(off, allowed, runs, where):
    """Asserts that each element is off by at most what is allowed, or TIMES as far as in a disturbed run."""
    far, reach = off > allowed, 0
    while bool(far.any()) and (moved := next(runs, None)) is not None:
        reach = moved.maximum(reach) if isinstance(reach, torch.Tensor) else moved
        far = off > allowed + TIMES * reach
    if bool(far.any()):
        allowed = allowed + TIMES * reach
        k = int(torch.where(far, off, 0).argmax())
        raise AssertionError(f"{where}: {int(far.sum())} of {far.numel()} elements differ, the worst is off by "
                             f"{float(off[k]):.3g}, allowed {float(allowed[k]):.3g}")


def assert_zeros(got, eager, reference, where):
    """Asserts that zeros have eager's sign where the exact result is the same zero."""
    other = got.signbit() != eager.signbit()
    if bool(other.any()) and bool((other := other & (got == 0) & (eager == 0)).any()):
        if (r := reference()) is not None:
            other &= (r == 0) & (r.signbit() == eager.signbit())
        assert not bool(other.any()), f"{where}: the signs of {int(other.sum())} zeros differ"


def has_bits_of(got, eager):
    """Whether two tensors of floats are equal bit by bit."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[eager.element_size()]
    return not (got.is_neg() or eager.is_neg()) and torch.equal(got.view(integers), eager.view(integers))


def assert_close(got, eager, ref64, where, luck=None):
    """The contract's bound: |out - ref64| <= 2 |eager - ref64| + 2 ulp |ref64|, in max norm, in L2, and for each
    element; and the signs of zeros.

    Results within 2 ulp |eager| of eager's keep it whatever the reference is. `ref64` is a tensor, None, or a function
    that makes either; called with a number, it makes what a disturbed run makes (wide.py).
    Without a reference, float32 may be off by 8 ulp |eager| (sums of a few dozen); float64 has no wider reference: 32
    ulp. The same holds, unless luck is allowed, if eager is farther from the reference than roundings explain (TRUSTED
    times as far as disturbed runs): many ops in a row may cancel in ways that those do not show.
    Eager may get an element right by luck, for example where terms cancel. So an element may also be TIMES as far off
    as in the farthest of RUNS disturbed runs. A zero has eager's sign where eager's is exact.
    With luck="norms", so may a norm, since eager may get all of a few elements right after many ops. With "terms", for
    single ops that are listed, an element may also be off by an ulp of the largest one, since terms cancel inside.
    """
    if not eager.dtype.is_floating_point:
        assert torch.equal(got, eager), f"{where}: values differ"
        return
    if has_bits_of(got, eager):
        return
    finite = torch.isfinite(eager)
    if bool(finite.all()) and bool(torch.isfinite(got).all()):
        g, e = got.flatten().double(), eager.flatten().double()
    else:
        same_special = (torch.isnan(got) == torch.isnan(eager)) & (torch.isposinf(got) == torch.isposinf(eager)) & (
            torch.isneginf(got) == torch.isneginf(eager))
        assert bool(same_special.all()), f"{where}: positions of NaN or infinities differ"
        g, e = got[finite].double(), eager[finite].double()
    assert luck in (None, "norms", "terms"), luck
    slack = ulp(eager.dtype) * (32 if eager.dtype == torch.float64 else 2)
    reference = functools.cache(lambda: reference_of(ref64, finite, e))
    assert_zeros(g, e, reference, where)
    if not bool(((g - e).abs() > slack * e.abs() + least(eager.dtype)).any()):
        return
    r = reference()
    runs = functools.partial(disturbed_runs, ref64, finite, r)
    if r is None or luck is None and not is_trusted(e, r, eager.dtype, runs()):
        r, slack, runs = e, slack * (4 if eager.dtype == torch.float32 else 1), lambda: iter(())
    assert_norms(g, e, r, slack, runs if luck else tuple, where)
    allowed = 2 * (e - r).abs() + slack * r.abs() + least(eager.dtype)
    allowed = allowed + (ulp(eager.dtype) * r.abs().max() if luck == "terms" else 0)
    assert_elements((g - r).abs(), allowed, runs(), where)


def exactly_as(run):
    """The reference for a run() that does the same each time: what it returns in float64, and in disturbed runs."""
    return functools.cache(lambda noise=None: in_float64(run, noise=noise)[0])


def part(ref64, pick):
    """A part of a reference, which is a structure, None, or a function that makes one of them."""
    def picked(*noise):
        whole = ref64(*noise) if callable(ref64) else ref64
        return None if whole is None else pick(whole)
    return None if ref64 is None else picked
