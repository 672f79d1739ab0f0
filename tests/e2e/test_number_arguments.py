"""Ints and floats that differ from call to call, everywhere that torch takes them, as keys and as indices."""
import enum

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import backend, fresh, same  # noqa: F401
from test_sizes import runs

LENGTHS = (2, 3, 4, 6, 8)
FLOATS = (0.5, 1.5, 2.0, 3.25, -1.0, 7.5)


@pytest.mark.parametrize("fn", [
    lambda x, n: x[n] * 2,
    lambda x, n: x[-n] * 2,
    lambda x, n: x[n, 1:] * 2,
    lambda x, n: x[..., n, None] + 1,
    lambda x, n: x[2:, n] + x[None, n, 1],
    lambda x, n: x[:n].sum(0),
    lambda x, n: x.select(1, n) + 1,
    lambda x, n: torch.zeros(48).view((n, -1)),
    lambda x, n: torch.zeros((n, 3)) + 1,
    lambda x, n: torch.full((n, 3), 2.0) + x[0, 0],
    lambda x, n: torch.arange(n) + 1,
    lambda x, n: x * n + n,
], ids=range(12))
def test_an_int_argument_compiles_twice(fn, backend):
    x = torch.randn(9, 9)
    assert runs(fn, [(x, n) for n in LENGTHS], backend) == 2


def put(where):
    def f(x, n):
        y = x * 2
        y[where(n)] = 1.5
        y[where(n)] += x[where(n)]
        x[where(n)] = y[where(n)]
        return y + x
    return f


@pytest.mark.parametrize("where", [
    lambda n: (..., n), lambda n: (slice(None), n), lambda n: (n, 1), lambda n: (n, slice(1, None), None),
    lambda n: (None, -n, ...), lambda n: (n, n), lambda n: (slice(1, n), n), lambda n: n,
], ids=range(8))
def test_an_int_where_is_written_compiles_twice(where, backend):
    x = torch.randn(9, 9)
    assert runs(put(where), [(x.clone(), n) for n in LENGTHS], backend) == 2


@pytest.mark.breaks(exception_raised=1)
def test_a_write_out_of_range_is_eagers_error(backend):
    compiled, x = framejit.compile(put(lambda n: (slice(None), n)), backend=backend), torch.randn(4, 3)
    for i in (2, 1, 0, -3):
        same(compiled(x.clone(), i), put(lambda n: (slice(None), n))(x.clone(), i))
    for i in (3, -4):
        with pytest.raises(IndexError, match=f"index {i} is out of bounds"):
            compiled(x.clone(), i)


@pytest.mark.breaks(exception_raised=1)
def test_an_index_out_of_range_is_eagers_error(backend):
    def f(x, i):
        return x[i] * 2
    compiled = framejit.compile(f, backend=backend)
    x = torch.randn(4, 3)
    for i in (2, 3, 1, -4):
        same(compiled(x, i), f(x, i))
    for i in (4, -5):
        with pytest.raises(IndexError, match=f"index {i} is out of bounds"):
            compiled(x, i)


@pytest.mark.parametrize("fn", [
    lambda x, k: torch.mul(x, k),
    lambda x, k: torch.add(x, k) - k,
    lambda x, k: x.mul(k).sub(k).div(k),
    lambda x, k: k / x,
    lambda x, k: k - x * k,
    lambda x, k: (x > k) | (x == k),
    lambda x, k: k < x,
    lambda x, k: torch.where(x > 0, x, k),
    lambda x, k: x.masked_fill(x > 0, k),
    lambda x, k: x.clone().mul_(k).add_(k),
], ids=range(10))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_float_argument_compiles_twice(fn, dtype, backend):
    x = torch.randn(4, 3).to(dtype)
    assert runs(fn, [(x, k) for k in FLOATS], backend) == 2
    runs(fn, [(x.long(), k) for k in FLOATS if fn(x.float(), k).dtype == torch.bool], backend)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("scales", [lambda n: n, lambda n: (n, 2), lambda n: [1.5, n + 1]], ids=["one", "both", "list"])
