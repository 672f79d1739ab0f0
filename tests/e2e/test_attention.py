"""Written-out attention becomes one library call if that pays: in the forms that people write, and with non-finite
values in it."""
import math

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, exactly_as, fresh, same, same_as, threads  # noqa: F401
from devices import DEVICE

BATCH, HEADS, SIZE, LENGTH = 2, 4, 16, 640  # enough scores for the library call to pay
LOW = torch.finfo(torch.float32).min
INF, NAN = math.inf, math.nan


def heads(x):
    return x.view(x.shape[0], -1, HEADS, SIZE).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(x.shape[0], -1, HEADS * SIZE)


def plain(q, k, v, m):
    q, k, v = heads(q), heads(k), heads(v)
    return joined(torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(SIZE), -1) @ v) + 1


def padded(q, k, v, m):
    q, k, v = heads(q), heads(k), heads(v)
    scores = torch.matmul(q, k.transpose(-1, -2)) * SIZE ** -0.5 + m
    weights = F.dropout(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), 0.1, False)
    return (torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous().view(q.shape[0], -1, HEADS * SIZE)) + 1


def replaced(q, k, v, m):
    q, k, v = heads(q), heads(k), heads(v)
    scores = (q @ k.transpose(-2, -1) * SIZE ** -0.5).masked_fill(m != 0, -INF)
    return joined(scores.softmax(-1) @ v) * 2


def kept(q, k, v, m):
    q, k, v = heads(q), heads(k), heads(v)
    return joined(torch.where(m == 0, (q / 4) @ k.transpose(-2, -1), LOW).softmax(-1) @ v) * 2


def causal(q, k, v, m):
    q, k, v = heads(q), heads(k), heads(v)
    hidden = torch.triu(torch.ones(q.shape[2], k.shape[2], dtype=torch.bool), 1)
    return joined((q @ k.transpose(-2, -1) / 4).masked_fill(hidden, -INF).softmax(-1) @ v)


