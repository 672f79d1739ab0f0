"""A few elements of a large argument are written in place: what others see of it, and when, is as in eager."""
import sys
from pathlib import Path

import pytest
import torch

import framejit
from check import check, deep_copy, fresh  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from memory import peak_of  # noqa: E402

ROWS = 512


def cache():
    return torch.arange(2 * ROWS * 16, dtype=torch.float32).reshape(1, 2, ROWS, 16).clone()


def row(scale=1.0, rows=1):
    return torch.ones(1, 2, rows, 16) * scale


def copied(c, at, k):
    c.index_copy_(2, at, k * 2)
    return c.sum((0, 1, 3)), c[:, :, :4]


def put(c, at, k):
    c[:, :, at] = k + 1
    return c.mean()


def put_at(c, at, k):
    c.index_put_((torch.zeros_like(at), torch.ones_like(at), at), k[0, 0])
    return c[0, 1, 3] * 2


def column(c, at, k):
    c[:, :, 7] = k[:, :, 0]
    return k * 3, c


def part(c, at, k):
    c[:, :, 3:3 + k.shape[2]] = k
    return c.sum((0, 2, 3))


def two(c, at, k):
    other = c[0, 0].clone()
    other.index_copy_(0, at, k[0, 0])
    c.index_copy_(2, at, k)
    return other.sum() + c[0, 0].sum()


def attended(c, at, k):
    c.index_copy_(2, at, k)
    return torch.nn.functional.scaled_dot_product_attention(k, c, c) + k


IN_PLACE = {f.__name__: f for f in (copied, put, put_at, column, part, attended)}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", IN_PLACE)
def test_equal(name, rows):
    check(IN_PLACE[name], cache(), torch.arange(rows) * 5 + 2, row(2.0, rows), breaks=0)


@pytest.mark.parametrize("name", IN_PLACE)
def test_nothing_is_copied(name, one_thread):  # attention takes memory for each thread
    f = framejit.compile(IN_PLACE[name])
    c, at, k = cache(), torch.tensor([5]), row()
    for _ in range(2):
        f(c, at, k)
    before = framejit.stats()["hits"]
    peak, _ = peak_of(lambda: f(c, at, k))
    assert framejit.stats()["hits"] > before
    assert peak < c.nbytes // 2


def reads_before(c, at, k):
    old = c * 1
    c.index_copy_(2, at, k)
    return old - c


def adds(c, at, k):
    c[:, :, 3] += k[:, :, 0]
    c.index_add_(2, at, k)
    return c.sum()


def returns_old(c, at, k):
    old = c[:, :, 5].clone()
    c[:, :, 5] = k[:, :, 0]
    return old, c[:, :, 5]


def swapped(c, at, k):
    first, second = c[:, :1], c[:, 1:]
    saved = first.clone()
    first.copy_(second)
    second.copy_(saved)
    return c.sum()


def written_twice(c, at, k):
    c.index_copy_(2, at, k)
    seen = c.sum()
    c.index_copy_(2, at + 1, k * 2)
    return seen, c.sum()


def part_of_a_part(c, at, k):
    c[:, :, 3:3 + k.shape[2]] = k
    c[:, :1, 9] = 5
    return c.view(2, -1).sum(1)


def through_a_view(c, at, k):
    v = c.view(2, ROWS, 16)
    v[:, 3] = k[0, :, 0]
    return v.transpose(0, 1)[3], c[0, 0, 3]


def transposed(c, at, k):
    t = c.transpose(1, 2)
    t.index_copy_(1, at, k.transpose(1, 2))
    return t.sum(1), c


OTHERS = {f.__name__: f for f in (two, reads_before, adds, returns_old, swapped, written_twice, part_of_a_part,
                                  through_a_view, transposed)}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", OTHERS)
def test_old_content_that_is_read(name, inference):
    with torch.inference_mode(inference):
        check(OTHERS[name], cache(), torch.tensor([2, 8]), row(2.0, 2), breaks=0)


