"""Layouts of the recorded program that the graph no longer has, after writes are removed and ops are decomposed: their
views, results, aliases."""
import itertools

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import backend, check, exactly_as, fresh, same, same_as, threads  # noqa: F401


def scaled_part(x, w):
    q, k, v = x.chunk(3, -1)
    q.mul_(0.5)
    return F.linear(q, w), F.linear(v, w)


def part_of_a_new_tensor(x, w):
    q = torch.cat([x, x], 1)[..., 8:16]
    q.add_(1)
    return torch.einsum("bsi,ji->bsj", q, w), q


def cache(x, w):
    k = x[:, :3]
    k.mul_(2)
    return torch.matmul(k, x.mT), x


def steps(x, w):
    y = x[..., ::2]
    y.masked_fill_(y > 0, 0.25)
    return y.flatten(1) + 1, y.reshape(2, -1, 4).sort(-1)[0]


def cumulated(x, w):
    y = x[..., 4:12]
    y.cumsum_(0)
    return torch.tensordot(y, w, ([-1], [-1]))


@pytest.mark.parametrize("fn", [scaled_part, part_of_a_new_tensor, cache, steps, cumulated])
def test_writes_to_what_has_gaps(fn, backend):
    x = torch.randn(2, 5, 24)
    for x in x, torch.randn(2, 5, 48)[..., 3:27], torch.randn(5, 2, 24).transpose(0, 1):
        check(fn, x, torch.randn(3, 8), backends=[backend])


def test_stacked_channels_last(backend):
    """Also the strides of dimensions of size one, along which eager's result is channels_last again."""
    for size in (1, 1, 2, 3), (2, 1, 2, 3), (1, 3, 2, 3), (2, 1, 1, 1):
        x = torch.randn(size).to(memory_format=torch.channels_last)
        for dim in range(-5, 0):
            check(lambda x: torch.stack([x, x], dim), x, backends=[backend])  # noqa: B023


def test_powers_of_a_number(backend):
    def aliased(x):
        t = 2**x
        r = t.reshape(-1)
        t.zero_()
        return r, 1.5**x, torch.pow(1, x), t.stride()

    for dtype in torch.float32, torch.bfloat16, torch.int64:
        check(aliased, torch.ones(2, 7, 8, dtype=dtype).transpose(1, 2), backends=[backend])


def test_one_result_that_shows_another(backend):
    def pooled(x):
        t = F.avg_pool2d(F.layer_norm(x, x.shape[1:]), 2)
        return t, t.view_as(t)

    x = torch.randn(2, 4, 4, 4).transpose(-1, -2)
    check(pooled, x, backends=[backend])
    compiled = framejit.compile(pooled, backend=backend)
    results = compiled(x)
    assert results[0].data_ptr() == results[1].data_ptr()


@pytest.mark.nothing_captured  # its place in the storage is counted in elements of another dtype
def test_as_strided_of_parts_of_complex_numbers(backend):
    def parts(x):
        t = torch.complex(x, x * 2)
        return t.imag.as_strided((2,), (1,), 0), torch.view_as_real(t).as_strided((3,), (2,), 1) + 1

    check(parts, torch.randn(6), backends=[backend], compiles=0, breaks=1)


def strided(shape, order):
    """A tensor of this shape whose memory has its dimensions in this order; the strides of dimensions of size 1 show it
    too."""
    made = torch.randn([shape[d] for d in order])
    return made.permute([order.index(d) for d in range(len(shape))])


