"""Gradients of gradients: create_graph=True by formulas that have a derivative, and gradients of vmap."""
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from steps import Program, check_step, leaf

MATRIX = torch.eye(4) * 3 + torch.arange(16.).view(4, 4) / 20
FUNCTIONS = {
    # PyTorch has two formulas: one for a backward with grad mode
    "silu": F.silu, "mish": F.mish, "group norm": lambda x: F.group_norm(x[None], 2),
    "instance norm": lambda x: F.instance_norm(x[None]), "logit": lambda x: x.sigmoid().logit(),
    "solve": lambda x: torch.linalg.solve(MATRIX + x, torch.ones(4, 2)),
    "det": lambda x: torch.linalg.det(MATRIX + x), "slogdet": lambda x: torch.linalg.slogdet(MATRIX + x)[1],
    "inverse": lambda x: torch.linalg.inv(MATRIX + x),
    "cholesky": lambda x: torch.linalg.cholesky(MATRIX @ MATRIX.T + x @ x.T),
    # their backwards write in place
    "rfft": lambda x: torch.fft.rfft(x).abs(),
    "stft": lambda x: torch.stft(x.repeat(1, 4), 4, return_complex=True, window=torch.hann_window(4)).abs(),
    # formulas of ours stand in for them
    "max": lambda x: x.max(1).values, "median": lambda x: x.median(1).values, "prod": lambda x: x.prod(1),
    "prod of zeros": lambda x: (x * torch.tensor([0.0, 1, 1, 1])).prod(1),
    # parts without a history
    "detached": lambda x: (x * x.detach()).exp(), "views": lambda x: x[1:].t() * x.narrow(1, 0, 3),
    "in place": lambda x: x.clone().mul_(x).add_(1).sigmoid_(), "rms norm": lambda x: F.rms_norm(x, (4,)),
    "layer norm": lambda x: F.layer_norm(x, (4,)), "softmax": lambda x: x.softmax(-1),
    "cross-entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 3])),
}


def values():
    return (torch.arange(16.).view(4, 4) / 5 - 1).requires_grad_()


def second_order(run, args, k):
    x, = args
    slope, = torch.autograd.grad(run(x).pow(2).sum(), x, create_graph=True)
    slope.pow(2).sum().backward()
    return slope


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives(name):
    check_step(lambda: Program(FUNCTIONS[name], values(), step=second_order), backward=None, graphs=1)


def test_third_derivatives():
    def step(run, args, k):
        x, = args
        y = run(x).sum()
        for _ in range(3):
            y = torch.autograd.grad(y, x, create_graph=True)[0].sum()
        return y
    check_step(lambda: Program(lambda x: F.silu(x) * x.exp(), values(), step=step), backward=None, graphs=1)


def test_outputs_that_are_made_of_each_other():
    """Each output has its own node: what reaches the input through another output must not come twice."""
    def chain(x):
        a = x.sin()
        b = a * x
        return a, b, b.exp() + a

    def step(run, args, k):
        x, = args
        a, b, c = run(x)
        slope, = torch.autograd.grad(a.sum() * 2 + b.pow(2).sum() + c.sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        return slope
    check_step(lambda: Program(chain, values(), step=step), backward=None, graphs=1)


RETURNED = {
    "a copy": lambda x: (lambda y: (y, y.exp()))(x.clone()),
    "of one value, twice": lambda x: (x.sin(), (lambda y: (y, y.exp()))(x.sin())),
    "times one": lambda x: (lambda y: (y, -y))(x * 1),
    "a view of a value": lambda x: (lambda y: (y, y.exp()))((x * 1)[0]),
    "a view of a copy of another output": lambda x: (lambda y: (y, y[0], y[0].exp()))(x.sin()),
    "a view of what is written": lambda x: (lambda y: (lambda v: (y.add_(x), v, (v * v).sin()))(y.flatten()))(x.sin()),
    "written by a copy": lambda x: (lambda y: (y.copy_(x.sum(0, True) * x), y.sigmoid()))(x.sin()),
}


@pytest.mark.parametrize("name", RETURNED)
def test_outputs_that_others_are_made_of(name):
    """Ops that read an output read that output in the repeated forward too, not an equal value."""
    def outputs(x):
        return [t for part in RETURNED[name](x) for t in (part if isinstance(part, tuple) else (part,))]

    def step(run, args, k):
        x, = args
        weighted = sum((t * (i + 1)).sin().sum() for i, t in enumerate(run(x)))
        slope, = torch.autograd.grad(weighted, x, create_graph=True)
        slope.pow(2).sum().backward()
        return slope
    check_step(lambda: Program(outputs, values(), step=step), backward=None, graphs=1)


def test_a_gradient_penalty_through_batch_norm():
    """The running statistics, which the forward writes, are not needed."""
    def make():
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Linear(8, 1))

        def step(run, args, k):
            x, = args
            slope, = torch.autograd.grad(run(x).sum(), x, create_graph=True)
            (slope.norm(2, 1) - 1).pow(2).mean().backward()
            return slope
        return Program(model, values(), step=step)
    check_step(make, backward=None, graphs=1)


