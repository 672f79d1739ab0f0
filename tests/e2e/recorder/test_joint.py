"""The joint graph (forward and backward in one recording) against eager: outputs, gradients and written state, bit for
bit.

Every case is recorded while torch's autograd engine runs over traced tensors. The recording is replayed op by op, made
functional by our pass, and replayed again. Inputs are leaves (parameters) and non-leaves (results of earlier code);
buffers are plain inputs.
"""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from check import assert_flat
from recording import Recorder, clone_like, flat_tensors


def state_of(module):
    """Every parameter and buffer once: (owner's table, name, tensor)."""
    slots, seen = [], set()
    for m in module.modules():
        for table in (m._parameters, m._buffers):
            for name, tensor in table.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    slots.append((table, name, tensor))
    return slots


class Joint:
    """Records module(*inputs) and its backward. `inputs` that need a gradient are passed as non-leaves."""

    def __init__(self, module, inputs, dynamic=None):
        self.recorder = Recorder()
        dynamic = dynamic or [[] for _ in inputs]
        slots = state_of(module)
        traced = [self.recorder.joint_input(t * 1 if t.requires_grad else t, f"L['x{i}']", d) for i,
                  (t, d) in enumerate(zip(inputs, dynamic))]
        swapped = {id(t): self.recorder.joint_input(t, f"P['{name}']") for _, name, t in slots}
        places = [(m, table, name) for m in module.modules() for table in (m._parameters, m._buffers) for name,
                  t in table.items() if t is not None]
        originals = [table[name] for _, table, name in places]
        try:
            for (_, table, name), t in zip(places, originals):
                table[name] = swapped[id(t)]
            self.outputs = flat_tensors(self.recorder.joint_call(module, *traced))
        finally:
            for (_, table, name), t in zip(places, originals):
                table[name] = t
        self.forward_nodes, self.tangents, self.gradients = self.recorder.joint_build(self.outputs)


def eager(module, inputs, seed):
    """Outputs, tangents, gradients of every input and parameter (None if there is none), and the state afterwards."""
    torch.manual_seed(seed)
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_(t.requires_grad) for t in inputs]
    outputs = flat_tensors(module(*[t * 1 if t.requires_grad else t for t in leaves]))
    state = [t for _, _, t in state_of(module)]
    roots = [o for o in outputs if o.requires_grad]
    generator = torch.Generator().manual_seed(5)
    tangents = [torch.empty_like(o).copy_(torch.randn(o.shape, generator=generator)) for o in roots]
    wanted = [t for t in leaves + state if t.requires_grad]
    found = iter(torch.autograd.grad(roots, wanted, tangents, allow_unused=True) if roots and wanted else [])
    return outputs, tangents, [next(found) if t.requires_grad else None for t in leaves + state], state


def same_bits(got, want, where):
    assert got.shape == want.shape and got.dtype == want.dtype, (f"{where}: {got.dtype}{list(got.shape)} instead of "
                                                                 f"{want.dtype}{list(want.shape)}")
    assert torch.equal(got, want), f"{where}: differs by {(got.double() - want.double()).abs().max()}"


def check_replay(joint, module, inputs, seed, functional):
    form = "functional" if functional else "recorded"
    reference = copy.deepcopy(module)
    outputs, tangents, gradients, state = eager(reference, inputs, seed)
    ours = [clone_like(t.detach()) for t in inputs] + [t.detach().clone() for _, _, t in state_of(module)]
    torch.manual_seed(seed)
    got, wrong, broken = joint.recorder.run(ours + [clone_like(t) for t in tangents], functional=functional)
    assert not broken, broken
    assert functional or not wrong, wrong
    assert len(joint.tangents) == len(tangents)
    for i, (g, w) in enumerate(zip(got, outputs)):
        same_bits(g, w.detach(), f"{form}: output {i}")
    for i, (at, want) in enumerate(zip(joint.gradients, gradients)):
        assert (at >= 0) == (want is not None), f"{form}: gradient of input {i}"
        if want is not None:
            same_bits(got[at], want, f"{form}: gradient of input {i}")
    for i, (g, w) in enumerate(zip(ours[len(inputs):], state)):
        same_bits(g, w.detach(), f"{form}: state {i} afterwards")


def check_joint(module, *inputs, dynamic=None, others=(), seed=3):
    joint = Joint(copy.deepcopy(module), inputs, dynamic)
    assert any(at >= 0 for at in joint.gradients) and len(
        joint.recorder.ops()) > joint.forward_nodes, "there is no backward"
    check_replay(joint, module, inputs, seed, False)
    joint.recorder.run_passes(decompose=False)
    for args in (inputs, *others):
        check_replay(joint, module, args, seed, True)
    return joint


def rand(*shape, grad=True):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(grad)