def of_einsum(q, k, v, m):
    q, k, v = (t.view(BATCH, -1, HEADS, SIZE) for t in (q, k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(SIZE)
    return torch.einsum("bhqk,bkhd->bqhd", (scores + m).softmax(-1), v)


def of_batches(q, k, v, m):
    q, k, v = (heads(t).reshape(BATCH * HEADS, -1, SIZE) for t in (q, k, v))
    scores = torch.baddbmm(torch.empty(1), q * 0.5, k.transpose(1, 2), beta=0, alpha=0.5)
    return torch.bmm(scores.softmax(-1), v)


def repeated(q, k, v, m):
    q = heads(q)
    k, v = (t[..., : 2 * SIZE].view(BATCH, -1, 2, SIZE).transpose(1, 2)[:, :, None].expand(-1, -1, 2, -1,
        -1).reshape(BATCH, HEADS, -1, SIZE) for t in (k, v))
    return joined(((q @ k.mT) / 4 + m).softmax(-1) @ v) - 1


def biased(q, k, v, m):
    q, k, v = heads(q), heads(k), heads(v)
    apart = torch.arange(k.shape[2])[None] - torch.arange(q.shape[2])[:, None]
    bias = (apart[..., None] * torch.tensor([0.1, 0.02, -0.01, 0.3])).clamp(-4, 4).permute(2, 0, 1)[None]
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += bias + m
    scores = scores + m.relu()
    return joined(torch.matmul(F.softmax(scores.float(), dim=-1).type_as(scores), v))


PROGRAMS = {f.__name__: f for f in (plain, padded, replaced, kept, causal, of_einsum, of_batches, repeated, biased)}


def inputs(seed=0, queries=LENGTH, keys=LENGTH):
    torch.manual_seed(seed)
    q, k, v = (torch.randn(BATCH, n, HEADS * SIZE) for n in (queries, keys, keys))
    m = torch.zeros(BATCH, 1, 1, keys)
    m[0, ..., -7:] = LOW
    return [q, k, v, m]


def calls(fn, *args):
    return [e for e in framejit.explain(fn)(*args).events if e.event == "Attention"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_call(name):
    found = calls(PROGRAMS[name], *inputs())
    assert len(found) == 1 and found[0].channel == "schedule" and found[0].fields["keys"] == str(LENGTH)
    check(PROGRAMS[name], *inputs(), breaks=0, compiles=1, backends=["framejit"], calls=1)


def test_keys_of_another_length():
    args = inputs(0, 513, 800)
    assert calls(padded, *args)
    check(padded, *args, breaks=0, backends=["framejit"], calls=1)
    check(causal, *inputs(0, 800, 513), breaks=0, backends=["framejit"], calls=1)


def test_masks_of_other_shapes():
    q, k, v, _ = inputs()
    for shape in ((LENGTH,), (LENGTH, LENGTH), (HEADS, 1, LENGTH), (BATCH, HEADS, LENGTH, LENGTH)):
        assert calls(padded, q, k, v, torch.randn(shape)), shape
        check(padded, q, k, v, torch.randn(shape), backends=["framejit"], calls=1)
    check(replaced, q, k, v, (torch.randn(LENGTH, LENGTH).t() > 0.5).float(), backends=["framejit"], calls=1)


SPECIAL = {
    "NaN in a query": lambda q, k, v, m: q[0, 1, 5, 3].fill_(NAN),
    "NaN in a key": lambda q, k, v, m: k[0, 1, 5, 3].fill_(NAN),
    "NaN in a masked key": lambda q, k, v, m: k[0, :, -1].fill_(NAN),
    "NaN in a value": lambda q, k, v, m: v[0, 1, 5, 3].fill_(NAN),
    "NaN in a masked value": lambda q, k, v, m: v[0, :, -1].fill_(NAN),
    "infinite query": lambda q, k, v, m: q[0, 1, 5, 3].fill_(INF),
    "infinite keys": lambda q, k, v, m: k[0].fill_(INF),
    "keys that are -inf": lambda q, k, v, m: (q.abs_(), k[0].fill_(-INF)),
    "infinite masked key": lambda q, k, v, m: k[0, :, -1].fill_(INF),
    "infinite value": lambda q, k, v, m: v[0, 1, 5, 3].fill_(INF),
    "infinite mask": lambda q, k, v, m: m[1, ..., 3].fill_(INF),
    "NaN in the mask": lambda q, k, v, m: m[1, ..., 3].fill_(NAN),
    "masked with -inf": lambda q, k, v, m: m[0, ..., :9].fill_(-INF),
    "all masked": lambda q, k, v, m: m[0].fill_(LOW),
    "all masked with -inf": lambda q, k, v, m: m[0].fill_(-INF),
    "large scores": lambda q, k, v, m: (q.mul_(1e19), k.mul_(1e19)),
    "large queries": lambda q, k, v, m: (q.mul_(1e30), k.mul_(1e9)),
    "large values": lambda q, k, v, m: v.clamp_(-1, 1).mul_(3e38),
    "zero queries": lambda q, k, v, m: q.zero_(),
    "peaked, infinite value": lambda q, k, v, m: (q.mul_(1000), v[..., 0].fill_(INF)),
}


# The op alone, which has no least size, compared with the ops that it replaces.
def written(q, k, v, m, replaces, scale):
    scores = q @ k.mT * scale
    if m is not None:
        scores = torch.where(m != 0, m, scores) if replaces else scores + m
    return torch.softmax(scores, -1) @ v


def one_op(*args):
    return torch.ops.framejit.attention(*args)


def op_inputs(seed=0, length=70):
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, length, 3, 16).transpose(1, 2) for _ in range(3))
    m = torch.zeros(2, 1, 1, length)
    m[0, ..., -7:] = LOW
    return q, k, v, m


def same_as_written(*args):
    got, want = one_op(*args), written(*args)
    same(got, want, exactly_as(lambda: written(*args)), strides=False)
    return got, want


@pytest.mark.nothing_captured
@pytest.mark.parametrize("case", SPECIAL)
@pytest.mark.parametrize("length", [8, 600])
def test_special_values(case, length):
    q, k, v, m = op_inputs(length=length)
    SPECIAL[case](q, k, v, m)
    for mask, replaces in (None, False), (m, False), (m, True), (m.expand(-1, 3, length, -1).tril(-1), True):
        same_as_written(q, k, v, mask, replaces, 0.25)


@pytest.mark.nothing_captured
def test_rows_without_a_key():
    q, k, v, _ = op_inputs()
    m = torch.full((1, 1, 70, 70), -INF).triu(1)
    m[..., 5, :] = -INF
    for keys in (k, k * 0):
        for replaces in (False, True):
            got, want = same_as_written(q, keys, v, m, replaces, 0.25)
            assert bool(got[:, :, 5].isnan().all()) and torch.equal(got.isnan(), want.isnan())
    one = k[:, :, :1], v[:, :, :1]  # one key of score zero: the logarithm of the sum is zero too
    assert torch.equal(one_op(q * 0, *one, None, False, 1.0), one[1].expand(-1, -1, 70, -1))


@pytest.mark.nothing_captured
@pytest.mark.parametrize("spread", [0.1, 1, 8])
@pytest.mark.parametrize("length", [16, 300])
def test_contract_over_seeds(spread, length):
    for seed in range(8):
        q, k, v, m = op_inputs(seed, length)
        same_as_written(q * spread, k, v.abs() + 1 if seed % 2 else v, m, False, 0.25)


@pytest.mark.nothing_captured
@pytest.mark.parametrize("length", [70, 300, 800])
def test_thread_counts(length):
    args, results = op_inputs(length=length), []
    for count in (1, 2, 3):
        with threads(count):
            results.append(one_op(*args, False, 0.25))
    assert all(torch.equal(results[0], r) for r in results[1:])


@pytest.mark.nothing_captured
def test_layouts():
    q, k, v, m = op_inputs()
    for turn in (lambda t: t.contiguous(), lambda t: t.mT.contiguous().mT, lambda t: t[:, :,
        ::2], lambda t: t.permute(1, 0, 2, 3)[:, 1:]):
        args = turn(q), turn(k), turn(v)
        got = one_op(*args, None, False, 1.0)
        torch.testing.assert_close(got, written(*args, None, False, 1.0))
        assert got.stride() == torch.empty_like(args[0]).stride()
    turned = torch.randn(70, 70).t()[None, None]
    torch.testing.assert_close(one_op(q, k, v, turned, False, 1.0), written(q, k, v, turned, False, 1.0))


@pytest.mark.cpu_only("the choice of a kernel depends on sizes")
def test_symbolic_sizes():
    compiled = framejit.compile(padded, dynamic=True)
    for length in (LENGTH, 700, 9):
        args = inputs(0, length, length)
        same_as(padded, compiled(*args), *args)
    assert framejit.stats()["graphs"] <= 2


def test_left_as_written():
    q, k, v, m = inputs()
    x = torch.randn(8, LENGTH, SIZE)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)

    def weights_too(q, k, v):
        p = torch.softmax(q @ k.mT, -1)
        return p @ v, p

    assert not calls(weights_too, x, x, x)
    assert not calls(lambda x: torch.softmax((x @ x.mT).masked_fill(hidden, -1e4), -1) @ x, x)
    assert not calls(lambda x: torch.softmax(x @ x.mT, -1) @ x, x.bfloat16())
    assert not calls(lambda x: torch.softmax(x @ x.mT, -1) @ x, x[:, :32])
    assert not calls(lambda x: torch.softmax(x @ x.mT, -2) @ x, x)