def test_an_int_in_a_list_of_floats_compiles_for_each(scales, mode, dynamic):
    """torch takes no symbol there."""
    def fn(x, n):
        return F.interpolate(x, scale_factor=scales(n), mode=mode) + n
    x = torch.rand(1, 2, 3, 5)
    assert runs(fn, [(x, n) for n in (2, 3, 4, 2)], "framejit", dynamic=dynamic) == 3
    assert framejit.stats()["graph_breaks"] == 0


TABLE = {2: "a", 3: "b", 6: "c"}


class Colour(enum.Enum):
    red, green, blue = 2, 3, 4


@pytest.mark.breaks(exception_raised={"0": 1, "6": 1})
@pytest.mark.parametrize("fn", [
    lambda x, n: (x + 1, TABLE[n]),
    lambda x, n: (x + 1, TABLE.get(n, "none")),
    lambda x, n: (x + 1, n in TABLE),
    lambda x, n: (x + 1, {2: "a", 3: "b"}.get(n)),
    lambda x, n: (x + 1, {n: 1, 3: 2}),
    lambda x, n: (x + 1, {n} | {3}),
    lambda x, n: (x + 1, Colour(n)),
    lambda x, n: (x + 1, TABLE.get(x.shape[0] + n)),
], ids=range(8))
def test_an_int_that_varies_is_looked_up_by_its_value(fn, backend):
    compiled = framejit.compile(fn, backend=backend)
    x = torch.ones(2)
    for n in (2, 3, 2, 4, 9, 3):
        try:
            expected = fn(x, n)
        except (KeyError, ValueError) as error:
            with pytest.raises(type(error)) as ours:
                compiled(x, n)
            assert str(ours.value) == str(error)
        else:
            same(compiled(x, n), expected)


def test_a_memo_table_by_an_int(backend):
    def f(x, n, known):
        if n not in known:
            known[n] = x * n
        return known[n]
    compiled = framejit.compile(f, backend=backend)
    x, plain, ours = torch.ones(2), {}, {}
    for n in (2, 3, 2, 5, 3, 7):
        same(compiled(x, n, ours), f(x, n, plain))
    assert list(plain) == list(ours)


# If a pass assumes something about a size that is 1 now, that must be guarded: later sizes differ.
@pytest.mark.parametrize("part", [
    lambda x: x[1:],
    lambda x: x[:-1],
    lambda x: x[::2],
    lambda x: x[:x.shape[0] // 2],
    lambda x: x.narrow(0, 1, x.shape[0] - 1),
    lambda x: x.diff(dim=0),
    lambda x: x.tensor_split(2)[0],
], ids=["tail", "head", "step", "half", "narrow", "diff", "split"])
@pytest.mark.parametrize("then", [
    lambda v: v.clone().add_(1),
    lambda v: v.mul_(2),
    lambda v: v.__setitem__(slice(0, 1), 9.0) or v,
    lambda v: v.softmax(0),
    lambda v: F.layer_norm(v, (3,)),
    lambda v: v.sub_(v.mean(0, keepdim=True)),
    lambda v: v + v[:1],
], ids=["add_", "mul_", "setitem", "softmax", "layer_norm", "sub_mean", "broadcast"])
def test_parts_of_one_row_and_of_more(part, then, backend):
    def f(x):
        y = x * 1
        return then(part(y)), y
    for lengths in ((3, 2, 5), (4, 2, 3)):
        for dynamic in (None, True):
            framejit.reset()
            compiled = framejit.compile(f, backend=backend, dynamic=dynamic)
            for n in lengths:
                x = torch.arange(3.0 * n).view(n, 3)
                for ours, plain in zip(compiled(x), f(x), strict=True):
                    assert ours.shape == plain.shape
                    torch.testing.assert_close(ours, plain)
            assert framejit.stats()["fallbacks"] == 0