class Fn(nn.Module):
    """A function as a module without state."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


class Attention(nn.Module):
    def __init__(self, width=32, heads=4, causal=False, plain=False):
        super().__init__()
        self.qkv, self.out, self.heads, self.causal, self.plain = nn.Linear(width, 3 * width), nn.Linear(width,
            width), heads, causal, plain

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(x).split(c, dim=2))
        if self.plain:
            scores = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
            scores += torch.full((t, t), float("-inf")).triu_(1)
            y = scores.softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


def views_in_place(x):
    y = x.clone()
    y[1:3, 0] = y[1:3, 1] * 2
    v = y.view(-1)[4:10]
    v.mul_(3).add_(x.view(-1)[:6])
    y.t()[0].mul_(2)
    a, b = y.t()[:3], y.t()[3:]
    a += b
    return y.sum(0), y * 2, v


MLP = lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4),
                            nn.Softmax(-1))
CASES = {
    "mlp": lambda: (MLP(), rand(5, 16)),
    "conv bn": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                                      nn.Flatten(), nn.Linear(196, 3)), rand(2, 3, 16, 16)),
    "conv bn eval": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                           nn.Flatten()).eval(), rand(2, 3, 16, 16)),
    "attention sdpa": lambda: (Attention(), rand(2, 7, 32)),
    "attention causal": lambda: (Attention(causal=True), rand(2, 7, 32)),
    "attention plain": lambda: (Attention(plain=True), rand(2, 7, 32)),
    "embedding": lambda: (nn.Sequential(nn.Embedding(50, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)),
                          torch.arange(27).view(3, 9) % 7),
    "encoder layer": lambda: (nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), rand(2, 7, 32)),
    "dropout": lambda: (nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.4), nn.Linear(16, 2)), rand(5, 16)),
    "group norm silu": lambda: (nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU()), rand(2, 8, 6, 6)),
    "views in place": lambda: (Fn(views_in_place), rand(4, 6)),
    "setitem": lambda: (Fn(lambda x: (y := x * 2, y.__setitem__((slice(None), 2), 0.0))[0]), rand(4, 6)),
    "in place on the input": lambda: (Fn(lambda x: x.mul_(2).sin_()), rand(4, 6)),
    "in place on views of the input": lambda: (Fn(lambda x: (x[1:].mul_(2), x.t()[0].exp_(), x * x)[2]), rand(4, 6)),
    "cross entropy": lambda: (Fn(lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2, 3, 1]))), rand(5, 16)),
    "unused input": lambda: (Fn(lambda x, y: x.sin()), rand(4), rand(3)),
    "input returned": lambda: (Fn(lambda x, y: (x, x + y)), rand(4), rand(4)),
    "one output twice": lambda: (Fn(lambda x: (lambda y: (y, y.view(-1), x.detach()))(x.exp())), rand(2, 3)),
    "part without gradient": lambda: (Fn(lambda x: (x.argmax(), x.cos())), rand(6)),
}


@pytest.mark.parametrize("name", CASES)
def test_joint(name):
    torch.manual_seed(0)
    module, *inputs = CASES[name]()
    check_joint(module, *inputs)


def test_views_are_replayed_by_their_ops():
    joint = check_joint(Fn(views_in_place), rand(4, 6))
    assert not any(op.startswith("as_strided") for op in joint.recorder.ops())


def test_one_joint_graph_for_many_batches():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    joint = check_joint(module, rand(5, 16), dynamic=[[True, False]], others=[(rand(2, 16),), (rand(64, 16),)])
    assert "s0" in joint.recorder.functional_text()


def test_a_captured_parameter_is_refused():
    weight = rand(4)
    recorder = Recorder()
    x = recorder.joint_input(rand(4), "L['x']")
    out = recorder.joint_call(lambda x: x * weight, x)
    with pytest.raises(RuntimeError, match="needs a gradient but is not an input"):
        recorder.joint_build([out])


class BackwardReadsData(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].sum().item()


def test_a_break_in_the_backward_is_reported():
    recorder = Recorder()
    x = recorder.joint_input(rand(4), "L['x']")
    out = recorder.joint_call(BackwardReadsData.apply, x)
    before = recorder.ops()
    with pytest.raises(RuntimeError, match="break data_dependent_value"):
        recorder.joint_build([out])
    assert recorder.ops() == before, "nodes of the failed backward are dropped"


def test_leaves_stay_leaves():
    recorder = Recorder()
    leaf, other = recorder.joint_input(rand(4), "L['x']"), recorder.joint_input(rand(4) * 1, "L['y']")
    assert leaf.is_leaf and not other.is_leaf and other.requires_grad
    with pytest.raises(RuntimeError, match="leaf Variable"):
        recorder.joint_call(lambda x: x.mul_(2), leaf)
    recorder.joint_call(lambda x: x.mul_(2), other)


def test_recordings_are_freed():
    module = MLP()
    def record(count):
        for _ in range(count):
            Joint(module, [rand(5, 16)])
    record(20)
    assert_flat(lambda: record(100), 4000)
