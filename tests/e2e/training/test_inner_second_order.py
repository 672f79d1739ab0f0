"""Second derivatives inside of compiled code: a gradient with a history, and another backward through it. One graph."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from steps import Program, check_step, leaf
from test_function_gradients import Swish


def whole_step(make, **options):
    """make() gives a function without arguments that makes a whole step, and the objects that it changes. The first
    step makes .grad or the optimizer's state, so that it is a graph of its own."""
    def program():
        fn, *watch = make()
        return Program(fn, watch=watch, zero=False, step=lambda run, args, k: run())
    return check_step(program, **{"backward": None, "graphs": 2, **options})


def critic(*layers):
    model = nn.Sequential(*layers, nn.LeakyReLU(0.2), nn.Linear(6, 1))
    return model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)


def test_the_step_of_a_critic():
    """WGAN-GP: points between real and generated samples, whose gradients should have length 1."""
    def make():
        model, optimizer = critic(nn.Linear(4, 6))
        generator, real = nn.Linear(3, 4), torch.randn(5, 4)

        def step():
            fake = generator(torch.randn(5, 3)).detach()
            optimizer.zero_grad()
            part = torch.rand(5, 1)
            between = (part * real + (1 - part) * fake).requires_grad_(True)
            out = model(between)
            [slope] = torch.autograd.grad(outputs=out, inputs=between, grad_outputs=torch.ones(out.size()),
                                          create_graph=True, retain_graph=True, only_inputs=True)
            penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
            loss = model(fake).mean() - model(real).mean() + 10 * penalty
            loss.backward()
            optimizer.step()
            return loss.detach()
        return step, model, optimizer
    whole_step(make, steps=4)


def variable(x):
    return torch.autograd.Variable(x, requires_grad=True)


def attribute(x):
    x = x.detach()
    x.requires_grad = True
    return x


@pytest.mark.parametrize("leaf_of", [variable, attribute, lambda x: x.clone().requires_grad_()],
                         ids=["Variable", "attribute", "method"])
def test_a_penalty_at_the_samples(leaf_of):
    def make():
        model, optimizer = critic(nn.Linear(4, 6))
        real = torch.randn(5, 4)

        def step():
            optimizer.zero_grad()
            x = leaf_of(real * 2)
            out = model(x)
            [slope] = torch.autograd.grad(out.sum(), x, create_graph=True)
            (F.softplus(-out).mean() + slope.square().sum(1).mean()).backward()
            optimizer.step()
            return out.detach()
        return step, model, optimizer
    whole_step(make)


def test_a_penalty_through_convolutions():
    def make():
        model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.LeakyReLU(0.2), nn.AvgPool2d(2), nn.Flatten(),
                              nn.Linear(8, 1))
        real = torch.randn(3, 1, 4, 4)

        def step():
            model.zero_grad()
            x = real.clone().requires_grad_()
            out = model(x)
            [slope] = torch.autograd.grad(out.sum(), x, create_graph=True)
            slope.square().sum().backward()
        return step, model
    whole_step(make)


@pytest.mark.parametrize("points", [lambda: torch.rand(6, 1, requires_grad=True),
                                    lambda: torch.linspace(0, 1, 6, requires_grad=True).view(6, 1),
                                    lambda: torch.ones(6, 1).requires_grad_(),
                                    lambda: torch.zeros_like(torch.ones(6, 1), requires_grad=True),
                                    lambda: torch.tensor([[0.1], [0.7]], requires_grad=True)],
                         ids=["rand", "linspace", "ones", "zeros_like", "tensor"])
def test_derivatives_by_the_points(points):
    """A net that has to solve an equation: u_t + u * u_x = u_xx."""
    def make():
        model = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))

        def by(y, x):
            return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]

        def step():
            model.zero_grad()
            x, t = points(), points()
            u = model(torch.cat([x, t], 1))
            slope = by(u, x)
            loss = (by(u, t) + u * slope - 0.1 * by(slope, x)).square().mean()
            loss.backward()
            return loss.detach()
        return step, model
    whole_step(make)


def test_points_from_outside():
    def make():
        model, x = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 1)), leaf(6, 1)

        def step():
            model.zero_grad()
            x.grad = None
            u = model(x)
            [slope] = torch.autograd.grad(u.sum(), x, create_graph=True)
            [bend] = torch.autograd.grad(slope.sum(), x, create_graph=True)
            (bend + u).square().mean().backward()
            return slope.detach()
        return step, model, x
    whole_step(make)


