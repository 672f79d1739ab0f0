"""torch.func in compiled training code: functional_call is part of the graph, the transforms are breaks."""
import pytest
import torch
from torch import func, nn

from steps import Program, check_step, leaf, mlp


def with_own_parameters(model):
    return dict(model.named_parameters())


def with_scaled_parameters(model):
    return {name: p * 2 for name, p in model.named_parameters()}


def with_copied_buffers(model):
    return {**dict(model.named_parameters()), **{name: b.clone() for name, b in model.named_buffers()}}


@pytest.mark.parametrize("state", [with_own_parameters, with_scaled_parameters, with_copied_buffers],
                         ids=lambda f: f.__name__)
def test_functional_call_is_whole(state):
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
        return Program(lambda x: func.functional_call(model, state(model), (x,)).square().sum(), leaf(6, 3),
                       watch=[model])
    check_step(make, graphs=1)


def gradient(model, x):
    return func.grad(lambda v: model(v).sin().sum())(x)


def gradient_of_parameters(model, x):
    state = {name: p.detach() for name, p in model.named_parameters()}
    return sum(g.sum() for g in func.grad(lambda s: func.functional_call(model, s, (x,)).sum())(state).values())


def product_with_the_jacobian(model, x):
    y, pull = func.vjp(model, x)
    return pull(torch.ones_like(y))[0]


def one_by_one(model, x):
    return func.vmap(lambda v: model(v).sum())(x)


def gradients_one_by_one(model, x):
    return func.vmap(func.grad(lambda v: model(v).sum()))(x)


@pytest.mark.parametrize("fn", [gradient, gradient_of_parameters, product_with_the_jacobian, one_by_one,
                                gradients_one_by_one], ids=lambda f: f.__name__)
@pytest.mark.breaks(mode_entered=1, real_iterator={"product_with_the_jacobian": 3},
                    unknown_callable={"product_with_the_jacobian": 1},
                    unsupported_tensor={"product_with_the_jacobian": 3})
def test_transforms_are_breaks(fn):
    def make():
        model = mlp()
        return Program(lambda x: (fn(model, x * 2) * 3).square().sum(), leaf(4, 3), watch=[model])
    check_step(make, breaks=None, graphs=None)