def test_a_gradient_penalty_through_spectral_norm():
    """Its vectors are written without grad mode; their old values are not needed."""
    def make():
        layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
        return Program(nn.Sequential(layer, nn.SiLU()), values(), step=second_order)
    check_step(make, backward=None, graphs=None)


def test_a_value_between_two_graphs():
    """The second graph's input is gone when its backward is differentiated; its memory is not."""
    def make():
        layer = nn.Linear(4, 4)

        def model(x):
            y = layer(x).tanh()
            print(end="")
            return (y + 1).pow(2)
        return Program(model, values(), step=second_order, watch=[layer])
    check_step(make, backward=None, breaks=1, graphs=None)


def residual(x, w):
    h = x + w
    return h + F.layer_norm(h, (4,)).sigmoid()


GONE = {
    "sine": lambda x, w: (x + w).sin(), "two of one": lambda x, w: (x + w).sin().cos(),
    "exponential": lambda x, w: (x * 0.5 - w).tanh().exp(), "silu": lambda x, w: F.silu(x + w),
    "gelu": lambda x, w: F.gelu(x + w), "tanh gelu": lambda x, w: F.gelu(x + w, approximate="tanh"),
    "power": lambda x, w: (x + w).pow(3), "a product": lambda x, w: (x + w) @ MATRIX,
    "layer norm": lambda x, w: F.layer_norm(x + w, (4,)), "softmax": lambda x, w: (x + w).softmax(-1) * w,
    "views": lambda x, w: (x + w).view(2, 8).t().exp().sin(),
    "relu": lambda x, w: (x + w).relu() * w, "residual": residual,
    "several outputs": lambda x, w: (lambda h: (h.sin(), h.cos() * w))(x + w),
    "expanded": lambda x, w: (x + w).sum(0, keepdim=True).expand(4, 4) * w,
    "a constant": lambda x, w: (x + w).sin() * torch.arange(4.0),
    "detached": lambda x, w: (lambda h: h.sin() * h.detach())(x + w),
    "dropout": lambda x, w: F.dropout(x + w, 0.5).sin(), "noise": lambda x, w: ((x + w) * torch.rand_like(x)).sin(),
}


@pytest.mark.parametrize("name", GONE)
def test_an_input_that_is_gone(name):
    """Eager's formulas hold what they read, and not the input. The forward runs again without it."""
    def step(run, args, k):
        x, = args
        y = run(x * 2, x.cos())
        weighted = sum((t * (i + 1)).square().sum() for i, t in enumerate(y if isinstance(y, tuple) else (y,)))
        slope, = torch.autograd.grad(weighted, x, create_graph=True)
        slope.pow(2).sum().backward()
        return slope
    check_step(lambda: Program(GONE[name], values(), step=step), backward=None, graphs=1)


def test_an_input_that_is_written_afterwards():
    """As eager's formulas do not read it, it may be written."""
    def step(run, args, k):
        x, = args
        shift = torch.ones(4, 4)
        y = run(x, shift)
        shift.zero_()
        slope, = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        return slope
    check_step(lambda: Program(lambda x, shift: (x + shift).sin(), values(), step=step), backward=None, graphs=1)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2))
        self.norm, self.second, self.last = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(x)
        print(end="")
        h = (h + self.last.weight).tanh()
        return self.last(h + self.second(self.norm(h)))


def test_a_gradient_penalty_of_wgan():
    """Over a critic with a break in it: the input of the second graph is gone."""
    def make():
        critic = Critic()

        def step(run, args, k):
            real, = args
            fake = real.detach().cos()
            between = torch.lerp(real.detach(), fake, 0.25).requires_grad_()
            slope, = torch.autograd.grad(run(between).sum(), between, create_graph=True)
            loss = run(fake).mean() - run(real).mean() + 10 * (slope.norm(2, 1) - 1).pow(2).mean()
            loss.backward()
            return loss
        return Program(critic, values(), step=step)
    check_step(make, backward=None, breaks=2, graphs=None)  # with an input that needs a gradient, and without


OVERWRITTEN = {"copy": lambda x, z: (x * 2).copy_(z).sin(), "zero": lambda x, z: (x * 2).zero_() + z.sin(),
               "fill": lambda x, z: (x * 2).fill_(3.0) * z.sin()}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_ops_that_are_overwritten(name):
    """Eager's formulas give zeros, not None."""
    def step(run, args, k):
        slopes = torch.autograd.grad(run(*args).square().sum(), args, create_graph=True)
        slopes[1].pow(2).sum().backward()
        return slopes
    check_step(lambda: Program(OVERWRITTEN[name], values(), values(), step=step), backward=None)