@pytest.mark.parametrize("channels, groups", [(1, 1), (4, 1), (4, 4), (4, 2)])
def test_results_of_convolutions_are_read_as_they_lie(channels, groups):
    """For sizes of 1, torch finds the memory format by strides that otherwise mean nothing. A known difference: with
    one thread, eager computes groups of width 1 one after the other, and what joins them has other strides; no guard
    asks for the number of threads."""
    for length, batch, width in itertools.product((1, 2, 5), (1, 2), (1, 3)):
        weight = torch.randn(channels, channels // groups, width)

        def once(x):
            return torch.nn.functional.conv1d(x, weight, None, padding=2, groups=groups) * 2 + 1

        def plane(x):
            return torch.nn.functional.conv2d(x, weight.unsqueeze(-1), None, padding=2, groups=groups)[:, :, 1:] * 2 + 1
        for order in itertools.permutations(range(3)):
            x, y = strided((batch, channels, length), order), strided((batch, channels, length, 1), (*order, 3))
            with threads(2):
                check(once, x, calls=1, backends=("framejit",))
                check(plane, y, calls=1, backends=("framejit",))


def row_sums(x):
    return x * 2 + 1, x.sum(0), x.reshape(-1), x[1:]


@pytest.mark.parametrize("rows, columns", [(4, 3), (1, 3), (2, 1)])
def test_views_of_tensors_that_grow(rows, columns):
    """Their rows are as far apart as those of the tensor that they are views of: a stride is a symbol like a size."""
    compiled = framejit.compile(row_sums)
    framejit.reset()
    for width in (5, 7, 9, 12, 4, 30):
        x = torch.randn(rows, 2, width, 3)[:, :, :columns]
        same_as(row_sums, compiled(x), x)
    assert framejit.stats()["graphs"] <= 2, framejit.stats()
    dense = torch.randn(rows, 2, columns, 3)
    same_as(row_sums, compiled(dense), dense)


def test_transposed_views_have_an_entry_each():
    compiled, x = framejit.compile(row_sums), torch.randn(6, 6)
    framejit.reset()
    for _ in range(3):
        for view in (x, x.t(), torch.randn(8, 6)[:, :4], torch.randn(6, 8).t()[:4]):
            same_as(row_sums, compiled(view), view)
    assert framejit.stats()["fallback_reasons"] == {}, framejit.stats()


def copies_of_another_dtype(mask, small, x):
    return mask * x, small + x, x < small, torch.maximum(small, x), torch.where(mask, small, x), small.exp()


def test_operands_of_another_dtype_count_as_dense(backend):
    x = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    mask = (torch.rand(2, 1, 4, 5) > 0.5).expand(2, 3, 4, 5)
    check(copies_of_another_dtype, mask, mask.to(torch.bfloat16), x, backends=[backend])
    check(copies_of_another_dtype, mask, torch.arange(5).expand(2, 3, 4, 5), x, backends=[backend])
    check(copies_of_another_dtype, mask[:, :1], x[:, :1].double(), x[:, :1], backends=[backend])
    check(copies_of_another_dtype, torch.rand(3, 1).expand(3, 4) > 0.5, torch.rand(3, 1).half().expand(3, 4),
          torch.rand(4, 3).t(), backends=[backend])


def drawn(x):
    return torch.bernoulli(x), torch.bernoulli(x, 0.5), x.clone().bernoulli_(0.5), torch.rand_like(x)


def test_bernoulli_of_a_tensor_is_row_major(backend):
    for x in (torch.rand(4, 3).t(), torch.rand(6, 4).t()[:, ::2],
              torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)):
        check(drawn, x, backends=[backend])


def filled(x):
    return (torch.zeros_like(x), torch.full_like(x, 2), torch.empty_like(x).fill_(3), x.nan_to_num(),
            torch.empty_like(x).copy_(x), F.prelu(x, torch.ones(1)), x.clone().add_(1), torch.stack([x, x]))


def shuffled(x):
    return F.pixel_shuffle(x, 2), F.group_norm(x[:, :1], 1), torch.stack([x[:1], x[:1]]), torch.stack([x[:, :1]] * 2)


def test_dimensions_of_one_element_keep_their_strides(backend):
    for fn, x in ((filled, torch.rand(4, 1).t()), (filled, torch.rand(1, 3, 1, 2).transpose(0, 2)),
                  (filled, torch.as_strided(torch.rand(9), (1, 3), (7, 1))),
                  (filled, torch.rand(0, 3, 4).transpose(1, 2)), (filled, torch.rand(2, 4, 4, 1).permute(0, 3, 1, 2)),
                  (shuffled, torch.rand(2, 4, 6, 6).contiguous(memory_format=torch.channels_last))):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend, dynamic=False, fullgraph=True)
        same(compiled(x), fn(x), exactly_as(lambda: fn(x)), strides="all")


@pytest.mark.breaks(unsupported_op=2)
def test_out_is_filled_in_the_order_of_its_memory():
    x = torch.rand(3, 40)
    for draw in (lambda x, out: torch.bernoulli(x, out=out), lambda x, out: torch.normal(x, 1.0, out=out)):
        compiled = framejit.compile(draw)
        for out in torch.zeros(3, 40), torch.zeros(40, 3).t(), torch.zeros(6, 40)[::2]:
            torch.manual_seed(1)
            eager = draw(x, out).clone()
            torch.manual_seed(1)
            assert torch.equal(compiled(x, out.zero_()), eager)
            assert torch.equal(out, eager)
