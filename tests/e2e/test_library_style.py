"""Programs in the style of Hugging Face and timm code: each in one graph, with eager's behaviour in everything."""
import collections
import dataclasses
import math
from typing import Optional

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from check import check, same


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2:], x[..., : x.shape[-1] // 2]), dim=-1)


class Rope(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer("inverse", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)), persistent=False)

    @torch.no_grad()
    def forward(self, x, positions):
        inverse = self.inverse[None, :, None].float().expand(positions.shape[0], -1, 1)
        with torch.autocast(device_type=x.device.type, enabled=False):
            angles = (inverse @ positions[:, None, :].float()).transpose(1, 2)
            both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(dtype=x.dtype), both.sin().to(dtype=x.dtype)


@dataclasses.dataclass
class AttentionOutput:
    hidden: torch.Tensor
    weights: Optional[torch.Tensor] = None
    cache: Optional[object] = None


class Cache:
    def __init__(self):
        self.keys, self.values = {}, {}

    def update(self, k, v, layer):
        if layer in self.keys:
            k, v = torch.cat([self.keys[layer], k], dim=-2), torch.cat([self.values[layer], v], dim=-2)
        self.keys[layer], self.values[layer] = k, v
        return k, v

    def length(self, layer=0):
        return self.keys[layer].shape[-2] if layer in self.keys else 0


class Attention(nn.Module):
    def __init__(self, d, heads, layer):
        super().__init__()
        self.heads, self.d, self.layer = heads, d, layer
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.rope, self.drop = Rope(d // heads), nn.Dropout(0.1)

    def forward(self, x, mask=None, cache=None, **kwargs):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        past = cache.length(self.layer) if cache is not None else 0
        cos, sin = (r.unsqueeze(1) for r in self.rope(q, torch.arange(past, past + t)[None].expand(b, -1)))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores + mask[:, None, :, : k.shape[-2]]
        weights = self.drop(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype))
        hidden = self.out((weights @ v).transpose(1, 2).reshape(b, t, -1))
        return AttentionOutput(hidden, weights if kwargs.get("output_attentions") else None)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Attention(16, 2, i) for i in range(2))

    def forward(self, x, cache=None, **kwargs):
        t, past, weights = x.shape[1], cache.length() if cache else 0, ()
        mask = torch.full((t, t + past), torch.finfo(x.dtype).min).triu(1 + past)[None].expand(x.shape[0], -1, -1)
        for layer in self.layers:
            out = layer(x, mask=mask, cache=cache, **kwargs)
            x = x + out.hidden
            weights += (out.weights,)
        return AttentionOutput(x, weights, cache)


def test_rope_masks_and_a_growing_cache():
    m = Decoder().eval()
    check(lambda m, x: m(x), m, torch.randn(2, 5, 16), breaks=0)

    def two_steps(m, x, y):
        cache = Cache()
        first = m(x, cache=cache)
        second = m(y, cache=cache, output_attentions=True)
        return first.hidden, second.hidden, second.weights, cache.keys
    check(two_steps, m, torch.randn(2, 5, 16), torch.randn(2, 1, 16), breaks=0)


def test_heads_picked_by_name():
    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"cls": nn.Linear(4, 2),
                                        "reg": nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 1))})
            self.gains = nn.ParameterDict({k: nn.Parameter(torch.ones(1)) for k in self.heads})

        def forward(self, x, tasks=None):
            out = {}
            for name, head in self.heads.items():
                if tasks is not None and name not in tasks:
                    continue
                out[name] = head(x) * self.gains[name]
            return out
    m = Router().eval()
    check(lambda m, x: m(x), m, torch.randn(3, 4), breaks=0)
    check(lambda m, x: m(x, tasks=["reg"]), m, torch.randn(3, 4), breaks=0)


def test_einsum():
    def f(q, k, b):
        a = torch.einsum("bhid,bhjd->bhij", q, k) + torch.einsum("h,ij->hij", b, torch.ones(5, 5)).tril()
        return torch.einsum("...ij->...ji", a).softmax(-1)
    check(f, torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4), torch.randn(3), breaks=0)


def test_chunks_and_indexing():
    def f(x, index, mask):
        a, b = x.chunk(2, dim=-1)
        c, d, e = x.split([1, 2, 3], dim=-1)
        y = x[torch.arange(x.size(0))[:, None], index]
        z = x.clone()
        z[mask] = 0.0
        z[:, 1:3] += 1
        z[index[0], 0] = 5.0
        return a * b, c + d.sum(-1, keepdim=True) + e[:, :1], y, z, x[:, None][..., -1], torch.take_along_dim(x, index,
            1), x.flip(0)[::2], x.roll(1, 0)
    check(f, torch.randn(4, 6), torch.randint(0, 6, (4, 2)), torch.rand(4, 6) > 0.5, breaks=0)


def test_buffers_updated_in_place():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.scale = nn.BatchNorm1d(4), None
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("steps", torch.tensor(0))

        def forward(self, x):
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.steps += 1
            self.last = x.shape
            if self.scale is None:
                self.scale = 2.0
            return self.norm(x - self.mean) * self.scale
    check(lambda m, x: m(x), Average().train(), torch.randn(6, 4), breaks=0)


class ModelOutput(collections.OrderedDict):
    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, k):
        return dict(self.items())[k] if isinstance(k, str) else self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class ClassifierOutput(ModelOutput):
    loss: Optional[torch.Tensor] = None
    logits: torch.Tensor = None
    hidden: Optional[tuple] = None


