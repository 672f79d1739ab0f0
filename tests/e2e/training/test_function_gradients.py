"""torch.autograd.Function with gradients: forward and backward are traced."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import framejit
from steps import Program, check_step, leaf


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * (s * (1 + x * (1 - s)))


class Mish(Function):
    """In the other style, and its backward runs once."""
    @staticmethod
    def forward(x):
        return x * F.softplus(x).tanh()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, = ctx.saved_tensors
        t = F.softplus(x).tanh()
        return g * (t + x * x.sigmoid() * (1 - t * t))


class Round(Function):
    """A straight-through estimator, whose gradient is clipped: no linear function of it."""
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.low, ctx.high = low, high
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(ctx.low, ctx.high), None, None


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.scale, None


class ReverseSame(Function):
    """Returns the input itself."""
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, g):
        return -ctx.scale * g, None


class Normed(Function):
    """A root-mean-square norm: an input, a parameter, an intermediate and the output are saved."""
    @staticmethod
    def forward(ctx, x, weight, eps=1e-6):
        inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        y = x * inverse
        ctx.save_for_backward(x, weight, inverse, y)
        ctx.width = x.shape[-1]
        return y * weight

    @staticmethod
    def backward(ctx, g):
        x, weight, inverse, y = ctx.saved_tensors
        of_weight = (g * y).sum(tuple(range(g.dim() - 1)))
        scaled = g * weight
        of_x = inverse * (scaled - y * (scaled * y).sum(-1, keepdim=True) / ctx.width)
        return of_x, of_weight, None


class Linear(Function):
    """A branch for each input that needs a gradient, and a None for the others."""
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = g.mm(weight)
        if ctx.needs_input_grad[1]:
            of_weight = g.t().mm(x)
        if ctx.needs_input_grad[2]:
            of_bias = g.sum(0)
        return of_x, of_weight, of_bias


def relative(x):
    return Swish.apply(x) / (1 + x.abs())


STRAIGHT = {
    "saved input": lambda x: Swish.apply(x * 2).sum(-1), "leaf itself": lambda x: Swish.apply(x),
    "setup_context": lambda x: Mish.apply(x.exp()) * 3,
    "straight through": lambda x: Round.apply(x * 4, -0.3, 0.5) * x,
    "view": lambda x: Reverse.apply(x * 3, 0.5) * 2, "view comes out": lambda x: Reverse.apply(x * 3, 0.5),
    "view of a leaf": lambda x: Reverse.apply(x, 0.5), "view of a view": lambda x: Reverse.apply(x, 0.5).t()[1:],
    "returned input": lambda x: ReverseSame.apply(x * 3, 0.5) * 2, "leaf returned": lambda x: ReverseSame.apply(x, 0.5),
    "twice": lambda x: Swish.apply(Swish.apply(x)) + Swish.apply(x),
    "beside others": relative, "in a module": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_straight_line(name):
    check_step(lambda: Program(copy.deepcopy(STRAIGHT[name]), leaf(5, 3)), graphs=1)


def test_gradient_of_an_expanded_sum():
    """The gradient has strides of 0, and the stand-in of the trace has not."""
    class Flat(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return (g.reshape(-1) * x.reshape(-1)).view(x.shape)

    check_step(lambda: Program(lambda x: Flat.apply(x).sum(), leaf(5, 3)), graphs=1)


def test_norm_and_linear_in_a_module():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.weight = torch.nn.Linear(3, 8), torch.nn.Parameter(torch.rand(8))

        def forward(self, x):
            return Normed.apply(Linear.apply(x, self.linear.weight, self.linear.bias), self.weight).tanh()

    check_step(lambda: Program(Block(), leaf(5, 3)), graphs=1)
    check_step(lambda: Program(Block(), torch.randn(5, 3)), graphs=1)  # needs_input_grad is another one


# ---- several outputs, Nones, flags

class Polar(Function):
    """Two outputs with a gradient, one without, and a number."""
    @staticmethod
    def forward(ctx, x, y):
        radius, largest = (x * x + y * y).sqrt(), x.argmax(-1)
        ctx.save_for_backward(x, y, radius)
        ctx.mark_non_differentiable(largest)
        return radius, torch.atan2(y, x), largest, 7

    @staticmethod
    def backward(ctx, of_radius, of_angle, of_largest, of_number):
        assert of_largest.dtype == torch.long and of_number is None
        x, y, radius = ctx.saved_tensors
        square = radius * radius
        return (of_radius * x / radius - of_angle * y / square, of_radius * y / radius + of_angle * x / square)


class Shifted(Function):
    """Two outputs, and a backward that is no linear function."""
    @staticmethod
    def forward(ctx, x):
        return x * 2, x + 1

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 + b.clamp(-0.5, 0.5) + 1


class MaybeNone(Function):
    """Sees None for what has no gradient."""
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        if b is None:
            return a * 2
        return a * 2 + b * 3


class Auxiliary(Function):
    """Adds a loss: its gradient does not depend on what comes in."""
    @staticmethod
    def forward(ctx, x, loss):
        ctx.needed = loss.requires_grad
        return x

    @staticmethod
    def backward(ctx, g):
        return g, torch.ones(()) if ctx.needed else None


SEVERAL = {
    "all": lambda x: list(Polar.apply(x * 2, x + 3)[:2]), "one is used": lambda x: Polar.apply(x, x + 3)[1].exp(),
    "a number and indices": lambda x: (Polar.apply(x, x)[2], Polar.apply(x, x)[3], Polar.apply(x + 1, x + 3)[0]),
    "no linear one": lambda x: sum(Shifted.apply(x)).sum(),
    "auxiliary": lambda x: Auxiliary.apply(x, (x * x).mean()).sum(),
    "None": lambda x: sum(MaybeNone.apply(x)).sum(),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_outputs(name):
    check_step(lambda: Program(SEVERAL[name], leaf(5, 3)), graphs=1)


def test_some_outputs_get_no_gradient():
    """Zeros are made for the others, and an output that does not lead to an input leaves its gradient None."""
    def step(run, args, k):
        radius, angle, y = run(*args)
        (radius, angle, radius + angle, y)[k].sum().backward()
        return radius
    def f(x, y):
        return *Polar.apply(x, x + 3)[:2], Swish.apply(y)
    check_step(lambda: Program(f, leaf(5, 3), leaf(4), step=step), steps=4, graphs=1)


LINEAR = {
    "where": lambda x, a, b: torch.where(x > 0, a, b),
    "masked": lambda x, a, b: a.masked_fill(x > 0, 0) - b, "moved": lambda x, a, b: a.flip(0) + torch.roll(b, 1, 0),
    "joined": lambda x, a, b: torch.cat([a[:2], b[2:]]), "in a part": lambda x, a, b: a.tril() + b.triu(),
    "sums": lambda x, a, b: a.cumsum(0) + b.mean(0), "rows": lambda x, a, b: a[[4, 3, 2, 1, 0]] + b.index_select(0,
        torch.tensor([1, 1, 0, 0, 2])),
    "formulas of torch": lambda x, a, b: (torch.ops.aten.tanh_backward(a, x)
                                          + torch.ops.aten.threshold_backward(b, x, 0)),
    "in place": lambda x, a, b: (a * 2).add_(b).mul_(x),
}


def of_two_outputs(formula):
    """formula(x, gradient, gradient), whose function's outputs go backward one by one and together. A table that is
    read in backward() would be a break."""
    class Formula(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2, x + 1

        @staticmethod
        def backward(ctx, a, b):
            return formula(*ctx.saved_tensors, a, b)

    def step(run, args, k):
        a, b = run(*args)
        (a, b, a + b)[k].sum().backward()
    return lambda: Program(lambda x: Formula.apply(x), leaf(5, 3), step=step)


@pytest.mark.parametrize("name", LINEAR)
def test_linear_in_its_gradients(name):
    """So a backward of one output is the recorded one with zeros for the other."""
    check_step(of_two_outputs(LINEAR[name]), graphs=1)


NOT_LINEAR = {
    "a number is added": lambda x, a, b: a + b + 1, "a tensor is added": lambda x, a, b: a + b + x,
    "where, with ones": lambda x, a, b: torch.where(x > 0, a, 1) + b,
    "the mask": lambda x, a, b: torch.where(a > 0, a, b),
    "squared": lambda x, a, b: a * a + b, "a divisor": lambda x, a, b: a + x / (b + 2),
    "filled": lambda x, a, b: a.masked_fill(x > 0, 2.0) + b,
}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", NOT_LINEAR)
def test_not_linear_in_its_gradients(name):
    stats = check_step(of_two_outputs(NOT_LINEAR[name]), breaks=1, graphs=0, backward=None, captured=False)
    assert stats["break_reasons"] == {"no_backward": 1}, stats["break_reasons"]


@pytest.mark.nothing_captured
def test_one_output_of_two_where_zeros_are_not_none():
    def step(run, args, k):
        a, b = run(*args)
        (a, b, a + b)[k].sum().backward()
    for function in Shifted, MaybeNone:
        stats = check_step(lambda: Program(lambda x: function.apply(x), leaf(5, 3), step=step), breaks=None,
                           backward=None, captured=False, graphs=0)
        assert stats["break_reasons"] == {"no_backward": 1}, stats["break_reasons"]


@pytest.mark.nothing_captured
@pytest.mark.breaks(no_backward=1)
def test_own_gradient_where_another_output_goes_backward():
    def step(run, args, k):
        y, z = run(*args)
        (z, y)[k % 2].sum().backward()

    def f(x):
        h = x * 2
        return Auxiliary.apply(h, (h * h).mean()), h.sin()
    check_step(lambda: Program(f, leaf(5, 3), step=step), breaks=None, backward=None, captured=False, graphs=0)


def test_roots_of_different_levels():
    """A clipped gradient: two runs are not one run over the sum."""
    def f(x):
        h = Round.apply(x, -0.5, 0.5)
        a = h * 2
        return a, h * 3, a * 5
    check_step(lambda: Program(f, leaf(5, 3)), backward=6)


@pytest.mark.nothing_captured
@pytest.mark.breaks(no_backward=1)
def test_a_root_that_is_made_of_another_and_of_what_both_share():
    """The function would run twice, once for each."""
    def f(x):
        h = Round.apply(x, -0.5, 0.5)
        a = h * 2
        return a, h * a
    check_step(lambda: Program(f, leaf(5, 3)), breaks=None, backward=None, captured=False, graphs=0)


class Doubled(Function):
    """In place."""
    @staticmethod
    def forward(ctx, x, scale):
        x.mul_(scale)
        ctx.mark_dirty(x)
        ctx.save_for_backward(scale)
        return x, x.exp()

    @staticmethod
    def backward(ctx, g, of_exp):
        return (g + of_exp * 3) * ctx.saved_tensors[0], None


DIRTY = {
    "inside": lambda x, s: Doubled.apply(x * 1, s)[0].sin(), "both": lambda x, s: sum(Doubled.apply(x * 1, s)).sin(),
    "used again": lambda x, s: (lambda y: Doubled.apply(y, s)[1].sum() + y.sin().sum())(x * 2),
    "view": lambda x, s: (lambda y: (Doubled.apply(y[1:], s), y.sin().sum())[1])(x * 2),
}


@pytest.mark.parametrize("name", DIRTY)
@pytest.mark.breaks(custom_dispatch={"view": 1})
def test_written_inputs(name):
    check_step(lambda: Program(DIRTY[name], leaf(5, 3), torch.tensor(2.0)), breaks=None, backward=None, captured=False)


def test_written_input_of_the_graph():
    def step(run, args, k):
        y = args[0] * 1
        z = run(y, args[1])
        (z.sum() + y.sin().sum()).backward()
    check_step(lambda: Program(lambda y, s: Doubled.apply(y, s)[1] * 2, leaf(5, 3), torch.tensor(2.0), step=step))


# ---- what eager means

def test_names_errors_and_versions():
    x = leaf(5, 3)
    y = framejit.compile(lambda x: Swish.apply(x))(x)
    assert y.grad_fn.name() == "SwishBackward"

    def written(run, args, k):
        x = args[0] * 1
        y = run(x)
        x.add_(1)
        y.sum().backward()
    check_step(lambda: Program(lambda x: Swish.apply(x), leaf(5, 3), step=written), breaks=None, backward=None)

    def twice(run, args, k):
        y = run(*args).sum()
        y.backward()
        y.backward()
    check_step(lambda: Program(lambda x: Swish.apply(x), leaf(5, 3), step=twice), breaks=None, backward=None)
    check_step(lambda: Program(lambda x: Round.apply(x, -1, 1), leaf(5, 3), step=twice), backward=None)  # keeps nothing


@pytest.mark.nothing_captured
@pytest.mark.breaks(no_backward=1)
def test_written_inside():
    """An error of the backward: eager raises it."""
    def f(x):
        y = x * 1
        z = Swish.apply(y)
        y.add_(1)
        return z
    check_step(lambda: Program(f, leaf(5, 3)), breaks=None, backward=None, captured=False, graphs=0)


def test_sizes_that_change():
    def make():
        weight = leaf(6)
        return Program(lambda x: Normed.apply(x, weight) + Swish.apply(x).sum(-1, keepdim=True), watch=[weight],
                       make_inputs=lambda k: (torch.randn(2 + k, 6, requires_grad=True),))
    stats = check_step(make, steps=4, graphs=2)
    assert stats["graphs"] == 2 and stats["backward_graphs"] == 2


def test_numbers_that_change():
    """A schedule of the scale: the second number makes it one that may have any value."""
    def step(run, args, k):
        y = run(args[0], 0.25 + k / 4)
        y.sum().backward()
        return y
    for f in (lambda x, s: Reverse.apply(x * 2, s).sin(), lambda x, s: Round.apply(x * 2, -s, s),
              lambda x, s: Reverse.apply(x * 2, s * 2).sin(), lambda x, s: Round.apply(x * 2, -s / 3, s + 1)):
        check_step(lambda: Program(f, leaf(5, 3), step=step), steps=5, graphs=2)


def test_mask_written_in_the_backward():
    class Relu(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            made = g.clone()
            made[x < 0] = 0
            return made
    check_step(lambda: Program(lambda x: Relu.apply(x * 2).sin(), leaf(5, 3)), graphs=1)


@pytest.mark.breaks(custom_dispatch=2)
def test_amp_decorators():
    class Product(Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g @ w.t(), x.t() @ g
    for autocast in False, True:
        check_step(lambda: Program(lambda x, w: Product.apply(x, w).tanh(), leaf(5, 3), leaf(3, 4)), breaks=None,
                   autocast=autocast)


def test_inner_backward():
    def step(run, args, k):
        x, = args
        return run(x)

    def f(x):
        y = Round.apply(x * 3, -0.5, 0.5) * x
        y.pow(2).sum().backward()
        slope, = torch.autograd.grad(Swish.apply(x).sum(), x)
        return slope
    check_step(lambda: Program(f, leaf(5, 3), step=step), graphs=1, backward=None)


def test_autocast_around_the_forward():
    """The backward runs without it, as eager's does outside."""
    class Product(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g.float() @ w.t(), x.t() @ g.float()

    check_step(lambda: Program(lambda x, w: Product.apply(x, w).float().tanh(), leaf(5, 3), leaf(3, 4)), autocast=True,
               graphs=1)


@pytest.mark.fallbacks(no_backward=1)
def test_second_derivative_is_an_error_and_then_plain():
    def step(run, args, k):
        x, = args
        slope, = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        slope.sum().backward()
    x = leaf(5, 3)
    run = framejit.compile(lambda x: Swish.apply(x) * 2)
    with pytest.raises(RuntimeError, match="torch.autograd.Function"):
        step(run, (x,), 0)
    step(run, (x,), 1)
    want = x.grad.clone()
    x.grad = None
    step(lambda x: Swish.apply(x) * 2, (x,), 2)
    assert torch.equal(want, x.grad)


def test_checkpoint():
    def f(x):
        return torch.utils.checkpoint.checkpoint(lambda x: Swish.apply(x.sin()).exp(), x, use_reentrant=False)
    check_step(lambda: Program(f, leaf(5, 3)), graphs=1)


class Outer(Function):
    """Calls other functions in both."""
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Round.apply(x, -1, 1) + Swish.apply(x)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return Swish.apply(g) + x


def test_nested():
    check_step(lambda: Program(lambda x: Outer.apply(x * 2), leaf(5, 3)), graphs=1)


class Setup(Function):
    @staticmethod
    def forward(x):
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 3


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize("apply", [Setup.apply, lambda x: ReverseSame.apply(x, 0.5)], ids=["setup", "old"])
def test_what_a_returned_input_is(apply, needs, mode):
    """Its memory is that of the input. Without gradients, the result needs none."""
    def told(f):
        x = torch.ones(3, requires_grad=needs)
        with mode():
            y, _ = f(x)
        facts = y.requires_grad, y.is_leaf, y._is_view(), y is x, y.data_ptr() == x.data_ptr(), y.is_inference()
        with torch.no_grad():
            y.add_(1)
        return *facts, None if x.is_inference() else x._version, x.tolist()
    def both(x):
        return apply(x), x * 2
    compiled = framejit.compile(both)
    for _ in range(2):
        assert told(compiled) == told(both)


@pytest.mark.breaks(custom_dispatch=1)
def test_a_returned_tensor_from_outside_is_detached():
    class Outside(Function):
        @staticmethod
        def forward(ctx, x):
            return held[0]

    def f(x):
        return Outside.apply(x), x * 2
    for run in (f, framejit.compile(f)):
        held = [leaf(3)]
        with torch.no_grad():
            result, _ = run(torch.ones(3))
        assert result is held[0] and not result.requires_grad