@pytest.mark.parametrize("make",
                         [lambda c: c[:, :, 1:], lambda c: c.transpose(2, 3).contiguous().transpose(2,
                             3), lambda c: c.repeat(1, 2, 1, 1)[:, ::2], torch._lazy_clone],
                         ids=["a slice", "permuted", "with gaps", "a lazy clone"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_layouts(name, make):
    f, compiled = IN_PLACE[name], framejit.compile(IN_PLACE[name])
    whole = [cache(), cache()]
    for _ in range(3):
        expected = f(make(whole[0]), torch.tensor([4]), row(3.0))
        got = compiled(make(whole[1]), torch.tensor([4]), row(3.0))
        torch.testing.assert_close(got, expected)
        assert torch.equal(whole[0], whole[1])


def test_other_views_see_it_and_its_version():
    f = framejit.compile(copied)
    c = cache()
    seen = c.view(-1)
    for k in range(1, 4):
        version = c._version
        _, part = f(c, torch.tensor([1]), row(k))
        assert c._version == version + 1 and seen[16] == 2 * k == part[0, 0, 1, 0] and part._base is c


def twice_checked(c, d, at, other, k):
    c.index_copy_(2, at, k)
    x = torch.tanh(k) + 1
    d.index_copy_(2, other, x)
    return c.sum() + d.sum()


def looked_up(c, d, at, other, k):
    x = d[0, 0].index_select(0, other).sum() + k
    c.index_copy_(2, at, k)
    return x + c.sum()


def looked_up_behind(c, d, at, other, k):
    c.index_copy_(2, at, k)
    return d[0, 0].index_select(0, other).sum() + c.sum()


@pytest.mark.parametrize("at", [[0, 1], [3, ROWS]])
@pytest.mark.parametrize("other", [[4, 5], [1, ROWS + 2]])
@pytest.mark.parametrize("f", [twice_checked, looked_up, looked_up_behind])
def test_indices_out_of_range(f, at, other):
    """Everything that eager writes before it raises is written, and nothing else."""
    compiled = framejit.compile(f)
    fine = torch.tensor([0, 1])
    for _ in range(2):
        compiled(cache(), cache(), fine, fine, row(2.0, 2))
    results = []
    for call in (f, compiled):
        c, d = cache(), cache()
        try:
            results.append((call(c, d, torch.tensor(at), torch.tensor(other), row(2.0, 2)), None, c, d))
        except (IndexError, RuntimeError) as error:
            results.append((None, (type(error), str(error)), c, d))
    (expected, error, *written), (got, our_error, *ours) = results
    assert our_error == error and framejit.stats()["fallback_reasons"] == ({"kernel_check": 1} if error else {})
    torch.testing.assert_close(got, expected)
    assert all(torch.equal(a, b) for a, b in zip(ours, written))


@pytest.mark.breaks(exception_raised=1)
def test_an_inference_tensor_outside_of_inference_mode():
    compiled = framejit.compile(copied)
    with torch.inference_mode():
        caches = [cache() for _ in range(2)]
    for k in (1, 2, 3):
        for call, c in zip((copied, compiled), caches):
            with pytest.raises(RuntimeError, match="[iI]nference tensor"):
                call(c, torch.tensor([1]), row(k))
        assert torch.equal(*caches)


@pytest.mark.cpu_only("it sets one element to several values")
def test_threads_of_positions():
    """If a position occurs twice, the last one wins, as in eager."""
    check(copied, cache(), torch.tensor([4, 9, 4, 4]), torch.cat([row(k) for k in (1, 2, 3, 4)], 2), breaks=0)
    copies = [cache() for _ in range(2)]
    compiled = framejit.compile(copied, dynamic=True)
    for length in (1, 2, 7):
        at, k = torch.arange(length) * 3, torch.randn(1, 2, length, 16)
        torch.testing.assert_close(compiled(copies[0], at, k), copied(copies[1], at, k))
        assert torch.equal(*copies)


OVERLAPPED = {
    "all of it": lambda x: x.add_(1),
    "copied": lambda x: x.copy_(torch.arange(x.numel()).view(x.shape)),
    "one row": lambda x: (x[0].fill_(5), x.sum()),
}


@pytest.mark.breaks(no_functional_form=1)
@pytest.mark.parametrize("write", OVERLAPPED.values(), ids=OVERLAPPED)
def test_an_input_whose_rows_share_memory(write):
    """The order of the writes decides. Sizes that vary may make rows share memory that did not."""
    compiled = framejit.compile(write)
    for rows, columns in ((3, 3), (2, 4), (4, 2), (3, 6), (2, 5)):
        x, y = (torch.arange(40.).as_strided((rows, columns), (4, 1)) for _ in range(2))
        want, got = write(x), compiled(y)
        assert torch.equal(x, y)
        torch.testing.assert_close(got, want)
    assert framejit.stats()["graphs"] == 3


@pytest.mark.cpu_only("an index that is out of range ends the process")
@pytest.mark.parametrize("positions", [[0], [-1, -1], [2, 0, 1]])
def test_indices_that_the_call_has_written(positions):
    """Indices that are checked before the first write must not come from another write of the call."""
    def f(a, first, n):
        n[:1] = first
        a[n] = -3
        return a
    check(f, torch.arange(15).view(5, 3), torch.tensor([True]), torch.tensor(positions), breaks=0)
    check(f, torch.arange(15).view(5, 3), torch.tensor([7]), torch.tensor(positions))


WRITES = {
    "an element": lambda w: w[0, 0, 0].fill_(1.5),
    "a row": lambda w: w[:, :, 3].copy_(torch.ones(16)),
    "at indices": lambda w: w.index_copy_(2, torch.tensor([1, 2]), torch.ones(1, 2, 2, 16)),
    "every element": lambda w: w.mul_(2),
}


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_a_copy_that_is_returned_has_memory_of_its_own(name, history):
    def f(w):
        WRITES[name](w)
        return w.clone()

    compiled = framejit.compile(f)
    with torch.set_grad_enabled(history):
        for _ in range(2):
            w, plain = (cache().requires_grad_(history) * 1 for _ in range(2))
            made, expected = compiled(w), f(plain)
            w.detach().zero_()
            assert torch.equal(made, expected) and made.requires_grad == history
