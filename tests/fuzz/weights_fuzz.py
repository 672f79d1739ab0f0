"""Random modules whose weights are written between calls, in every possible way: derived values are never stale.

    python tests/fuzz/weights_fuzz.py [--seed 0] [--count 100] [--trusted]

A program is a module of random layers (linear, convolutions with norms, products with scaled, transposed, shared or
joined weights, weights that are part of a larger tensor), compiled as a module, as a function of several instances, or
under autocast. Between its calls weights are written: by torch, without torch's knowledge, through other views, from
other threads, by new objects. --trusted: options={"freezing": True}, which must fail, because of writes without a new
version.
"""
import copy
import random
import sys
import threading
from pathlib import Path

import torch
import torch.nn.functional as F

import framejit
from framejit import _framejit

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
import command  # noqa: E402
import rounds  # noqa: E402
from check import exactly_as, same  # noqa: E402

WIDTHS = [16, 24, 64, 96, 128]
CALLS = 5  # with FRAMEJIT_DERIVE_AFTER of 3 the values are there
COSTS = "packed_rows=1, packed_work=1, derived_bytes=1, conversion=0"  # small layers are derived too


class Scaled(torch.nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(wide, out) / wide ** 0.5)
        self.scale = torch.nn.Parameter(torch.rand(out) + 0.5)

    def forward(self, x):
        return x @ (self.weight * self.scale)


class LowRank(torch.nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.base = torch.nn.Linear(wide, out, bias=False)
        self.down, self.up = (torch.nn.Parameter(torch.randn(size) / 4) for size in ((4, wide), (out, 4)))

    def forward(self, x):
        return F.linear(x, self.base.weight + self.up @ self.down)


class Branches(torch.nn.Module):
    """Layers with the same input, which may be joined."""

    def __init__(self, wide, out):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(wide, out, bias=bias) for bias in (True, True, False))

    def forward(self, x):
        return self.q(x) * torch.sigmoid(self.k(x)) + self.v(x)


