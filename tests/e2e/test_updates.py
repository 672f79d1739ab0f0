"""Whole arguments that get new values: computed in their own memory if nothing can fail any more, otherwise copied
there."""
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, deep_copy, fresh, threads  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from memory import peak_of  # noqa: E402
from updates import STEPS, tensors_for  # noqa: E402

ROWS, COLUMNS = 300, 640


def square(scale=1.0):
    """Positive: sums are far from zero."""
    return torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)) * scale


def arguments():
    return square(), square(0.5), square(2.0) + 1


def scaled(p, g, v):
    p.mul_(0.9).add_(g, alpha=0.1)


def adam(p, g, v):
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(g, v.sqrt().add_(1e-8), value=-0.001)


def copied(p, g, v):
    p.copy_(g * 2)
    return p


def behind_a_call(p, g, v):
    p.add_(1)
    v.sub_(0.5)
    return torch.mm(g, g.t()).sum()


def of_a_call(p, g, v):
    product = torch.mm(g, g.t())
    p.add_(product.sum())
    v.mul_(product[0, 0])


def centred(p, g, v):
    p.sub_(p.mean(1, keepdim=True))
    v.copy_(torch.softmax(v, -1))


def with_a_result(p, g, v):
    p.add_(g)
    return torch.exp(p) + v, p.sum()


IN_PLACE = {f.__name__: f for f in (scaled, adam, copied, behind_a_call, of_a_call, centred)}


def read_by_a_call(p, g, v):
    p.add_(1)
    return torch.mm(p, g.t())


def swapped(p, g, v):
    old = p.clone()
    p.copy_(g)
    g.copy_(old)


def crossed(p, g, v):
    a, b = p + g, p - g
    p.copy_(a)
    g.copy_(b)


def one_shows_the_other(p, g, v):
    p.copy_(g)
    g.add_(1)


def returns_the_old(p, g, v):
    old = p * 1
    p.add_(g)
    return old, old + p


def reversed_rows(p, g, v):
    p.copy_(p.flip(0))
    g.add_(g.flip(1))


def next_rows(p, g, v):
    p[1:].add_(p[:-1].clone())
    g.copy_(torch.roll(g, 1, 0))


def whole_sum(p, g, v):
    p.div_(p.sum())
    v.sub_(v.mean(0))


def views_leave(p, g, v):
    p.add_(1)
    g.view(-1).mul_(2)
    return p.view(-1), g[3], p.t()


def written_twice(p, g, v):
    p.add_(1)
    total = p.sum()
    p.mul_(total)
    return total


def later_reader(p, g, v):
    p.add_(1)
    g.add_(p)
    v.add_(g).mul_(p)


def library_views(p, g, v):
    windows, rows = p.unfold(1, 1, 1), torch.unsafe_split(g, 1, 0)[0]
    sums = windows.sum(-1), rows.exp()
    p.mul_(2)
    g.add_(1)
    return sums


def two_get_one(p, g, v):
    new = v * 2
    p.copy_(new)
    g.copy_(new)
    return new


def other_dtype(p, g, v):
    p.copy_((g * 3).to(torch.bfloat16))
    v.add_(p.to(torch.float64).sum().to(torch.float32))


OTHERS = {f.__name__: f for f in (with_a_result, read_by_a_call, swapped, crossed, one_shows_the_other, returns_the_old,
                                  reversed_rows, next_rows, whole_sum, views_leave, written_twice, later_reader,
                                  library_views, two_get_one, other_dtype)}
LAYOUTS = {"transposed": lambda t: t.t(), "with gaps": lambda t: torch.cat((t, t))[::2],
           "a slice": lambda t: torch.cat((t, t))[5:45], "empty": lambda t: t[:0], "one element": lambda t: t[:1, :1]}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", IN_PLACE | OTHERS)