def test_output_classes():
    def f(x, labels):
        hidden = (x,)
        for _ in range(2):
            x = F.silu(x) * 1.5
            hidden = hidden + (x,)
        loss = F.cross_entropy(x, labels, ignore_index=-100, label_smoothing=0.1)
        out = ClassifierOutput(loss=loss, logits=x, hidden=hidden)
        out.logits = out.logits * 2
        return out, out[0] + out["logits"].sum(), len(out), list(out.keys())
    check(f, torch.randn(3, 5), torch.tensor([0, 4, -100]), breaks=0)


def test_patches_and_windows():
    def f(x, p=4):
        b, c, h, w = x.shape
        x = x.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        windows = F.pad(x, (0, 0, 1, 0)).view(b, -1, x.size(-1))
        x = F.interpolate(windows.transpose(1, 2).unsqueeze(-1), scale_factor=(2.0, 1.0), mode="nearest").squeeze(-1)
        return F.avg_pool1d(x, 2), torch.meshgrid(torch.arange(h // p), torch.arange(w // p), indexing="ij")
    check(f, torch.randn(2, 3, 8, 8), breaks=0)


class DropPath(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if keep > 0.0:
            mask.div_(keep)
        return x * mask


class ConvBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.depthwise = nn.LayerNorm(d, eps=1e-6), nn.Conv2d(d, d, 3, padding=1, groups=d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.gamma, self.path = nn.Parameter(1e-6 * torch.ones(d)), DropPath(0.1)

    def forward(self, x):
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        if self.gamma is not None:
            y = y.mul(self.gamma.reshape(1, 1, 1, -1)) if y.ndim == 4 else y
        return self.path(y.permute(0, 3, 1, 2)) + x


def test_blocks_with_dropped_paths():
    m = nn.Sequential(*[ConvBlock(4) for _ in range(2)])
    check(lambda m, x: m(x), m.eval(), torch.randn(2, 4, 5, 5), breaks=0)
    check(lambda m, x: m(x), m.train(), torch.randn(2, 4, 5, 5), breaks=0)


def test_masks_from_token_ids():
    def f(ids, pad=0, window=3):
        positions = torch.arange(ids.shape[1])
        causal = positions[None, :] <= positions[:, None]
        sliding = positions[:, None] - positions[None, :] < window
        kept = ids != pad
        mask = causal & sliding & kept[:, None, :]
        added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        last = (kept.long() * positions).argmax(-1)
        return added[:, None], kept.long().cumsum(-1).sub(1).clamp(min=0), last, ids.gather(1, last[:, None])
    check(f, torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]]), breaks=0)


class Experts(nn.Module):
    def __init__(self, d=8, n=4, k=2):
        super().__init__()
        self.gate, self.n, self.k = nn.Linear(d, n, bias=False), n, k
        self.up, self.down = nn.Parameter(torch.randn(n, d, 2 * d)), nn.Parameter(torch.randn(n, d, d))

    def forward(self, x):
        b, t, d = x.shape
        x = x.reshape(-1, d)
        p = self.gate(x).softmax(-1, dtype=torch.float)
        weights, index = p.topk(self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        hot = F.one_hot(index, num_classes=self.n).permute(2, 1, 0)
        route = torch.zeros_like(p).scatter_(1, index, weights)
        gated, up = torch.bmm(x.expand(self.n, -1, -1), self.up).chunk(2, -1)
        y = torch.bmm(F.silu(gated) * up, self.down)
        return (y * route.t().unsqueeze(-1)).sum(0).view(b, t, d), hot.float().mean((1, 2)) @ p.mean(0)


def test_experts():
    check(lambda m, x: m(x), Experts().eval(), torch.randn(2, 3, 8), breaks=0)


MASKED = {
    "sum": lambda x, m: torch.masked.sum(x, 1, mask=m), "amax": lambda x, m: torch.masked.amax(x, 0, mask=m),
    "mean": lambda x, m: torch.masked.mean(x, mask=m), "norm": lambda x, m: torch.masked.norm(x, 2, 1, mask=m),
    "softmax": lambda x, m: torch.masked.softmax(x, 1, mask=m), "no mask": lambda x, m: torch.masked.prod(x, 1),
    "a row's mask": lambda x, m: torch.masked.std(x, 1, mask=m[0], unbiased=True),
    "two masks": lambda x, m: torch.masked.logaddexp(x, x * 2, input_mask=m, other_mask=~m),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked(name):
    check(MASKED[name], torch.randn(3, 4), torch.tensor([[True, False, True, True]] * 3))


@pytest.mark.breaks(made_in_trace=3, unsupported_write=1)
@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_a_masked_tensor_stays_plain():
    m = torch.tensor([[True, False, True, True]] * 3)

    def f(x):
        y = x * 2
        return torch.masked.sum(torch.masked.masked_tensor(y, m), 1), y
    compiled, x = framejit.compile(f), torch.randn(3, 4)
    for _ in range(2):
        same(compiled(x), f(x))
    assert framejit.stats()["break_reasons"]["unsupported_tensor"] == 8 and framejit.stats()["graphs"] == 4


def test_another_function_in_place_of_the_masks_helper(monkeypatch):
    """The program's replacement is called."""
    monkeypatch.setattr(torch.masked._ops, "_combine_input_and_mask", lambda op, x, mask, *args: x + 1)
    check(MASKED["sum"], torch.randn(3, 4), torch.tensor([[True, False, True, True]] * 3))