def test_a_step_inside_of_a_step():
    """MAML: the loss after a step of gradient descent, differentiated by the parameters before it."""
    def make():
        model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        x, y = torch.randn(5, 2), torch.randn(5, 1)

        def step():
            model.zero_grad()
            names = dict(model.named_parameters())
            slopes = torch.autograd.grad(F.mse_loss(model(x), y), list(names.values()), create_graph=True)
            moved = {name: p - 0.1 * g for (name, p), g in zip(names.items(), slopes)}
            F.mse_loss(torch.func.functional_call(model, moved, (x,)), y).backward()
        return step, model
    whole_step(make)


def test_a_product_with_the_hessian():
    def make():
        w = leaf(5)

        def step():
            [slope] = torch.autograd.grad((w.sin() * w).sum(), w, create_graph=True)
            return torch.autograd.grad(slope @ torch.randn(5), w)[0]
        return step, w
    whole_step(make, graphs=1)


# ---- what breaks, and is right


@pytest.mark.breaks(gradient_call=2)
def test_backward_with_a_history():
    def make():
        w = leaf(3)

        def step():
            w.grad = None
            (torch.randn(3) * w).sin().sum().backward(create_graph=True)
            slope, w.grad = w.grad, None
            slope.square().sum().backward()
            return slope.detach()
        return step, w
    whole_step(make, graphs=None, breaks=None)


def test_points_that_leave():
    """They must be leaves outside too: the graph ends before them."""
    def make():
        w = leaf(3)

        def f():
            x = torch.rand(3, requires_grad=True)
            return x, (x * w).sum()

        def step(run, args, k):
            x, y = run()
            y.backward()
            return x, x.grad, x.is_leaf
        return Program(f, watch=[w], step=step)
    check_step(make, breaks=1, backward=None)


def test_an_input_that_becomes_a_leaf():
    def make():
        w = leaf(3)

        def f(x):
            x.requires_grad_()
            [slope] = torch.autograd.grad((x * w).sin().sum(), x, create_graph=True)
            return slope.square().sum()

        def step(run, args, k):
            run(*args).backward()
            return args[0].grad
        return Program(f, make_inputs=lambda k: (torch.randn(3),), watch=[w], step=step)
    check_step(make, breaks=1)


@pytest.mark.parametrize("fn", [torch.abs, torch.sgn, lambda x: x.abs().exp(), lambda x: x.norm(1, dim=-1).square()],
                         ids=["abs", "sgn", "exp of abs", "norm 1"])
def test_the_derivative_of_a_sign(fn):
    """PyTorch's formula makes a tensor of zeros that has no memory, and no kernel may read it."""
    def f(x, w):
        y = x * w
        [slope] = torch.autograd.grad(fn(y).sum(), y, create_graph=True)
        return slope * w + y.square()

    def make():
        return Program(f, leaf(3, 4), leaf(3, 4))
    check_step(make, graphs=1)


def penalty(x):
    slope, = torch.autograd.grad(Swish.apply(x.sin()).pow(2).sum(), x, create_graph=True)
    return slope.pow(2).sum()


def two_functions(x):
    slope, = torch.autograd.grad(Swish.apply(Swish.apply(x) * 2).sum(), x, create_graph=True)
    return (slope * x).sum()


def by_backward(x):
    y = Swish.apply(x * 1).sum() * 3
    y.backward(create_graph=True)
    return x.grad.pow(2).sum()


def of_a_batch(x):
    y = Swish.apply(x * 2)[0]
    slopes, = torch.autograd.grad(y, x, torch.eye(len(y)), is_grads_batched=True)
    return (slopes.sum(0) * x).sum()


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("fn, reasons", [(penalty, {"custom_dispatch": 1, "gradient_call": 1}),
                                         (two_functions, {"custom_dispatch": 1, "gradient_call": 2}),
                                         (by_backward, {"gradient_call": 2}), (of_a_batch, {"gradient_call": 2})],
                         ids=lambda p: getattr(p, "__name__", ""))
def test_a_second_derivative_inside_ends_the_graph_before_the_function(fn, reasons):
    def told(run):
        x = leaf(3, 4)
        value = run(x)
        value.backward()
        return value.detach(), x.grad
    compiled = framejit.compile(fn)
    for _ in range(2):
        torch.manual_seed(0)
        want = told(fn)
        torch.manual_seed(0)
        torch.testing.assert_close(told(compiled), want)
    assert framejit.stats()["break_reasons"] == reasons and framejit.stats()["graphs"]
