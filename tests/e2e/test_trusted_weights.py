"""Weights that the user promises not to change (freezing=True): derived without a write watch too."""
import pytest
import torch
import torch.nn.functional as F

import framejit
from check import fresh, same_as  # noqa: F401
from test_derived_weights import check, derived, image, model, random_writes, warm, weights_are_packed  # noqa: F401


def test_writes_that_are_not_looked_for_are_found_out():
    """The same programs, with nobody checking whether a weight was written: the test must notice."""
    with pytest.raises(AssertionError):
        for seed in range(4):
            m = model()
            random_writes(framejit.compile(m, options={"freezing": True}), m, image(), seed)


class Attention(torch.nn.Module):
    """Queries, keys and values of one input, gate and up of another."""

    def __init__(self, bias):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(64, 64, bias=bias) for _ in range(3))
        self.gate, self.up = torch.nn.Linear(64, 128, bias=False), torch.nn.Linear(64, 128, bias=False)
        self.down = torch.nn.Linear(128, 64, bias=bias)

    def forward(self, x):
        q, k, v = (layer(x).view(2, 16, 4, 16).transpose(1, 2) for layer in (self.q, self.k, self.v))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 16, 64)
        return self.down(F.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_one_input_are_joined(bias, dtype):
    torch.manual_seed(0)
    m, x = Attention(bias).eval(), torch.randn(2, 16, 64)
    compiled = framejit.compile(m, options={"freezing": True})
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)
    with autocast:
        warm(compiled, x)
        joined = 3 + (bias if dtype == torch.float32 else 2 * bias)  # q, k and v; gate and up; down; and biases
        if dtype == torch.float32 or "avx512_bf16" in open("/proc/cpuinfo").read():
            assert derived() == joined, framejit.stats()
        check(m, compiled, x)
    m.k.weight.data.mul_(2)
    framejit.refresh(m)
    with autocast:  # anew: eager keeps its casts until the end of an autocast block
        check(m, compiled, x)


@pytest.mark.parametrize("place", [(), (5,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_as_strided_looks_at_is_not_joined(place, dtype):
    class Looks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(64, 64) for _ in range(3))

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            return torch.as_strided(k, (4, 8), (3, 1), *place) + 1, q * v, torch.as_strided(v.mT, (3, 5), (70, 2)) * 2

    torch.manual_seed(0)
    m, x = Looks().eval(), torch.randn(32, 64)
    compiled = framejit.compile(m, options={"freezing": True})
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        warm(compiled, x)
        same_as(m, compiled(x), x)
    assert framejit.stats()["fallbacks"] == 0
