"""Writes shape_rules.txt: ATen ops as torch executed them, as graph text with the metas of the real results.

    python tests/golden/graph/record_shape_cases.py > tests/golden/graph/shape_rules.txt

Each program below runs under a dispatch mode that sees the ops below autograd. The golden runner then lets the shape
rules infer every type again: they must agree with the kernels.
"""
import sys
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

# Each tensor occurs once in the text, so programs must not change the sizes of a tensor in place.
DTYPES = {torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
          torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}


def contiguous(sizes):
    strides, running = [], 1
    for s in reversed(sizes):
        strides.insert(0, running)
        running *= max(s, 1)
    return strides


def type_of(t):
    text = f"{DTYPES[t.dtype]}[{', '.join(map(str, t.size()))}"
    if list(t.stride()) != contiguous(t.size()) or t.storage_offset():
        text += f"; {', '.join(map(str, t.stride()))}"
    if t.storage_offset():
        text += f"; {t.storage_offset()}"
    return text + "]"


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.lines, self.names, self.inputs, self.keep, self.ops = [], {}, [], [], []

    def name(self, t):
        if id(t) not in self.names:
            self.names[id(t)] = f"x{len(self.inputs)}"
            self.inputs.append(f"%x{len(self.inputs)} : {type_of(t)}")
            self.keep.append(t)
        return "%" + self.names[id(t)]

    def text(self, a, type_name):
        if a is None:
            return "none"
        if isinstance(a, torch.Tensor):
            return self.name(a)
        if isinstance(a, bool):
            return "true" if a else "false"
        if isinstance(a, int):
            return repr(float(a)) if type_name == "float" else str(a)
        if isinstance(a, float):
            return repr(a)
        if isinstance(a, torch.dtype):
            return "@" + DTYPES[a]
        if isinstance(a, torch.memory_format):
            return f"@m{MEMORY_FORMATS[a]}"
        if isinstance(a, torch.layout):
            return "@l0"
        if isinstance(a, torch.device):
            return f"@{a.type}"
        if isinstance(a, str):
            return '"' + a + '"'
        if isinstance(a, (list, tuple)):
            return "[" + ", ".join(self.text(x, type_name) for x in a) + "]"
        raise NotImplementedError(type(a))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        schema = func._schema
        values = []
        for i, a in enumerate(schema.arguments):
            v = args[i] if i < len(args) else kwargs.get(a.name, a.default_value if a.has_default_value() else None)
            values.append(self.text(v, str(a.type)))
        name = schema.name.removeprefix("aten::") + (f".{schema.overload_name}" if schema.overload_name else "")
        groups, types_text = [], []
        results = result if isinstance(result, tuple) else (result,)

        def define(t):
            if id(t) not in self.names:
                self.names[id(t)] = str(sum(n.isdigit() for n in self.names.values()))
                self.keep.append(t)
            storage = f" &%{self.names[base]}" if (base := self.base_of(t)) else ""
            types_text.append(type_of(t) + storage)
            return "%" + self.names[id(t)]

        for r in results:
            groups.append("[" + ", ".join(define(t) for t in r) + "]" if isinstance(r, list) else define(r))
        self.lines.append(f"  {', '.join(groups)} = {name} {', '.join(values)} : {', '.join(types_text)}")
        self.ops.append(name)
        return result

    def base_of(self, t):
        for other in self.keep:
            if other is t:
                return None
            if other.untyped_storage()._cdata == t.untyped_storage()._cdata and t.numel():
                return id(other)
        return None


def record(name, fn, *args):
    mode = Recorder()
    for a in args:
        if isinstance(a, torch.Tensor):
            mode.name(a)
    with torch.no_grad():
        if isinstance(fn, list):  # ops that the dispatcher would split before the mode sees them
            for op, *values in fn:
                mode.__torch_dispatch__(op, (), [args[v.i] if isinstance(v, Input) else v for v in values])
        else:
            with mode:
                fn(*args)
    last = mode.lines[-1].split(" = ")[0].strip().strip("[]").split(",")[0]
    return f"=== {name}\nrun: infer\n--- in\ngraph @f({', '.join(mode.inputs)}) {{\n" + "\n".join(
        mode.lines) + f"\n  return {last}\n}}\n", mode.ops