def test_equal(name, count):
    with threads(count):
        check((IN_PLACE | OTHERS)[name], *arguments(), breaks=0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", IN_PLACE | OTHERS)
def test_layouts(name, make, dynamic):
    check((IN_PLACE | OTHERS)[name], *(make(t[:40, :30].contiguous()) for t in arguments()), dynamic=dynamic)


def test_a_column_of_a_copy():
    """Together with passes over rows that read what was copied."""
    def replaced(p, g):
        q = p.clone()
        q[:, 3] = g[:, 5]
        return q, torch.softmax(p * 2 + g, -1)

    check(replaced, square()[:40, :30].clone(), square(2.0)[:40, :30].clone(), breaks=0)


@pytest.mark.parametrize("name", IN_PLACE)
def test_nothing_is_copied(name):
    compiled = framejit.compile(IN_PLACE[name])
    args = arguments()
    for _ in range(2):
        compiled(*args)
    before = framejit.stats()["hits"]
    peak, _ = peak_of(lambda: compiled(*args))
    assert framejit.stats()["hits"] > before
    assert peak < args[0].nbytes * (1 if "call" in name else 0.1)  # the product has half as many elements


@pytest.mark.parametrize("name", STEPS)
def test_optimizers(name):
    step, lists = STEPS[name]
    check(step, *tensors_for(20, (16, 24), lists), breaks=0)


@pytest.mark.cpu_only("it compares with tensors of the CPU")
def test_versions_and_other_views():
    compiled = framejit.compile(adam)
    args = arguments()
    seen = [t.view(-1) for t in args]
    for _ in range(3):
        versions, plain = [t._version for t in args], deep_copy(args)
        compiled(*args)
        adam(*plain)
        assert [t._version > before for t, before in zip(args, versions)] == [True, False, True]
        for t, view, expected in zip(args, seen, plain):
            torch.testing.assert_close(t, expected)
            assert torch.equal(view, t.view(-1))


@pytest.mark.breaks(overlapping_inputs=1)
def test_arguments_that_overlap():
    def each(p, g, v):
        p.add_(1)
        g.mul_(2)
        v.add_(p)

    compiled = framejit.compile(each)
    for _ in range(3):
        for take in (lambda t: (t, t.clone(), t.clone()), lambda t: (t[:ROWS], t[:ROWS], square()),
                     lambda t: (t[:ROWS], t[1:1 + ROWS], square()), lambda t: (t[:ROWS], t[ROWS:], square())):
            ours, plain = (torch.cat((square(), square(3.0))) for _ in range(2))
            compiled(*take(ours))
            each(*take(plain))
            assert torch.equal(ours, plain)


@pytest.mark.breaks(overlapping_inputs=1)
def test_many_arguments_of_which_two_overlap():
    """More than are compared pair by pair."""
    def add_all(written, read):
        for w, r in zip(written, read):
            w.add_(r)

    def make(at):
        torch.manual_seed(3)
        written, read = ([torch.randn(8) for _ in range(30)] for _ in range(2))
        if at == "a written and a read one":
            base = torch.randn(12)
            written[10], read[20] = base[:8], base[4:]
        elif at == "two written ones":
            base = torch.randn(12)
            written[3], written[4] = base[:8], base[4:]
        elif at == "two read ones":
            read[3] = read[9]
        elif at == "parts of one storage":
            base = torch.randn(16)
            written[3], read[9] = base[:8], base[8:]
        return written, read

    compiled = framejit.compile(add_all)
    for _ in range(3):
        for at in ("none", "a written and a read one", "two written ones", "two read ones", "parts of one storage"):
            ours, plain = make(at), make(at)
            compiled(*ours)
            add_all(*plain)
            for a, b in zip(ours[0] + ours[1], plain[0] + plain[1]):
                assert torch.equal(a, b), at
    assert framejit.stats()["hits"] > 0


def checked(p, g, at):
    p.add_(1)
    picked = g.index_select(0, at)
    g.mul_(2)
    return picked.sum()


def checked_first(p, g, at):
    picked = g[at].sum()
    p.mul_(picked)
    g.add_(p)
    return picked


def failing_call(p, g, at):
    p.add_(1)
    g.mul_(3)
    return F.embedding(at, g) + p[:at.shape[0]], torch.linalg.cholesky(p[:4, :4] - 100)


@pytest.mark.parametrize("at", [[0, 1], [3, ROWS]])
@pytest.mark.parametrize("f", [checked, checked_first, failing_call])
def test_what_fails_leaves_what_eager_leaves(f, at):
    compiled = framejit.compile(f)
    outcomes = []
    for call in (f, compiled, compiled, compiled):
        p, g = square(), square(0.5)
        try:
            outcomes.append((call(p, g, torch.tensor(at)), None, p, g))
        except (IndexError, RuntimeError) as error:
            outcomes.append((None, (type(error), str(error)), p, g))
    for outcome in outcomes[1:]:
        assert outcome[1] == outcomes[0][1]
        torch.testing.assert_close(outcome[0], outcomes[0][0])
        torch.testing.assert_close(outcome[2:], outcomes[0][2:])
    reason = "kernel_check" if at == [3, ROWS] else "run_failed"  # else, if anything fails, it is the call after it
    assert framejit.stats()["fallback_reasons"] == ({reason: 3} if outcomes[0][1] else {})


@pytest.mark.breaks(exception_raised=1)
def test_an_inference_tensor_is_refused_before_anything_is_written():
    compiled = framejit.compile(later_reader)
    for _ in range(3):
        results = []
        for call in (later_reader, compiled):
            p, g = square(), square(2.0)
            with torch.inference_mode():
                v = square(3.0)
            with pytest.raises(RuntimeError, match="[iI]nference tensor"):
                call(p, g, v)
            results.append((p, g))
        assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.parametrize("lazy", [0, 1])
def test_lazy_clones(lazy):
    compiled = framejit.compile(scaled)
    for _ in range(3):
        p, g, v = arguments()
        clone = torch._lazy_clone(p)
        written, kept = (clone, p) if lazy else (p, clone)
        compiled(written, g, v)
        assert torch.equal(kept, square())
        scaled(q := square(), g, v)
        torch.testing.assert_close(written, q)