OVER_A_FORMULA = {
    "copy": lambda t, z: t.copy_(z), "a number of another dtype": lambda t, z: t.copy_(z.double().sum()),
    "copy to a view": lambda t, z: t.view(-1).copy_(z.view(-1)).view(4, 4), "item": lambda t, z: (
        t.__setitem__(..., z), t)[1],
    "zero": lambda t, z: t.zero_(), "fill": lambda t, z: t.fill_(z.sum()), "normal": lambda t, z: t.normal_(),
    "bernoulli": lambda t, z: t.bernoulli_(0.5), "uniform": lambda t, z: t.uniform_(),
}


@pytest.mark.parametrize("name", OVER_A_FORMULA)
def test_a_formula_of_what_is_overwritten(name):
    """The zeros have a history if the formula reads the tensor by which it is differentiated."""
    def step(run, args, k):
        results = run(*args)
        slopes = torch.autograd.grad([t.sum() for t in results], args, create_graph=True)
        seconds = torch.autograd.grad(sum(s.square().sum() for s in slopes), args, allow_unused=True)
        return *slopes, [s.requires_grad for s in slopes], *seconds

    def fn(x, z):
        t = OVER_A_FORMULA[name](x.log_softmax(-1) * 1, z)
        return t, t.sin(), z * z
    check_step(lambda: Program(fn, values(), values(), step=step), backward=None, graphs=1)


WRITTEN_VIEWS = {
    "all": lambda x, z: (x * 1).view(-1).mul_(2),
    "a view of it": lambda x, z: (x * 1).view(-1).mul_(z.view(-1)).view(2, 8),
    "a copy": lambda x, z: (x * 1).view(-1).copy_(z.view(-1)),
    "turned": lambda x, z: (x * 1).t().mul_(z)[1:],
}


@pytest.mark.parametrize("name", WRITTEN_VIEWS)
def test_a_written_view_that_another_output_is_made_of(name):
    """Its gradient goes to its base, and from there to the written tensor."""
    def step(run, args, k):
        slopes = torch.autograd.grad([t.sum() for t in run(*args)], args, create_graph=True)
        slopes[0].square().sum().backward()
        return slopes

    def fn(x, z):
        t = WRITTEN_VIEWS[name](x, z)
        return t, t.sin(), x * z.square()
    check_step(lambda: Program(fn, values(), values(), step=step), backward=None, graphs=1)


def test_dropout_is_drawn_once():
    check_step(lambda: Program(lambda x: F.dropout(F.silu(x), 0.5), values(), step=second_order), backward=None,
               graphs=1)


@pytest.mark.parametrize("fn", [lambda x: x.sin() * x.exp(), lambda x: F.silu(x) @ MATRIX,
                                lambda x: F.layer_norm(x, (4,))])
def test_gradients_of_vmap(fn):
    def step(run, args, k):
        x, = args
        y = run(x)
        each = torch.eye(16).view(16, 4, 4)
        return (torch.autograd.grad(y, x, each, is_grads_batched=True, retain_graph=True)[0],
                torch.autograd.functional.jacobian(run, x, vectorize=True))
    check_step(lambda: Program(fn, values(), step=step), backward=None, graphs=1)


def test_a_graph_that_is_not_retained():
    """It is freed for the gradients of gradients too, except for the values that their own formulas hold."""
    def step(run, args, k):
        x, = args
        slope, = torch.autograd.grad(run(x).sum(), x, create_graph=True, retain_graph=False)
        return slope, torch.autograd.grad(slope.sum(), x)
    for fn, raises in ((lambda x: x * x * x.exp(), True), (lambda x: x.square(), False)):
        if raises:
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                step(fn, (values(),), 0)
        check_step(lambda fn=fn: Program(fn, values(), step=step), backward=None, graphs=1)


def test_under_autocast():
    layer = nn.Linear(4, 4)
    check_step(lambda: Program(lambda x: F.silu(layer(x)), values(), step=second_order), autocast=True, backward=None,
               graphs=1)


def test_a_changed_output_is_refused():
    def step(run, args, k):
        x, = args
        y = run(x)
        y.add_(1)
        return torch.autograd.grad(y.sum(), x, create_graph=True)
    check_step(lambda: Program(torch.exp, values(), step=step), steps=1, backward=None, graphs=None)


def test_a_write_without_grad_mode():
    """A limit: the value that is written keeps its history, and an op of its own would not."""
    run, x = framejit.compile(lambda x: F.cosine_similarity(x, x * 2 + 1, dim=1)), values()
    with pytest.raises(RuntimeError, match="the memory of a value without a history is written"):
        torch.autograd.grad(run(x).sum(), x, create_graph=True)