class Input:
    def __init__(self, i):
        self.i = i


aten = torch.ops.aten
torch.manual_seed(0)
R = torch.randn
CL = R(2, 8, 6, 6).to(memory_format=torch.channels_last)
T = R(5, 3).t()
IDX = torch.randint(0, 3, (4,))
CASES = {
    "unary": (lambda x: [f(x) for f in (torch.relu, torch.exp, torch.neg, F.gelu, F.silu, torch.tanh, torch.rsqrt,
                                        torch.isnan, torch.logical_not, torch.sign)], R(3, 5)),
    "unary_transposed": (lambda x: [f(x) for f in (torch.relu, torch.exp)], T),
    "unary_integers": (lambda x: [f(x) for f in (torch.exp, torch.neg, torch.bitwise_not, torch.sigmoid, torch.abs)],
                       torch.arange(6).view(2, 3)),
    "unary_strided": (lambda x: [torch.exp(x[:, ::2]), torch.exp(x.expand(4, 3, 6)), torch.exp(x[1:].t())], R(3, 6)),
    "unary_permuted": (lambda x: [torch.exp(x.permute(2, 0, 1)), torch.exp(x.permute(1, 0, 2)[:, :, 1:3])], R(3, 4, 5)),
    "binary": (lambda x, y: [x + y, x * y, x - y, x / y, torch.maximum(x, y), x == y, x < y, torch.pow(x, y),
                             torch.atan2(x, y)], R(3, 5), R(3, 5)),
    "binary_broadcast": (lambda x, y: [x + y, y + x, x.t() * y[:, None].expand(5, 3), x.unsqueeze(1) + y], R(3, 5),
                         R(5)),
    "binary_layouts": (lambda x, y: [x + y, y + x, x + y.t().contiguous().t(), x.t() + y.t()], R(5, 3).t(), R(3, 5)),
    "binary_numbers": (lambda x, i: [x + 1, x * 2.5, i + 1, i * 2.5, i / 2, x ** 2, i ** 2, 1 - x, x > 0, i == 3,
                                     i // 2, i % 2, x.t() + 1], R(3, 5), torch.arange(6)),
    "promotion": (lambda x, h, i, b, z: [x + h, i + x, b + i, h + i, z + h, z + i, b + 1, b + 1.0, i + z, x.double()
                                         + z, i.to(torch.uint8) + i.to(torch.int8)],
                  R(3), R(3).bfloat16(), torch.arange(3), torch.tensor([True, False, True]), torch.tensor(2.0)),
    "size_one": (lambda x, y: [x + y, x.t() + y.t(), x + x.t(), torch.exp(x.t()), x.t() + 1, x.expand(1, 5)
                               + y.t()[:, :1]], R(1, 5), R(3, 1)),
    "channels_last": (lambda x, y: [x + y, x * 2, torch.relu(x), x + y.contiguous(), x + R(8, 1, 1), x.clone(),
                                    x.contiguous()], CL, CL.clone()),
    "where": (lambda c, x, y: [torch.where(c, x, y), torch.where(c, x, 0.0), x.masked_fill(c, 1.0),
                               torch.where(c.t(), x.t(), y[:, None])], R(3, 5) > 0, R(3, 5), R(5)),
    "masked_fill_expands": (lambda x, m: [x.masked_fill(m, -100.0), x.t().masked_fill(m.t(), 0.0)], R(3, 1),
                            R(3, 5) > 0),
    "clamp": (lambda x, i: [x.clamp(0, 1), x.clamp(min=0), i.clamp(0.5), i.clamp(1, 2), x.t().clamp_min(0.0)], R(3, 5),
              torch.arange(4)),
    "addcmul": (lambda x, y: [torch.addcmul(x, x, y), torch.addcdiv(x, y, x), torch.lerp(x, y, 0.3)], R(3, 5), R(5)),
    "in_place": (lambda x: [x.clone().add_(1), x.clone().mul_(x), x.clone().masked_fill_(x > 0, 0.0),
                            x.clone().copy_(x[0]), x.clone().fill_(2), x.clone().zero_()], R(3, 5)),
    "casts": (lambda x: [x.to(torch.bfloat16), x.double(), x.t().to(torch.int32), x[:, ::2].half(),
                         x.expand(4, 3, 5).double(), x.bool()], R(3, 5)),
    "casts_channels_last": (lambda x: [x.half(), x[:, :4].half(), x[:, :, ::2].double()], CL),
    "clones": (lambda x: [x.t().clone(), x.t().contiguous(), x[:, ::2].clone(), x.expand(4, 3, 5).clone(),
                          x.expand(4, 3, 5).transpose(0, 2).clone()], R(3, 5)),
    "sum": (lambda x, i: [x.sum(), x.sum(1), x.sum((0, 2), True), i.sum(0), i.sum(), (i > 1).sum(0),
                          x.sum(1, dtype=torch.float64), x.transpose(0, 2).sum(1)], R(3, 4, 5),
            torch.arange(6).view(2, 3)),
    "reductions": (lambda x: [x.mean(-1, True), x.mean(), x.amax(1), x.amin((0, 1)), x.max(1), x.min(1, True),
                              x.argmax(1), x.argmax(), x.argmin(0, True), (x > 0).any(1), (x > 0).all(), x.var(1),
                              x.std(-1, keepdim=True), torch.var_mean(x, 1), x.logsumexp(1), x.max(), x.prod(1),
                              torch.linalg.vector_norm(x, dim=1)], R(3, 4, 5)),
    "scans": (lambda x, i: [x.cumsum(1), i.cumsum(0), (i > 1).cumsum(0), x.t().cumsum(0), x.cumprod(0), x.cummax(0)],
              R(3, 5), torch.arange(4)),
    "sort": (lambda x: [x.sort(1), x.t().sort(0), torch.sort(x[:, ::2], dim=-1, stable=True), x.topk(2),
                        x.t().topk(2, 0), x.argsort(1)], R(3, 5)),
    "matmul": (lambda x, y, z: [x @ y, x.t() @ x, torch.addmm(x[0, :3], x, y), F.linear(z, x), z @ y,
                                torch.bmm(z, z.transpose(1, 2)), torch.baddbmm(z[:, :, :2], z, z.transpose(1, 2)),
        x @ x[0]], R(3, 5), R(5, 3), R(2, 2, 5)),
    "softmax": (lambda x: [x.softmax(-1), x.t().log_softmax(0), x.half().softmax(-1, dtype=torch.float32),
                           x.permute(1, 0).softmax(1)], R(3, 5)),
    "layer_norm": (lambda x, w: [F.layer_norm(x, (5,), w, w), F.layer_norm(x.transpose(0, 1), (5,)),
                                 F.layer_norm(x.bfloat16(), (5,), w, w), F.layer_norm(x.bfloat16(), (5,), w.bfloat16()),
        F.layer_norm(x, (4, 5))], R(3, 4, 5), R(5)),
    "group_norm": (lambda x, w: [F.group_norm(x, 4, w, w), F.group_norm(x.contiguous(), 2),
                                 F.group_norm(x.bfloat16(), 4, w, w)], CL, R(8)),
    "batch_norm_eval": (lambda x, w, v: [F.batch_norm(x, w, v, w, w), F.batch_norm(x.contiguous(), w, v),
                                         F.batch_norm(x.bfloat16(), w, v, w, w), F.batch_norm(x[:, :, 0, 0], w, v)], CL,
        R(8), R(8).abs()),
    "batch_norm_train": (lambda x, w, v: [F.batch_norm(x, w, v, w, w, True), F.batch_norm(x, None, None, w, w, True)],
                         R(2, 8, 6, 6), R(8), R(8).abs()),
    "convolution": (lambda x, w, b: [F.conv2d(x, w, b), F.conv2d(x, w, b, 2, 1), F.conv2d(x, w, None, 1, 2, 2),
                                     F.conv_transpose2d(x, w.transpose(0, 1), b, 2, 1, 1),
        F.conv2d(x, w[:, :2], None, 1, 1, 1, 4)], R(2, 8, 9, 9), R(8, 8, 3, 3), R(8)),
    "convolution_formats": (lambda x, w: [F.conv2d(x, w),
                                          F.conv2d(x.contiguous(), w.to(memory_format=torch.channels_last)),
                                          F.conv2d(x, R(8, 1, 3, 3), groups=8),
        F.conv2d(x.double(), w.double()), F.conv2d(x.bfloat16(), w.bfloat16())], CL, R(4, 8, 3, 3)),
    "convolution_1d": (lambda x, w: [F.conv1d(x, w, None, 1, 1), F.conv1d(x, w, None, 2),
                                     F.conv1d(x.transpose(1, 2).contiguous().transpose(1, 2), w),
        F.conv1d(x, w.transpose(1, 2).contiguous().transpose(1, 2))], R(2, 8, 12), R(4, 8, 3)),
    "pooling": (lambda x: [F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True),
                           F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, True),
        F.adaptive_avg_pool2d(x, 3), F.adaptive_avg_pool2d(x, 1)], R(2, 8, 7, 7)),
    "pooling_channels_last": (lambda x: [F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 3),
                                         F.max_pool2d(x[0], 2)], CL),
    "resampling": (lambda x: [F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 7), mode="bilinear"),
                              F.interpolate(x, (5, 7), mode="bicubic"), F.interpolate(x.contiguous(), (3, 3))], CL),
    "embedding": (lambda w, i: [F.embedding(i, w), F.embedding(i.view(2, 2), w)], R(3, 5), IDX),
    "indexing": (lambda x, i: [x[i], x[:, i], x[i, i], x[:, i, i], x[i, :, i], x[i[:, None], i], x.index_select(1, i),
                               x.gather(0, torch.zeros(2, 4, 5, dtype=torch.long))], R(3, 4, 5), IDX),
    "indexing_layouts": (lambda x, i: [x[i], x[:, i], x[:, :, i], x[i, :, i]], R(5, 4, 3).permute(2, 1, 0), IDX),
    "joining": (lambda x, y: [torch.cat([x, y]), torch.cat([x, y], 1), torch.cat([x, y.double()], -1),
                              torch.stack([x, y]), torch.stack([x.t(), y.t()], 2), torch.cat([x.t(), y.t()])],
        R(3, 5), R(3, 5)),
    "joining_channels_last": (lambda x: [torch.cat([x, x], 1), torch.cat([x, x.contiguous()], 1), torch.stack([x, x]),
                                         torch.stack([x, x], 1), torch.stack([x, x], 3), torch.stack([x, x], 4)], CL),
    "padding": (lambda x: [F.pad(x, (1, 2)), F.pad(x, (1, 1, 2, 0), value=1.0), F.pad(x, (0, 0, 1, 1, 1, 1))], CL),
    "repeating": (lambda x: [x.repeat(2, 1), x.repeat(2, 3, 1), x.tril(), x.t().triu(1), x.flip(0), x.t().flip(0),
                             x.roll(1, 0)], R(3, 5)),
    "scatter": (lambda x, i: [x.index_add(0, i, R(4, 5)), x.t().scatter(0, torch.zeros(1, 3, dtype=torch.long), 1.0),
                              x.index_put((i,), R(4, 5)), torch.select_scatter(x, R(5), 0, 1),
        torch.slice_scatter(x, R(1, 5), 0, 1, 2)], R(3, 5), IDX),
    "views": (lambda x: [x.view(-1), x.view(3, 2, 10), x.view(12, -1), x.transpose(1, 2), x.permute(2, 0, 1),
                         x.unsqueeze(1), x.unsqueeze(-1), x.squeeze(), x.expand(2, 3, 4, 5),
        x.expand(-1, 4, 5), x.reshape(6, 10)], R(3, 4, 5)),
    "views_of_views": (lambda x: [x.transpose(0, 1).unsqueeze(0), x.transpose(0, 1).reshape(12, 5), x[1:].view(8, 5),
                                  x[:, 1:3].flatten(1), x.transpose(1, 2).unsqueeze(2),
        x[:, None].expand(3, 2, 4, 5), x.mT], R(3, 4, 5)),
    "slicing": (lambda x: [x[1:], x[:, -2:], x[..., ::2], x[0], x[-1, 1], x[1:100], x[5:], x[:, 1:-1, 2:3],
                           x.narrow(1, 1, 2), x.select(2, -1)], R(3, 4, 5)),
    "squeezing": (lambda x: [x.squeeze(), x.squeeze(0), x.squeeze(1), x.squeeze((0, 2)),
                             x.expand(4, 3, 1, 5).squeeze(2)], R(1, 3, 1, 5)),
    "splitting": (lambda x: [x.split(2, 1), x.split([1, 3], 1), x.chunk(3, -1), x.unbind(0), x.unbind(-1)], R(3, 4, 5)),
    "diagonal": (lambda x: [x.diagonal(), x.diagonal(1), x.diagonal(-1, 0, 1), x.unfold(1, 2, 1),
                            x.as_strided((2, 2), (1, 2), 1)], R(4, 5)),
    "factories": (lambda x: [torch.zeros(2, 3), torch.ones(2, dtype=torch.int32), torch.full((2,), 1),
                             torch.full((2,), 1.5), torch.full((2,), True), torch.arange(5), torch.arange(1, 5),
        torch.arange(0, 5, 2), torch.arange(0, 1, 0.3), torch.arange(5.0), torch.arange(5, dtype=torch.float32),
                             torch.arange(5, 0, -2), x.new_zeros(3), x.new_full((2,), 1),
        x.new_ones(2, dtype=torch.bool), torch.eye(3), torch.eye(2, 3), torch.empty(2, 3)], R(2)),
    "likes": (lambda x: [torch.zeros_like(x), torch.empty_like(x[:, ::2]), torch.ones_like(x, dtype=torch.int64),
                         torch.full_like(x, 2.0), torch.zeros_like(x.expand(2, 3, 5)), torch.rand_like(x)], T),
    "likes_channels_last": (lambda x: [torch.zeros_like(x), torch.empty_like(x[:, :4]),
                                       torch.zeros_like(x, memory_format=torch.contiguous_format)], CL),
    "random": (lambda x: [torch.rand(3), torch.randn(2, 3), torch.randint(0, 5, (3,)), torch.bernoulli(x),
                          F.dropout(x, 0.5, True)], R(3, 5).abs().clamp(0, 1)),
    "attention": (lambda q: [F.scaled_dot_product_attention(q, q, q),
                             F.scaled_dot_product_attention(*[q.transpose(1, 2).contiguous().transpose(1, 2)] * 3),
        F.scaled_dot_product_attention(q, q, q, is_causal=True)], R(2, 4, 6, 16)),
    "attention_cross": (lambda q, k: [F.scaled_dot_product_attention(q, k, k),
                                      F.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), k.bfloat16())],
                        R(2, 6, 4, 16).transpose(1, 2),
        R(2, 4, 7, 16)),
    "losses": (lambda x, t: [F.nll_loss(x, t), F.cross_entropy(x, t), F.nll_loss(x, t, reduction="none")], R(4, 3),
               IDX),
    "empty": (lambda x: [x + 1, x.sum(), x.sum(1), x.t() + x.t(), x.view(-1), x.view(0, 7), torch.cat([x, x]), x.exp(),
                         x.unsqueeze(0)], R(0, 3)),
    "scalars": (lambda z, x: [z + 1, z.exp(), z + x, z.sum(), z.view(1), z.expand(3), z.unsqueeze(0), z.clone(), x * z,
                              z.to(torch.int32)], torch.tensor(2.0), R(3)),
    "composite": ([(aten.__and__.Tensor, Input(0), Input(1)), (aten.__and__.Scalar, Input(0), 2),
                   (aten.__or__.Tensor, Input(0), Input(2)), (aten.__or__.Scalar, Input(2), True),
        (aten.__xor__.Tensor, Input(0), Input(1)), (aten.__xor__.Scalar, Input(1), 3)], torch.arange(6).view(2, 3),
                  torch.arange(6).view(3, 2).t(), torch.tensor([True, False, True])),
    "composite_fractions": ([(aten.isfinite.default, Input(0)), (aten.relu6.default, Input(0)),
                             (aten.reshape.default, Input(1), [4, -1]),
        (aten.reshape.default, Input(0), [15])], T, R(2, 6)),
}
if __name__ == "__main__":
    print("# Recorded from executed torch ops by record_shape_cases.py: the shape rules must infer the same types.\n")
    seen = set()
    for case, (fn, *args) in CASES.items():
        try:
            text, ops = record(case, fn, *args)
        except Exception as error:
            print(f"{case}: {error!r}", file=sys.stderr)
            continue
        seen |= set(ops)
        print(text)
    print(f"{len(seen)} ops", file=sys.stderr)