class Tied(torch.nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.there = torch.nn.Linear(wide, out)
        self.back = torch.nn.Linear(out, wide)
        self.back.weight = torch.nn.Parameter(self.there.weight.data.t())  # one memory, two parameters

    def forward(self, x):
        return self.there(self.back(self.there(x)))


class Part(torch.nn.Module):
    """Its weight is a part of a larger tensor, next to memory that others write."""

    def __init__(self, wide, out):
        super().__init__()
        self.whole = torch.randn(wide * out + 5000) / wide ** 0.5
        self.weight = torch.nn.Parameter(self.whole[2500:2500 + wide * out].view(out, wide))

    def forward(self, x):
        return F.linear(x, self.weight).relu()


class Image(torch.nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.conv = torch.nn.Conv2d(wide, out, 3, padding=1, bias=random.random() < 0.5)
        self.norm = torch.nn.BatchNorm2d(out)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        image = x[:, :, None, None].expand(-1, -1, 3, 3)
        y = self.norm(self.conv(image))
        return (y + y.flip(2)).mean((2, 3))


LAYERS = [torch.nn.Linear, Scaled, LowRank, Branches, Tied, Part, Image]


class Model(torch.nn.Module):
    def __init__(self, rng, widths):
        super().__init__()
        self.layers = torch.nn.ModuleList(rng.choice(LAYERS)(a, b) for a, b in zip(widths, widths[1:]))
        self.norm = torch.nn.LayerNorm(widths[-1])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return self.norm(x) * 2


def weight(m, rng):
    return rng.choice([p for p in m.parameters()])


def by_numpy(m, rng):
    p = weight(m, rng)
    p.detach().numpy().reshape(-1)[rng.randrange(p.numel())] += 30


def one_element(m, rng):
    data = weight(m, rng).data
    data[tuple(rng.randrange(size) for size in data.shape)] += 30


def in_a_thread(m, rng):
    p = weight(m, rng)
    thread = threading.Thread(target=lambda: p.data.mul_(-1.5))
    thread.start()
    thread.join()


def new_parameter(m, rng):
    owner, name, p = rng.choice([(o, n, p) for o in m.modules() for n, p in o._parameters.items() if p is not None])
    setattr(owner, name, torch.nn.Parameter(torch.randn_like(p)))


def new_layer(m, rng):
    at = rng.randrange(len(m.layers))
    m.layers[at] = copy.deepcopy(m.layers[at])
    weight(m.layers[at], rng).data.mul_(-1)


def whole_tensor(m, rng):
    for layer in m.layers:
        if isinstance(layer, Part):
            layer.whole.numpy()[2600] += 30  # without the parameter's knowledge
            layer.whole.numpy()[:100] = 0    # beside it


def assigned_state(m, rng):
    m.load_state_dict({name: torch.randn_like(v) if v.is_floating_point() else v
                       for name, v in m.state_dict().items() if not name.endswith("running_var")}, strict=False,
                      assign=rng.random() < 0.5)


def system_call(m, rng):
    array = weight(m, rng).detach().numpy()
    with open("/dev/zero", "rb", buffering=0) as zeros:
        if array.flags["C_CONTIGUOUS"]:
            zeros.readinto(memoryview(array).cast("B")[:64])


WRITES = {
    "in place": lambda m, rng: weight(m, rng).mul_(-2),
    ".data": lambda m, rng: weight(m, rng).data.mul_(-2),
    "one element of .data": one_element,
    ".data assigned": lambda m, rng: (lambda p: setattr(p, "data", torch.randn_like(p)))(weight(m, rng)),
    "numpy": by_numpy,
    "a thread": in_a_thread,
    "a new parameter": new_parameter,
    "a new layer": new_layer,
    "the whole tensor": whole_tensor,
    "a state": assigned_state,
    "a system call": system_call,
    "statistics": lambda m, rng: [b.mul_(1.5) for n, b in m.named_buffers() if "running" in n],
    "training": lambda m, rng: (m.train(), m(torch.randn(5, m.width) + 3), m.eval()),
    "dtype and back": lambda m, rng: (m.bfloat16(), m.float()),
    "nothing": lambda m, rng: None,
}


class Program:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        random.seed(seed)
        torch.manual_seed(seed)
        rng = self.rng
        widths = [rng.choice(WIDTHS) for _ in range(rng.randint(2, 4))]
        made = Model(rng, widths).eval()
        self.models = [made] if rng.random() < 0.6 else [made, copy.deepcopy(made)]
        if len(self.models) == 2:
            assigned_state(self.models[1], rng)
        for m in self.models:
            m.width = widths[0]
        self.as_function = len(self.models) == 2 and rng.random() < 0.5
        self.dtype = torch.bfloat16 if rng.random() < 0.25 else None
        self.x = torch.randn(rng.choice([1, 4, 16]), widths[0])

    def text(self):
        return (f"{self.models[0]}\n{len(self.models)} instances, autocast {self.dtype}, "
                f"{'a function' if self.as_function else 'modules'}, {self.x.shape[0]} rows")

    def compiled(self, options):
        if self.as_function:
            forward = framejit.compile(Model.forward, options=options)
            return [lambda x, m=m: forward(m, x) for m in self.models]
        return [framejit.compile(m, options=options) for m in self.models]


def as_exact(got, want, model, x):
    """Whether roundings explain the difference. With an old weight, only the result that uses it is off."""
    try:
        same(got, want, exactly_as(lambda: model(x)), luck="norms")
    except AssertionError:
        return False
    return True


def check(seed, trusted, rounds=12):
    """(what is wrong with the program of this seed, or None; how many values were derived)."""
    framejit.reset()
    program, written = Program(seed), []
    rng, calls = program.rng, program.compiled({"freezing": True} if trusted else {})

    def call(fn):  # in its own context: eager's autocast keeps the casts of a context even if weights are written
        with torch.autocast("cpu", torch.bfloat16, enabled=program.dtype is not None):
            return fn(program.x)
    with torch.no_grad():
        for _ in range(rounds):
            for _ in range(rng.randint(1, CALLS)):
                which = rng.randrange(len(calls))
                model = program.models[which]
                got, want = call(calls[which]), call(model)
                if not call(lambda x: as_exact(got, want, model, x)):
                    return (f"{program.text()}\nafter {written}: off by "
                            f"{float((got - want).norm() / want.norm()):.3g}"), 0
            name, m = rng.choice(list(WRITES)), rng.choice(program.models)
            WRITES[name](m, rng)
            for p in m.parameters():
                if p.abs().max() > 40:
                    p.data.clamp_(-3, 3)
            written.append(name)
    stats = framejit.stats()
    if stats["fallbacks"]:
        return f"{program.text()}\n{stats['fallback_reasons']}", 0
    return None, stats["derived_made"]


def run(seed, count, trusted=False):
    _framejit.replace_costs(COSTS)
    try:
        return rounds.run(seed, count, lambda seed: check(seed, trusted), "values derived")
    finally:
        _framejit.replace_costs("")


def main():
    parser = command.parser(count=100)
    parser.add_argument("--trusted", action="store_true")
    options = parser.parse_args()
    return 1 if run(options.seed, options.count, options.trusted)[0] else 0


if __name__ == "__main__":
    sys.exit(main())
