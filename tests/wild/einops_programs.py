"""einops: its functions over patterns as models use them, and its layers. Sizes are drawn by the seed."""
import random

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

from wild_program import Program

REARRANGED = ["b c h w -> b h w c", "b c h w -> b (c h w)", "b c (h x) (w y) -> b (h w) (x y c)",
              "b (g c) h w -> b g c h w", "b c h w -> (b h) (w c)", "b c (h 2) (w 2) -> b (c 4) h w",
              "b c h w -> b c 1 h w", "b ... -> ... b"]
REDUCED = [("b c h w -> b c", "mean"), ("b c h w -> b c 1 1", "max"), ("b c (h x) (w y) -> b c h w", "max"),
           ("b c h w -> c", "sum"),
           ("b ... -> b", "min"), ("b c h w -> b c h", "prod"), ("b c h w ->", "mean")]
REPEATED = ["b c h w -> b c (h 2) (w 2)", "b c h w -> b 3 c h w", "b c h w -> (r b) c h w", "b c h w -> b c h w 2"]
CONTRACTED = ["b c h w, b c h w -> b h w", "b c h w, b d h w -> b c d", "b c h w, b c x w -> b c h x",
              "b c h w, b c h w ->"]
SIZES = {"x": 2, "y": 2, "g": 2, "r": 2}


def written(pattern):
    """A 4 in a pattern is two axes of 2."""
    left, right = pattern.split("->")
    return left.replace("(h 2) (w 2)", "(h p) (w q)") + "->" + right.replace("(c 4)", "(c p q)"), "(c 4)" in right


def sizes_in(pattern):
    return {name: size for name, size in SIZES.items() if name in pattern.replace("(", " ").replace(")", " ").split()}


def rearranged(pattern):
    pattern, has_four = written(pattern)
    sizes = {"p": 2, "q": 2} if has_four else sizes_in(pattern)
    return lambda x: torch.relu(rearrange(x * 2, pattern, **sizes))


def packed(x):
    joined, shapes = pack([x, x[:, :1], x[:, :2] * 2], "b * h w")
    return joined, unpack(joined * 2, shapes, "b * h w")


class Attention(torch.nn.Module):
    def __init__(self, channels, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, torch.nn.Linear(channels, 3 * channels), torch.nn.Linear(channels,
            channels)

    def forward(self, x):
        x = rearrange(x, "b c h w -> b (h w) c")
        q, k, v = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=self.heads)
        weights = einsum(q, k, "b h i d, b h j d -> b h i j").softmax(-1)
        return self.out(rearrange(einsum(weights, v, "b h i j, b h j d -> b h i d"), "b h n d -> b n (h d)"))


def programs():
    found = {f"rearrange {p}": lambda c, p=p: rearranged(p) for p in REARRANGED}
    found |= {f"reduce {p} {how}": lambda c, p=p, how=how: lambda x: reduce(x + 1, p, how, **sizes_in(p)) for p,
              how in REDUCED}
    found |= {f"repeat {p}": lambda c, p=p: lambda x: repeat(x, p, **sizes_in(p)) + 1 for p in REPEATED}
    found |= {f"einsum {p}": lambda c, p=p: lambda x: einsum(x, x * 2, p) for p in CONTRACTED}
    found |= {"pack": lambda c: packed, "attention": Attention,
              "Rearrange": lambda c: torch.nn.Sequential(Rearrange("b c h w -> b (h w) c"), torch.nn.Linear(c, 8)),
              "Reduce": lambda c: torch.nn.Sequential(torch.nn.Conv2d(c, 8, 1), Reduce("b c h w -> b c", "mean")),
              "EinMix": lambda c: EinMix("b c h w -> b d h w", weight_shape="c d", bias_shape="d", c=c, d=6)}
    return found


def names(seed):
    found = list(programs())
    random.Random(seed).shuffle(found)
    return [f"{name} | {seed}" for name in found]


def make(name):
    which, seed = name.rsplit(" | ", 1)
    draw = random.Random(f"{which} {seed}")
    torch.manual_seed(0)
    channels = 2 * draw.randint(1, 4)
    x = torch.randn(draw.randint(1, 3), channels, 2 * draw.randint(1, 4), 2 * draw.randint(1, 4))
    return Program(programs()[which](channels), (x,))
