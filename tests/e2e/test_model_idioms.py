"""Ten programs in idioms of model libraries that the other files lack: windows, mixtures of experts, caches, beams,
anchors."""
import dataclasses
import math
from collections import OrderedDict
from typing import NamedTuple, Optional

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from check import check


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# ---- windows that are shifted, with a bias per relative position (Swin)

def window_partition(x, size):
    b, h, w, c = x.shape
    return x.view(b, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, size * size,
        c)


def window_reverse(windows, size, h, w):
    c = windows.shape[-1]
    return windows.view(-1, h // size, w // size, size, size, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, h, w,
        c)


class ShiftedWindows(nn.Module):
    def __init__(self, dim=8, heads=2, size=4, shift=2):
        super().__init__()
        self.heads, self.size, self.shift = heads, size, shift
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.randn((2 * size - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        relative = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + size - 1
        self.register_buffer("index", relative[..., 0] * (2 * size - 1) + relative[..., 1], persistent=False)

    def attention_mask(self, h, w, device):
        image, count = torch.zeros(1, h, w, 1, device=device), 0
        slices = (slice(0, -self.size), slice(-self.size, -self.shift), slice(-self.shift, None))
        for rows in slices:
            for columns in slices:
                image[:, rows, columns, :] = count
                count += 1
        windows = window_partition(image, self.size).squeeze(-1)
        mask = windows.unsqueeze(1) - windows.unsqueeze(2)
        return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)

    def forward(self, x):
        b, h, w, c = x.shape
        x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        windows = window_partition(x, self.size)
        n, t, _ = windows.shape
        q, k, v = self.qkv(windows).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.table[self.index.view(-1)].view(t, t, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        mask = self.attention_mask(h, w, x.device)
        scores = scores.view(b, n // b, self.heads, t, t) + mask.unsqueeze(1).unsqueeze(0)
        out = scores.view(-1, self.heads, t, t).softmax(-1) @ v
        out = window_reverse(self.proj(out.transpose(1, 2).reshape(n, t, c)), self.size, h, w)
        return torch.roll(out, shifts=(self.shift, self.shift), dims=(1, 2))


def test_shifted_windows():
    check(lambda m, x: m(x), ShiftedWindows().eval(), torch.randn(2, 8, 8, 8), breaks=0, compiles=1)


# ---- a router over experts, each applied to all tokens and weighted (Mixtral without gathers)

class Experts(nn.Module):
    def __init__(self, dim=8, count=4, top=2):
        super().__init__()
        self.gate = nn.Linear(dim, count, bias=False)
        self.experts = nn.ModuleDict(
            OrderedDict((f"expert_{i}", nn.Sequential(nn.Linear(dim, 16), nn.SiLU(), nn.Linear(16, dim)))
                        for i in range(count)))
        self.top = top

    def forward(self, x, temperature=1.0):
        weights, chosen = torch.topk(F.softmax(self.gate(x) / temperature, dim=-1, dtype=torch.float), self.top, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        shares = torch.zeros(*x.shape[:-1], len(self.experts), dtype=x.dtype).scatter_add_(-1, chosen,
            weights.to(x.dtype))
        out = torch.zeros_like(x)
        for i, (name, expert) in enumerate(self.experts.items()):
            assert name.endswith(str(i))
            out = out + shares[..., i, None] * expert(x)
        return out, {"load": shares.mean(dim=(0, 1)),
                     "entropy": -(shares.clamp(min=1e-9).log() * shares).sum(-1).mean()}


def test_experts():
    check(lambda m, x: m(x, temperature=0.7), Experts().eval(), torch.randn(2, 5, 8), breaks=0, compiles=1)


# ---- a cache that grows (DynamicCache), and a config read through getattr

@dataclasses.dataclass
class Config:
    hidden: int = 8
    heads: int = 2
    scale: Optional[float] = None
    extra: dict = dataclasses.field(default_factory=dict)

    @property
    def head_dim(self):
        return getattr(self, "head_size", None) or self.hidden // self.heads


class Cache:
    def __init__(self):
        self.keys, self.values = [], []

    def __len__(self):
        return len(self.keys)

    def update(self, key, value, layer):
        if len(self) <= layer:
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key], dim=-2)
            self.values[layer] = torch.cat([self.values[layer], value], dim=-2)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, layer=0):
        return 0 if len(self) <= layer else self.keys[layer].shape[-2]


class CachedLayer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.config, self.index = config, index
        self.q, self.k, self.v = (nn.Linear(config.hidden, config.hidden, bias=False) for _ in range(3))

    def forward(self, x, cache=None, **kwargs):
        heads = lambda t: t.view(*t.shape[:-1], -1, self.config.head_dim).transpose(1, 2)  # noqa: E731
        q, k, v = map(heads, (self.q(x), self.k(x), self.v(x)))
        past = cache.get_seq_length(self.index) if cache is not None else 0
        if cache is not None:
            k, v = cache.update(k, v, self.index)
        causal = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(diagonal=past)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=causal, scale=self.config.scale)
        return out.transpose(1, 2).flatten(2)