def test_result_lies_as_before():
    q, k, v = (heads(t) for t in inputs()[:3])
    check(lambda q, k, v: (lambda o: (o, o.transpose(1, 2)))(torch.softmax(q @ k.mT, -1) @ v), q, k, v,
          backends=["framejit"], calls=1)
    check(lambda q, k, v: (torch.softmax(q @ k.mT, -1) @ v).transpose(1, 2).contiguous(), q, k, v,
          backends=["framejit"], calls=1)


BEFORE = {"layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]), "softmax": lambda x: x.softmax(-1),
          "relu": lambda x: x.relu(), "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 1, 1),
          "max_pool2d": lambda x: F.max_pool2d(x, 3, 1, 1),
          "conv2d": lambda x: F.conv2d(x, torch.full((4, 4, 3, 3), 0.1).to(x.dtype), None, 1, 1)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("before", BEFORE)
def test_the_library_call_behind_ops_that_lay_out_anew(before, dtype):
    """PyTorch's fused kernel reads rows as if they were dense."""
    def attended(x):
        q = BEFORE[before](x)
        return F.scaled_dot_product_attention(q, q, q) + 1

    for x in torch.randn(1, 4, 16, 32).transpose(2, 3), torch.randn(2, 4, 8, 8), torch.randn(2, 4, 8,
        8).to(memory_format=torch.channels_last), torch.randn(8, 2, 4, 8).permute(1, 2, 3, 0):
        check(attended, x.to(dtype), backends=["framejit"])


def positions_from_zero(length, device="cpu"):
    """How transformers, when it is traced, makes a mask for attention that has none."""
    positions = torch.arange(length, device=device)[:, None]
    return (positions + 0 >= 0).expand(1, 1, length, length)


def keys_where(condition):
    def make(length, device="cpu"):
        return condition(torch.arange(length, device=device))[None].expand(1, 1, length, length)
    return make


EXCLUDES_NOTHING = {
    "positions": positions_from_zero,
    "both": lambda length, device: positions_from_zero(length, device) & (
        torch.arange(5, 5 + length, device=device)[None] > 4)}
MAY_EXCLUDE = {
    "the first key": keys_where(lambda positions: positions > 0),
    "keys below": keys_where(lambda positions: positions - 1 >= 0),
    "the last key": lambda length, device: (torch.arange(length, 0, -1, device=device)[None] >= 2).expand(
        1, 1, length, length),
    "written positions": keys_where(lambda positions: positions.sub_(1) >= 0)}


@pytest.mark.parametrize("length", [7, 16])
@pytest.mark.parametrize("name", [*EXCLUDES_NOTHING, *MAY_EXCLUDE])
def test_a_mask_that_excludes_nothing(name, length):
    make = {**EXCLUDES_NOTHING, **MAY_EXCLUDE}[name]

    def masked(q):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=make(q.shape[2], q.device)) * 2

    q = torch.randn(2, 3, length, 8)
    # On a GPU, torch has no fast kernel for this mask, and the one without a mask has other strides (docs/gpu.md).
    check(masked, q, breaks=0, strides=False if (name, DEVICE) == ("positions", "cuda") else "all")
    plain_bits = F.scaled_dot_product_attention(q, q, q) * 2
    with torch.no_grad():
        got = framejit.compile(masked)(q)
    if name in EXCLUDES_NOTHING:
        assert torch.equal(got, plain_bits)  # the kernel without a mask


def test_a_mask_of_another_size_is_an_error():
    def other_size(q):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=positions_from_zero(5, q.device))

    check(other_size, torch.randn(2, 3, 7, 8), backends=["framejit"])


def test_a_mask_and_causal():
    def both(q):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=positions_from_zero(7, q.device), is_causal=True) + 1

    check(both, torch.randn(2, 3, 7, 8), backends=["framejit"])
