"""On a machine with a GPU: products of a few rows are kernels, together with the ops around them.

    make test-gpu                       builds, and runs this file among others
"""
import torch
import torch.nn.functional as F

import framejit
from bounds import assert_close, exactly_as

try:
    import pytest
    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="not tested: there is no GPU")
except ImportError:  # as a program: test_gpu.py
    pytest = None

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
FEW = 100  # with fewer elements, eager may get every one right


def randn(*size, dtype=torch.float32):
    return torch.randn(*size, device="cuda").to(dtype)


def check(fn, *args, kernels=1, calls=0, **settings):
    """Asserts that the result is within the contract's bound, how many kernels and library calls there are, and that
    the bits of a call are those of the next."""
    with torch.no_grad():
        eager = fn(*args)
        framejit.reset()
        explained = framejit.explain(fn)(*args)
        sources = [e for e in explained.events if e.event == "Kernel" and e.fields["form"] == "hip"]
        compiled = framejit.compile(fn, **settings)
        first = compiled(*args).clone()
        for _ in range(3):
            got = compiled(*args)
        torch.cuda.synchronize()
    assert framejit.stats()["fallbacks"] == 0
    assert len(sources) == kernels, [e.artefact for e in sources]
    assert got.dtype == eager.dtype and got.stride() == eager.stride() and torch.equal(got, first)
    assert_close(got, eager, exactly_as(lambda: fn(*args)), "result", luck="terms" if got.numel() < FEW else None)


def test_rows_and_sizes():
    for dtype in DTYPES:
        for rows, columns, terms in ((1, 40, 64), (2, 301, 200), (3, 33, 1376), (4, 4100, 1024), (1, 7, 11008),
                                     (4, 3, 8)):
            check(F.linear, randn(rows, terms, dtype=dtype), randn(columns, terms, dtype=dtype))


def test_more_rows():
    framejit._framejit.replace_costs("few_product_rows=8")
    try:
        for dtype in DTYPES:
            for rows, columns, terms in ((5, 1000, 512), (8, 4100, 1024), (8, 130, 11008)):
                check(F.linear, randn(rows, terms, dtype=dtype), randn(columns, terms, dtype=dtype))
    finally:
        framejit._framejit.replace_costs("")


def test_bias_activation_residual():
    def block(x, w, b, y):
        return y + F.gelu(F.linear(x, w, b))

    def gated(x, w, u):
        return F.silu(F.linear(x, w)) * F.linear(x, u)

    for dtype in DTYPES:
        for rows in (1, 3):
            x = randn(rows, 256, dtype=dtype)
            check(block, x, randn(513, 256, dtype=dtype), randn(513, dtype=dtype), randn(rows, 513, dtype=dtype))
            check(gated, x, randn(700, 256, dtype=dtype), randn(700, 256, dtype=dtype))


def test_sizes_that_stay_with_the_library():
    def product(x, w):
        return torch.relu(F.linear(x, w))

    for rows, terms in ((9, 64), (2, 60), (2, 61)):
        check(product, randn(rows, terms, dtype=torch.bfloat16), randn(24, terms, dtype=torch.bfloat16))
    check(lambda x, w: torch.relu(x @ w), randn(2, 64), randn(64, 24))


def test_weights_at_odd_addresses():
    for dtype in DTYPES:
        w = randn(70 * 64 + 1, dtype=dtype)[1:].view(70, 64)
        check(F.linear, randn(3, 64, dtype=dtype), w)


def test_infinities_of_the_last_word():
    x, w = torch.ones(1, 1000, device="cuda"), torch.ones(9, 1000, device="cuda")
    w[3, -1], w[4, -1] = float("inf"), float("nan")
    with torch.no_grad():
        assert torch.equal(framejit.compile(F.linear)(x, w).isinf(), F.linear(x, w).isinf())
        assert framejit.compile(F.linear)(x, w).isnan().sum() == 1


class Layer(torch.nn.Module):
    def __init__(self, width, gate):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.gate, self.up = (torch.nn.Linear(width, gate, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(gate, width, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def test_replays():
    model = torch.nn.Sequential(*(Layer(256, 640) for _ in range(3))).cuda().bfloat16().eval().requires_grad_(False)
    compiled = framejit.compile(model, mode="reduce-overhead")
    before = framejit.stats()["replays"]
    with torch.no_grad():
        for _ in range(8):
            x = randn(1, 1, 256, dtype=torch.bfloat16)
            assert_close(compiled(x), model(x), exactly_as(lambda: model(x)), "result")
    assert framejit.stats()["replays"] > before