def test_a_growing_cache():
    layers = nn.ModuleList(CachedLayer(Config(), i) for i in range(2)).eval()

    def generate(layers, x, cache):
        for step in range(2):
            for layer in layers:
                x = x + layer(x, cache=cache, unused=step)
            x = x[:, -1:] if step == 0 else x
        return x, cache.get_seq_length(), cache.keys
    check(generate, layers, torch.randn(1, 3, 8), Cache(), breaks=0)


# ---- one step of a beam search

class Beams(NamedTuple):
    tokens: torch.Tensor
    scores: torch.Tensor
    finished: torch.Tensor


def beam_step(logits, beams: Beams, width: int, end: int) -> Beams:
    batch, vocabulary = beams.tokens.shape[0], logits.shape[-1]
    scores = F.log_softmax(logits, dim=-1)
    only_end = torch.full_like(scores, -math.inf)
    only_end[..., end] = 0.0
    scores = torch.where(beams.finished[..., None], only_end, scores) + beams.scores[..., None]
    best, flat = scores.view(batch, -1).topk(width, dim=-1, sorted=True)
    source = torch.div(flat, vocabulary, rounding_mode="floor")
    token = flat % vocabulary
    tokens = torch.cat([beams.tokens.gather(1, source[..., None].expand(-1, -1, beams.tokens.shape[-1])),
                        token[..., None]], dim=-1)
    return beams._replace(tokens=tokens, scores=best, finished=beams.finished.gather(1, source) | token.eq(end))


def test_beams():
    beams = Beams(torch.randint(0, 7, (2, 3, 4)), torch.randn(2, 3),
                  torch.tensor([[True, False, False], [False, False, True]]))
    check(beam_step, torch.randn(2, 3, 7), beams, 3, 6, breaks=0, compiles=1)


# ---- anchors of a detector on several levels

def anchors_of(features, sizes=((8,), (16,)), ratios=(0.5, 1.0, 2.0), image=(32, 32)):
    levels = []
    for feature, scale in zip(features, sizes, strict=True):
        rows, columns = feature.shape[-2:]
        stride = torch.tensor([image[0] // rows, image[1] // columns])
        ratio = torch.as_tensor(ratios)
        high = torch.sqrt(ratio)
        base = torch.stack([-1 / high[:, None] * torch.tensor(scale), -high[:, None] * torch.tensor(scale)],
                           -1).flatten(0, 1)
        base = torch.cat([base, -base], -1).div(2).round()
        y, x = torch.meshgrid(torch.arange(rows) * stride[0], torch.arange(columns) * stride[1], indexing="ij")
        shifts = torch.stack((x.reshape(-1), y.reshape(-1), x.reshape(-1), y.reshape(-1)), dim=1)
        levels.append((shifts.view(-1, 1, 4) + base.view(1, -1, 4)).reshape(-1, 4))
    boxes = torch.cat(levels)
    boxes[:, 0::2] = boxes[:, 0::2].clamp(0, image[1])
    boxes[:, 1::2] = boxes[:, 1::2].clamp(0, image[0])
    return boxes, [len(level) for level in levels]


def test_anchors():
    check(anchors_of, [torch.randn(1, 2, 4, 4), torch.randn(1, 2, 2, 2)], breaks=0, compiles=1)


# ---- a selective scan in a loop over time, with a state (Mamba, slow path)

class Scan(nn.Module):
    def __init__(self, dim=4, state=3):
        super().__init__()
        self.a_log = nn.Parameter(torch.log(torch.arange(1, state + 1, dtype=torch.float32).repeat(dim, 1)))
        self.d, self.project = nn.Parameter(torch.ones(dim)), nn.Linear(dim, 1 + 2 * state)
        self.conv = nn.Conv1d(dim, dim, 3, groups=dim, padding=2)

    def forward(self, x):
        batch, time, dim = x.shape
        x = F.silu(self.conv(x.transpose(1, 2))[..., :time]).transpose(1, 2)
        a = -torch.exp(self.a_log.float())
        delta, b, c = torch.split(self.project(x), [1, a.shape[-1], a.shape[-1]], dim=-1)
        delta = F.softplus(delta)
        decay, drive = torch.exp(delta[..., None] * a), delta[..., None] * b[:, :, None, :] * x[..., None]
        state, outputs = x.new_zeros(batch, dim, a.shape[-1]), []
        for i in range(time):
            state = decay[:, i] * state + drive[:, i]
            outputs.append(torch.einsum("bdn,bn->bd", state, c[:, i]))
        return torch.stack(outputs, dim=1) + x * self.d, state


def test_scan():
    check(lambda m, x: m(x), Scan().eval(), torch.randn(2, 5, 4), breaks=0, compiles=1)


# ---- layers by name, drop path, layer scale, features from hooks (timm)

def drop_path(x, p: float = 0.0, training: bool = False):
    if p == 0.0 or not training:
        return x
    kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - p)
    return x * kept.div_(1 - p)


class LayerScale(nn.Module):
    def __init__(self, dim, init=1e-5, inplace=False):
        super().__init__()
        self.inplace, self.gamma = inplace, nn.Parameter(init * torch.ones(dim))

    def forward(self, x):
        return x.mul_(self.gamma) if self.inplace else x * self.gamma


ACTIVATIONS = {"gelu": nn.GELU, "relu": lambda: nn.ReLU(inplace=True), "silu": nn.SiLU}


class Stage(nn.Module):
    def __init__(self, dim=6, depth=3, act="relu"):
        super().__init__()
        rates = [x.item() for x in torch.linspace(0, 0.2, depth)]
        self.rates = rates
        for i in range(depth):
            self.add_module(f"block{i}", nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), ACTIVATIONS[act](),
                                                       LayerScale(dim, inplace=i % 2 == 0)))

    def forward(self, x, return_all=False):
        found = []
        for (name, block), rate in zip(self.named_children(), self.rates):
            x = x + drop_path(block(x), rate, self.training)
            if return_all or name == "block2":
                found.append((name, x))
        return dict(found) if return_all else found[-1][1]


