"""Numbers that change from step to step, in ops whose gradients are computed with them: a formula that computes with
the number that it saved, such as n - 1, holds for this number alone."""
import pytest
import torch
import torch.nn.functional as F

from steps import Program, check_step

FLOATS = (0.25, 0.75, 0.3, 0.6, 1.0, -1.0, 0.0)
INTEGERS = (2, 3, 5, 4, 1, -1, 0)


def inner(x, n):
    [g] = torch.autograd.grad((x ** (n * 2 + 1)).sum(), x)
    return x * g


def with_backward(x, n):
    (x * 2).pow(n).sum().backward()
    g, x.grad = x.grad, None
    return g


POWERS = {
    "power": lambda x, n: x ** n,
    "power in place": lambda x, n: (x * 2).pow_(n),
    "powers of a list": lambda x, n: torch.stack(torch._foreach_pow([x, x * 2], n)),
    "power of a number": lambda x, n: n ** x,
    "powers of a number": lambda x, n: torch.stack(torch._foreach_pow(n, [x, x * 2])),
    "zeta": lambda x, n: torch.special.zeta(n + 3, x),
    "power by a result": lambda x, n: x.pow(n).mean().pow(1 / (n + 2)),
}
OF_FLOATS = POWERS | {
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "lerp in place": lambda x, n: (x * 3).lerp_(x, n),
    "lerp of a list": lambda x, n: torch.stack(torch._foreach_lerp([x, x * 2], [x * 3, x], n)),
    "celu": lambda x, n: F.celu(x - 1, n + 2),
    "elu": lambda x, n: F.elu(x - 1, n),
    "response norm": lambda x, n: F.local_response_norm(x.view(1, -1, 1, 1), 2, beta=n),
    "pool": lambda x, n: F.lp_pool1d(x[None], n + 2, 2),
    "sum": lambda x, n: torch.add(x, x * 2, alpha=n),
    "scaled": lambda x, n: (x * n + n) / (n + 2) - n,
}
RECOMPILE_NEVER = ("elu", "scaled")  # their formulas take the number as it is


def x_of_ones():
    return torch.tensor([0.5, 1.5, 2.0, 1.0, 3.0, 0.25], requires_grad=True)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name, dynamic):
    graphs = {None: 2, True: 1}[dynamic] if name in RECOMPILE_NEVER else len(FLOATS)
    check_step(lambda: Program(OF_FLOATS[name], make_inputs=lambda k: (x_of_ones(), FLOATS[k])), steps=len(FLOATS),
               graphs=graphs, dynamic=dynamic)


@pytest.mark.parametrize("name", POWERS)
def test_integers(name):
    check_step(lambda: Program(POWERS[name], make_inputs=lambda k: (x_of_ones(), INTEGERS[k])), steps=len(INTEGERS),
               graphs=None)


@pytest.mark.parametrize("fn", [inner, with_backward], ids=lambda f: f.__name__)
def test_gradients_inside_of_the_traced_code(fn):
    check_step(lambda: Program(fn, make_inputs=lambda k: (x_of_ones(), FLOATS[k])), steps=len(FLOATS), graphs=None,
               backward=None)


def test_a_number_that_is_made_of_a_size():
    check_step(lambda: Program(lambda p: p.prod(1) ** (1 / p.shape[1]),
                               make_inputs=lambda k: (torch.full((2, 2 + k), 0.5, requires_grad=True),)), steps=5,
               graphs=None)


def test_an_attribute_of_a_module():
    class Focal(torch.nn.Module):
        gamma = 2.5

        def forward(self, logits):
            p = torch.softmax(logits, -1)
            return (-(1 - p) ** self.gamma * p.log()).mean()
    focal = Focal()

    def step(run, args, k):
        focal.gamma = 2.5 - k / 4
        loss = run(*args)
        loss.backward()
        return loss
    check_step(lambda: Program(focal, torch.randn(3, 4, requires_grad=True), step=step), steps=5, graphs=5)
