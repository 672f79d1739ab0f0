"""On a machine with a GPU: attention over few keys, against torch's own and float64.

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

SIZES = ((1, 12, 197, 197), (2, 3, 128, 128), (1, 1, 1, 1), (3, 2, 5, 17), (1, 4, 64, 256), (2, 2, 70, 33),
         (1, 12, 250, 16), (4, 8, 77, 77))
MOST_MASKED = 208


def masks_for(b, h, queries, keys, dtype):
    yield None
    if keys <= MOST_MASKED:
        yield torch.randn(b, 1, 1, keys, device="cuda").to(dtype)
        excluded = torch.rand(1, h, queries, keys, device="cuda") < 0.3
        yield torch.randn(1, h, queries, keys, device="cuda").to(dtype).masked_fill(excluded, float("-inf"))
        yield torch.randn(b, 1, keys, queries, device="cuda").to(dtype).transpose(2, 3)
    yield "causal"


def test_short_attention_as_torch():
    for dtype in (torch.bfloat16, torch.float16):
        for b, h, queries, keys in SIZES:
            rows = torch.randn(b, max(queries, keys), 3 * h * 64, device="cuda").to(dtype)
            q, k, v = (t.view(b, -1, h, 64).transpose(1, 2) for t in rows.split(h * 64, -1))
            q, k, v = q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]
            for kind in masks_for(b, h, queries, keys, dtype):
                causal = isinstance(kind, str)
                mask = None if causal else kind

                def theirs():
                    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=0.2).nan_to_num(0.0)
                got = torch.ops.framejit.short_attention(q, k, v, mask, causal, 0.2)
                assert_close(got, theirs(), exactly_as(theirs), str((dtype, b, h, queries, keys, causal)), luck="terms")
                assert got.stride() == (queries * h * 64, 64, h * 64, 1)


def test_rows_without_a_key_and_non_finite_scores():
    q, k, v = (torch.randn(1, 2, 20, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    mask = torch.zeros(1, 1, 20, 20, device="cuda", dtype=torch.float16)
    mask[0, 0, 3] = float("-inf")
    got = torch.ops.framejit.short_attention(q, k, v, mask, False, 0.125)
    assert (got[:, :, 3] == 0).all() and not got.isnan().any()
    q[0, 1, 5, 7] = float("nan")
    k[0, 0, 4] = float("inf")
    got = torch.ops.framejit.short_attention(q, k, v, None, False, 0.125)
    assert got[0, 1, 5].isnan().all() and not got[0, 1, 6].isnan().any() and got[0, 0].isnan().any()


def halved(model, *args):
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        return model(*args)


class Layer(torch.nn.Module):
    def __init__(self, masked):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(128, 128) for _ in range(4))
        self.masked = masked

    def forward(self, x, mask):
        q, k, v = (f(x).view(*x.shape[:2], 2, 64).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, mask if self.masked else None)
        return x + self.o(y.transpose(1, 2).reshape(x.shape))


def test_short_attention_in_a_layer():
    """Queries, keys and values are one product, and the attention is a kernel, in all modes."""
    x = torch.randn(3, 50, 128, device="cuda")
    mask = torch.rand(3, 1, 1, 50, device="cuda") > 0.3
    mask[..., 0] = True
    for masked in (False, True):
        layer = Layer(masked).cuda().eval()
        for settings in ({}, {"mode": "reduce-overhead"}, {"options": {"graphs": True, "freezing": True}}):
            framejit.reset()
            with torch.no_grad():
                with torch.autocast("cuda", torch.bfloat16):
                    eager = layer(x, mask)
                    compiled = framejit.compile(layer, **settings)
                    for _ in range(6):
                        got = compiled(x, mask)
            assert framejit.stats()["fallbacks"] == 0 and framejit.stats()["graph_breaks"] == 0
            assert got.dtype == eager.dtype and got.stride() == eager.stride()
            assert_close(got, eager, exactly_as(lambda: halved(layer, x, mask)), f"{masked}, {settings}", luck="terms")


class Patches(torch.nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.convolution = torch.nn.Conv2d(channels, 32, size, size)

    def forward(self, x):
        return self.convolution(x).flatten(2).transpose(1, 2) * 2, self.convolution(x)


def test_patches():
    for channels, size in ((3, 16), (8, 2), (1, 4)):
        model, x = Patches(channels, size).cuda().eval(), torch.randn(2, channels, 32, 48, device="cuda")
        for settings in ({}, {"options": {"freezing": True}}, {"mode": "reduce-overhead"}):
            framejit.reset()
            with torch.no_grad():
                with torch.autocast("cuda", torch.bfloat16):
                    eager = model(x)
                    compiled = framejit.compile(model, **settings)
                    for _ in range(6):
                        got = compiled(x)
            assert framejit.stats()["fallbacks"] == 0
            exact = exactly_as(lambda: halved(model, x))
            for i, (ours, theirs) in enumerate(zip(got, eager, strict=True)):
                assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
                assert_close(ours, theirs, part(exact, lambda v: v[i]), f"{channels}, {settings}", luck="terms")