@pytest.mark.parametrize("training", (False, True))
def test_stage_with_a_hook(training):
    def run(stage, x):
        seen = []
        handle = stage.block1.register_forward_hook(lambda module, inputs, output: seen.append(output.mean())
                                                    or output * 2)
        try:
            return stage(x, return_all=True), seen
        finally:
            handle.remove()
    stage = Stage().train(training)

    def plain(stage, x):
        return stage(x)
    check(plain, stage, torch.randn(2, 6), breaks=0)
    stage.block1.register_forward_hook(lambda module, inputs, output: output * 2)
    check(plain, stage, torch.randn(2, 6), breaks=0)
    check(run, stage, torch.randn(2, 6), compiles=3)


# ---- masks of packed sequences, positions restarted in each

def packed(lengths, x, window=None):
    ids = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])
    positions = torch.cat([torch.arange(n) for n in lengths])
    allowed = ids[:, None].eq(ids[None, :]) & (positions[:, None] >= positions[None, :])
    if window is not None:
        allowed &= (positions[:, None] - positions[None, :]) < window
    bias = torch.zeros(allowed.shape, dtype=x.dtype).masked_fill_(~allowed, torch.finfo(x.dtype).min)
    angles = positions[:, None].float() / (10000 ** (torch.arange(0, x.shape[-1], 2).float() / x.shape[-1]))
    table = torch.stack([angles.cos(), angles.sin()], -1)
    pairs = x.unflatten(-1, (-1, 2))
    rotated = torch.stack([pairs[..., 0] * table[..., 0] - pairs[..., 1] * table[..., 1], pairs[..., 1] * table[..., 0]
                           + pairs[..., 0] * table[..., 1]], -1).flatten(-2)
    return (rotated @ rotated.mT + bias).softmax(-1) @ x, {i: part.sum() for i, part in enumerate(x.split(lengths))}


@pytest.mark.parametrize("window", (None, 2))
def test_packed_sequences(window):
    check(packed, [3, 1, 4], torch.randn(8, 6), window, breaks=0, compiles=1)


# ---- sampling filters, and a schedule of a diffusion step

def filtered(logits, top_k=0, top_p=1.0, penalty=None, seen=None):
    if penalty is not None:
        score = logits.gather(-1, seen)
        logits = logits.scatter(-1, seen, torch.where(score < 0, score * penalty, score / penalty))
    if top_k > 0:
        logits = logits.masked_fill(logits < logits.topk(min(top_k, logits.size(-1)))[0][..., -1, None], -float("inf"))
    if top_p < 1.0:
        ordered, order = torch.sort(logits, descending=False)
        remove = ordered.softmax(-1).cumsum(-1) <= 1 - top_p
        remove[..., -1:] = 0
        logits = logits.masked_fill(remove.scatter(-1, order, remove), -float("inf"))
    return logits


def test_filters():
    check(filtered, torch.randn(2, 9), 5, 0.8, 1.3, torch.randint(0, 9, (2, 4)), breaks=0, compiles=1)


class Schedule:
    def __init__(self, steps=10):
        self.betas = torch.linspace(0.01, 0.2, steps)
        self.products = torch.cumprod(1 - self.betas, 0)

    def at(self, step, like):
        return self.products[step].view(-1, *[1] * (like.ndim - 1)).to(like)

    def step(self, noise, step, sample, eta=0.0, generator=None):
        now, before = self.at(step, sample), self.at((step - 1).clamp(min=0), sample)
        original = ((sample - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
        spread = eta * ((1 - before) / (1 - now) * (1 - now / before)).clamp(min=0).sqrt()
        mean = before.sqrt() * original + (1 - before - spread ** 2).clamp(min=0).sqrt() * noise
        return mean if eta == 0 else mean + spread * torch.randn(sample.shape, generator=generator, dtype=sample.dtype)


@pytest.mark.parametrize("eta", (0.0, 0.5))
def test_schedule(eta):
    schedule = Schedule()
    check(lambda noise, step, sample: schedule.step(noise, step, sample, eta=eta), torch.randn(2, 3, 4, 4),
          torch.tensor([3, 7]), torch.randn(2, 3, 4, 4), breaks=0, compiles=1)
