"""Decoding with a Llama-shaped model of our own: fixed key and value caches, one compiled function for each token.

The protocol: a prompt of 6 tokens eagerly, then 200 tokens, each sampled from the 200 likeliest at temperature 0.8 by
exponential noise, bfloat16 weights, batch 1. The time of a token is that of the whole loop over 200.
"int8": the weights of all linear layers are int8 with a scale for each output, and are widened to bfloat16 where they
are used.
"""
import math
import time

import torch
import torch.nn.functional as F

SHAPES = {"7B": (4096, 32, 32, 11008), "1B": (2048, 16, 16, 5632)}  # width, layers, heads, width of the gate
VOCABULARY, POSITIONS, PROMPT, TOKENS = 32000, 512, 6, 200


class Norm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class Int8Linear(torch.nn.Module):
    def __init__(self, linear):
        super().__init__()
        scales = linear.weight.float().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (linear.weight / scales).round().to(torch.int8))
        self.register_buffer("scales", scales[:, 0].to(linear.weight.dtype))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scales


def quantise(model):
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, Int8Linear(child))


class Layer(torch.nn.Module):
    def __init__(self, width, heads, gate):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.before, self.between = Norm(width), Norm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.gate, self.up = torch.nn.Linear(width, gate, bias=False), torch.nn.Linear(width, gate, bias=False)
        self.down = torch.nn.Linear(gate, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, heads, POSITIONS, self.size))
        self.register_buffer("values", torch.zeros(1, heads, POSITIONS, self.size))

    def rotate(self, x, turns):
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        cos, sin = turns[:, None, :, 0], turns[:, None, :, 1]
        turned = torch.stack([pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin], -1)
        return turned.flatten(3).type_as(x)

    def forward(self, x, turns, mask, at):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).split([width] * 3, -1)
        q, k, v = (t.view(batch, length, self.heads, self.size) for t in (q, k, v))
        q, k = self.rotate(q, turns), self.rotate(k, turns)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        self.keys[:, :, at] = k
        self.values[:, :, at] = v
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(torch.nn.Module):
    def __init__(self, width, layers, heads, gate):
        super().__init__()
        self.table = torch.nn.Embedding(VOCABULARY, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads, gate) for _ in range(layers))
        self.norm, self.head = Norm(width), torch.nn.Linear(width, VOCABULARY, bias=False)
        size = width // heads
        angles = torch.outer(torch.arange(POSITIONS).float(), 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size))
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()], -1))
        self.register_buffer("causal", torch.tril(torch.ones(POSITIONS, POSITIONS, dtype=torch.bool)))

    def forward(self, tokens, at):
        mask, turns, x = self.causal[None, None, at], self.turns[at], self.table(tokens)
        for layer in self.layers:
            x = layer(x, turns, mask, at)
        return self.head(self.norm(x))


def sample(logits):
    logits = logits[:, -1].float() / 0.8
    least = torch.topk(logits, 200)[0][:, -1:]
    chances = torch.softmax(torch.where(logits < least, -math.inf, logits), -1)
    return torch.argmax(chances / torch.empty_like(chances).exponential_(1), -1, keepdim=True).to(torch.int)


def decode_one(model, token, at):
    return sample(model(token, at))


def run(name, compiler):
    shape, _, form = name.partition(" ")
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = Model(*SHAPES[shape]).eval().requires_grad_(False)
        torch.set_default_dtype(torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.02)
    if form == "int8":
        quantise(model)
    decode = compiler(decode_one)
    prompt = torch.randint(0, VOCABULARY, (1, PROMPT), device="cuda", dtype=torch.int)

    def generate(count):
        token = sample(model(prompt, torch.arange(PROMPT, device="cuda")))
        at = torch.tensor([PROMPT], device="cuda")
        tokens = []
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            token = decode(model, token, at).clone()
            tokens.append(token)
            at += 1
        torch.cuda.synchronize()
        return time.perf_counter() - start, tokens

    with torch.no_grad():
        first, _ = generate(1)
        torch.manual_seed(1)
        reference = generate_with(model, decode_one, prompt)
        torch.manual_seed(1)
        mine = generate_with(model, decode, prompt)
        generate(20)
        seconds = sorted(generate(TOKENS)[0] for _ in range(5))[2]
    return {"ms": seconds * 1000 / TOKENS, "tokens_per_s": TOKENS / seconds, "first_s": first,
            "same_tokens": sum(int(torch.equal(a, b)) for a, b in zip(reference, mine)) / len(mine)}


def generate_with(model, decode, prompt, count=16):
    """Tokens of `decode`, each from the state that plain decoding would have left."""
    token = sample(model(prompt, torch.arange(PROMPT, device="cuda")))
    at = torch.tensor([PROMPT], device="cuda")
    tokens = []
    for _ in range(count):
        token = decode(model, token, at).clone()
        tokens.append(token)
        at += 1
    return tokens
