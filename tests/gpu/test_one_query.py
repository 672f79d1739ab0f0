"""On a machine with a GPU: attention of one query, with the rotation of query and key and the rows of its caches, is
one kernel, however the program is written.

    make test-gpu                       builds, and runs this file among others
"""
import torch
import torch.nn.functional as F

import framejit
from bounds import assert_close, exactly_as, part

try:
    import pytest
    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="not tested: there is no GPU")
except ImportError:  # as a program: test_gpu.py
    pytest = None


def angles(positions, size, dtype):
    turns = torch.outer(torch.arange(positions, device="cuda").float(), 0.9 ** torch.arange(size // 2, device="cuda"))
    return turns.cos().to(dtype), turns.sin().to(dtype)


def pairs(qkv, heads, size, cos, sin, keys, values, at, allowed):
    """Rotates neighbours in float32, and stores rows at an index tensor, as gpt-fast does."""
    def turned(x):
        even, odd = x.float().reshape(1, 1, heads, size // 2, 2).unbind(-1)
        c, s = cos[at].float()[:, None], sin[at].float()[:, None]
        return torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(3).type_as(x)
    q, k, v = (t.view(1, 1, heads, size) for t in qkv.split(heads * size, -1))
    q, k, v = (t.transpose(1, 2) for t in (turned(q), turned(k), v))
    keys[:, :, at] = k
    values[:, :, at] = v
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=allowed[None, None, at])


def halves(qkv, heads, size, cos, sin, keys, values, at, allowed):
    """Rotates halves in the tensors' dtype, and copies rows by index_copy_, as Hugging Face does."""
    def turned(x):
        c, s = (torch.cat([t[at], t[at]], -1)[:, None, None] for t in (cos, sin))
        return x * c + torch.cat([-x[..., size // 2:], x[..., :size // 2]], -1) * s
    q, k, v = (t.view(1, -1, heads, size).transpose(1, 2) for t in qkv.split(heads * size, -1))
    keys.index_copy_(2, at, turned(k))
    values.index_copy_(2, at, v)
    return F.scaled_dot_product_attention(turned(q), keys, values, attn_mask=allowed[at][None, None], scale=0.1)


def plain(qkv, heads, size, cos, sin, keys, values, at, allowed):
    """Without a rotation, a mask of numbers."""
    q, k, v = (t.view(1, heads, 1, size) for t in qkv.split(heads * size, -1))
    keys[:, :, at], values[:, :, at] = k, v
    mask = torch.zeros_like(allowed, dtype=q.dtype).masked_fill(~allowed, float("-inf"))
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask[at].view(1, 1, 1, -1))


def hip_kernels(fn, *args):
    explained = framejit.explain(fn)(*args)
    return [e for e in explained.events if e.event == "Kernel" and e.fields["form"] == "hip"]


def attended(style, heads, size, positions, dtype, settings):
    cos, sin = angles(positions, size, torch.float32 if style is pairs else dtype)
    allowed = torch.ones(positions, positions, dtype=torch.bool, device="cuda").tril()
    keys, values = (torch.randn(1, heads, positions, size, device="cuda").to(dtype) for _ in range(2))
    framejit.reset()
    compiled = framejit.compile(style, **settings)
    theirs, ours = (keys.clone(), values.clone()), (keys.clone(), values.clone())
    label = f"{style.__name__}, {heads} heads of {size}, {positions} keys, {dtype}, {settings}"
    for step, position in enumerate((positions // 2, 0, positions - 1, 7, 8, 9)):
        at = torch.tensor([position], device="cuda")
        qkv = torch.randn(1, 1, 3 * heads * size, device="cuda").to(dtype)
        before = keys.clone(), values.clone()
        for cache, mine, saved in zip(theirs, ours, before, strict=True):
            cache.copy_(saved)
            mine.copy_(saved)
        versions = [t._version for t in ours]
        eager = style(qkv, heads, size, cos, sin, *theirs, at, allowed)
        got = compiled(qkv, heads, size, cos, sin, *ours, at, allowed)
        assert got.dtype == eager.dtype and [t._version for t in ours] == [v + 1 for v in versions], label

        def everything():
            caches = before[0].clone(), before[1].clone()
            return (style(qkv, heads, size, cos, sin, *caches, at, allowed), *caches)
        exact = exactly_as(everything)
        for k, (mine, its) in enumerate(zip((got, *ours), (eager, *theirs), strict=True)):
            assert_close(mine, its, part(exact, lambda v, k=k: v[k]), f"{label}, step {step}, {k}", luck="terms")
        assert torch.equal(ours[1], theirs[1]), label
    assert framejit.stats()["fallbacks"] == 0 and framejit.stats()["graph_breaks"] == 0, label
    framejit.reset()
    at = torch.tensor([3], device="cuda")
    sources = hip_kernels(style, qkv, heads, size, cos, sin, *ours, at, allowed)
    return [e.artefact for e in sources]



def check(style, kernels):
    for heads, size, positions in ((32, 128, 512), (12, 64, 100), (3, 32, 1500)):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            with torch.no_grad():
                sources = attended(style, heads, size, positions, dtype, {})
            if torch.cuda.get_device_capability()[0] >= 9:
                assert "finite_base" in sources[-1] and len(sources) == kernels, (heads, dtype, len(sources))


def test_rotations_of_pairs():
    check(pairs, 1)


def test_rotations_of_halves():
    check(halves, 1)


def test_without_a_rotation():
    check(plain, 1)


def test_replays():
    for style in (pairs, halves):
        with torch.no_grad():
            attended(style, 32, 128, 512, torch.bfloat16, {"mode": "reduce-overhead"})


def test_sizes_that_stay_with_the_library():
    q, k = torch.randn(1, 4, 1, 80, device="cuda"), torch.randn(1, 4, 50, 80, device="cuda")
    with torch.no_grad():
        for queries, keys in ((q, k), (q[..., :64], k[..., :64][:, :, :1]), (k[..., :64], k[..., :64])):
            fn = F.scaled_dot_product_attention
            got = framejit.compile(fn)(queries, keys, keys)
            assert_close(got, fn(queries, keys, keys), exactly_as(lambda: fn(queries, keys, keys)), str(keys.shape))


def test_rows_that_a_mask_excludes_and_non_finite_scores():
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v = (torch.randn(2, 3, n, 64, device="cuda").to(dtype) for n in (1, 200, 200))
        mask = torch.zeros(2, 1, 1, 200, device="cuda", dtype=dtype)
        mask[0] = float("-inf")
        k[1, 1, 150, 3] = float("nan")
        v[1, 2, 199, 5] = float("inf")
        with torch.no_grad():
            got = framejit.compile(F.scaled_dot_product_attention)(q, k, v, mask)
        assert (got[0] == 0).all() and got[1, 1].isnan().all() and not got[1, 0].isnan().any()
        assert got[1, 2, 0, 5] == float("inf") and got[1, 2].isfinite().sum() == 63