def doubled_in_place(x, seen):
    x.mul_(2)
    return x * x


def written_and_viewed(x, seen):
    x.mul_(2)
    v = x.t()
    return v * v, v


def exponential(x, seen):
    return x.exp_().sin()


def advanced(x, seen):
    y = (x + seen).sin()
    seen.add_(1)
    return y


@pytest.mark.parametrize("fn", [doubled_in_place, written_and_viewed, exponential, advanced], ids=lambda f: f.__name__)
def test_the_old_value_of_an_input_that_the_forward_writes(fn):
    """A limit: nobody has it any more. The first error says so, and from then on plain Python runs."""
    def of(run):
        x = values()
        y = run(x * 1, torch.ones(4, 4))
        g, = torch.autograd.grad((y[0] if isinstance(y, tuple) else y).sum(), x, create_graph=True)
        return g, torch.autograd.grad(g.sum(), x)[0]
    run = framejit.compile(fn)
    with pytest.raises(RuntimeError, match="is needed as it was before the compiled forward wrote to it.* plain Python "
                       "runs in place of this compiled code where gradients are recorded"):
        of(run)
    torch.manual_seed(0)
    got = of(run)
    torch.manual_seed(0)
    assert all(torch.equal(g, w) for g, w in zip(got, of(fn), strict=True))
    assert framejit.stats()["fallback_reasons"] == {"no_backward": 1}


def test_an_old_value_that_only_another_output_needs():
    """The repeated forward computes the outputs that go backward, and no others."""
    def step(run, args, k):
        x, = args
        seen = torch.ones(4, 4)
        y, z = run(x, seen)
        slope, = torch.autograd.grad(y.sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        return slope, z, seen
    check_step(lambda: Program(lambda x, seen: (F.gelu(x), seen.mul_(x.cos()) * 2), values(), step=step), graphs=1,
               backward=None)


def test_numbers_of_a_generator_are_not_drawn_again():
    generator = torch.Generator().manual_seed(1)
    run, x = framejit.compile(lambda x: (x.pow(3) * torch.rand(4, 4, generator=generator)).sum()), values()
    y = run(x)
    state = generator.get_state()
    if framejit.stats()["graphs"]:
        with pytest.raises(RuntimeError, match="torch.Generator"):
            torch.autograd.grad(y, x, create_graph=True)
    assert torch.equal(generator.get_state(), state)


LOST = {
    "a part": lambda x, w: (x.t() + w)[1:].sin(),         # only its cosine is held
}


@pytest.mark.fallbacks(no_backward=1)
@pytest.mark.parametrize("name", LOST)
def test_the_error_of_a_missing_input_names_it(name):
    """A limit: eager holds the argument of the sine."""
    run = framejit.compile(LOST[name])
    w = leaf(3, 3)
    y = run(torch.ones(3, 3), w)
    with pytest.raises(RuntimeError, match=r"create_graph=True needs the input L\['x'\]"):
        torch.autograd.grad(y.sum(), w, create_graph=True)
    torch.autograd.grad(run(torch.ones(3, 3), w).sum(), w, create_graph=True)  # plain Python now


def counted(x, seen):
    seen.mul_(0.5).add_(x.detach())
    return (x * seen).sin()


def filled(x, seen):
    seen.zero_()
    seen[1:] = x.detach()[1:] * 2
    return (x * seen).sin()


def rectified(x, seen):
    return seen.relu_() * x.exp()


@pytest.mark.parametrize("fn", [counted, filled, rectified])
def test_an_input_that_the_forward_writes(fn):
    """The repeated forward reads what the first one wrote, and does not write it again."""
    def make():
        seen = torch.arange(16.).view(4, 4) / 4 - 1
        return Program(lambda x: fn(x, seen), values(), step=second_order, watch=[seen])
    check_step(make, backward=None, graphs=1)


def test_an_activation_that_the_forward_writes():
    def make():
        def step(run, args, k):
            x, = args
            slope, = torch.autograd.grad(run(x * 2).sum(), x, create_graph=True)
            slope.pow(2).sum().backward()
            return slope
        return Program(lambda y: y.relu_().pow(3), values(), step=step)
    check_step(make, backward=None, graphs=1)


def test_anomaly_mode_around_the_backward_alone():
    """The error names the formula that made the NaN, as eager's does."""
    def run_once(f):
        x = torch.zeros(3, requires_grad=True)
        loss = f(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values") as raised:
                loss.backward()
        return str(raised.value)

    def f(x):
        return (x.sqrt() * 0).sum()
    compiled = framejit.compile(f)
    for _ in range(3):
        assert run_once(compiled) == run_once(f) == "Function 'SqrtBackward0' returned nan values in its 0th output."
