"""Numbers that change from step to step, in ops whose gradients are computed with them: a formula that computes with
the number that it saved, such as n - 1, is right only for this number."""
import math

import pytest
import torch
import torch.nn.functional as F

import framejit
from steps import Program, check_step, leaf

FLOATS = (0.25, 0.75, 0.3, 0.6, 1.0, -1.0, 0.0)
INTEGERS = (2, 3, 5, 4, 1, -1, 0)


def inner(x, n):
    [g] = torch.autograd.grad((x ** (n * 2 + 1)).sum(), x)
    return x * g


def with_backward(x, n):
    (x * 2).pow(n).sum().backward()
    g, x.grad = x.grad, None
    return g


def inner_sum(x, n):
    [g] = torch.autograd.grad(torch.add(x, x * x, alpha=n).sum(), x)
    return x * g


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
    "sum in place": lambda x, n: (x * 3).add_(x.sum(), alpha=n),
    "difference": lambda x, n: torch.sub(x[:, None], x * 2, alpha=n * 2 - 1),
    "reversed difference": lambda x, n: torch.rsub(x * 2, x, alpha=n),
    "sum of complex numbers": lambda x, n: torch.add(torch.complex(x, -x), x, alpha=n).abs(),
    "scaled": lambda x, n: (x * n + n) / (n + 2) - n,
}
RECOMPILE_NEVER = ("elu", "scaled")  # their formulas take the number as it is
RECOMPILE_FOR_ONE = ("sum", "sum in place", "difference", "reversed difference", "sum of complex numbers")


def x_of_ones():
    return torch.tensor([0.5, 1.5, 2.0, 1.0, 3.0, 0.25], requires_grad=True)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats(name, dynamic):
    graphs = len(FLOATS)
    if name in RECOMPILE_NEVER + RECOMPILE_FOR_ONE:
        graphs = {None: 2, True: 1}[dynamic] + (name in RECOMPILE_FOR_ONE)
    check_step(lambda: Program(OF_FLOATS[name], make_inputs=lambda k: (x_of_ones(), FLOATS[k])), steps=len(FLOATS),
               graphs=graphs, dynamic=dynamic)


@pytest.mark.parametrize("name", POWERS)
def test_integers(name):
    check_step(lambda: Program(POWERS[name], make_inputs=lambda k: (x_of_ones(), INTEGERS[k])), steps=len(INTEGERS),
               graphs=None)


@pytest.mark.parametrize("values, graphs", [((1.0, 0.5, 1.0, 2.0), 2), ((0.5, 1.0, 2.0, 1.0), 3),
                                            ((2.0, math.nan, -0.0, math.inf, 1.0), 3)], ids=str)
def test_factors_that_are_one_or_no_number(values, graphs):
    check_step(lambda: Program(OF_FLOATS["sum"], make_inputs=lambda k: (x_of_ones(), values[k])), steps=len(values),
               graphs=graphs)


def test_the_gradients_of_a_sum_are_one_tensor_if_its_factor_is_one():
    compiled = framejit.compile(lambda x, y, n: torch.add(x, y, alpha=n))
    for n in (0.5, 2.0, 1.0, 3.0, 1.0):
        x, y = leaf(3), leaf(3)
        seen = [[g.data_ptr() == grads[0].data_ptr() for g in grads]
                for run in (framejit.disable(compiled), compiled)
                for grads in [torch.autograd.grad(run(x, y, n).sum(), (x, y))]]
        assert seen[0] == seen[1] == [True, n == 1], n
    assert framejit.stats()["graphs"] == 3


def test_a_second_derivative_of_a_sum():
    def step(run, args, k):
        x, n = args
        [g] = torch.autograd.grad(run(*args), x, torch.ones(6), create_graph=True)
        g.square().sum().backward()
        return g
    check_step(lambda: Program(lambda x, n: torch.add(x * x, x.exp(), alpha=n),
                               make_inputs=lambda k: (x_of_ones(), FLOATS[k]), step=step), steps=len(FLOATS),
               graphs=3, backward=None)


@pytest.mark.parametrize("fn", [inner, with_backward, inner_sum], ids=lambda f: f.__name__)
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


POSITIONS = {
    "item": lambda x, n: x[n] * 2,
    "element": lambda x, n: x[n, 0] * 2,
    "item of a result": lambda x, n: (x * 2)[n].exp(),
    "from there on": lambda x, n: x[n:] * 2,
    "from there on, every second": lambda x, n: x[n::2] * 2,
    "up to there": lambda x, n: x[:n] * 2,
    "a slice of a result": lambda x, n: (x * 2)[n:, n].exp().sum(),
    "counted from the end": lambda x, n: x[abs(n) - x.shape[0]] * 2,
    "computed": lambda x, n: x[-n - 2] * 2 + x[..., n % 2 - 2].sum(),
    "one of two": lambda x, n: x[n - 5 if n > 0 else n] * 2,
    "narrow": lambda x, n: x.narrow(0, n, 1) * 2,
    "written": lambda x, n: (x * 1).select_scatter(x[0] * 3, 0, n),
    "a written slice": lambda x, n: (x * 1).slice_scatter(x[n:] * 3, 0, n),
    "copied there": lambda x, n: torch.stack([x, x * 2]).index_put((torch.tensor(0),), x[n]),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_on_either_side_of_zero(name, dynamic):
    check_step(lambda: Program(POSITIONS[name], make_inputs=lambda k: (
        torch.arange(25.0).view(5, 5).div(25).requires_grad_(), (0, 1, -1, -2, 3, -3)[k])), steps=6, graphs=None,
               dynamic=dynamic)


# Lists of docs/sizes_and_numbers.md.
VARY = {
    "clamp": lambda x, a: x.clamp(a, 0.5), "full": lambda x, a: x * torch.full((2, 3), a),
    "addcmul": lambda x, a: torch.addcmul(x, x, x, value=a), "leaky_relu": lambda x, a: F.leaky_relu(x, a),
    "elu": lambda x, a: F.elu(x, a), "hardtanh": lambda x, a: F.hardtanh(x, -1.0, a),
    "threshold": lambda x, a: F.threshold(x, a, 1.0), "softplus": lambda x, a: F.softplus(x, a),
    "hardshrink": lambda x, a: F.hardshrink(x, a),
    "normalize": lambda x, a: F.normalize(x, 2.0, -1, eps=a), "gumbel_softmax": lambda x, a: F.gumbel_softmax(x, tau=a),
}
VARY_WITHOUT_GRADIENTS = {
    "pow": lambda x, a: x.abs() ** a, "rpow": lambda x, a: a ** x,
    "lerp": lambda x, a: torch.lerp(x, x.flip(0), a), "addmm": lambda x, a: torch.addmm(x[:, :2], x, x.t(), beta=a),
}
LABELS = torch.tensor([0, 1])
FIXED = {
    "dropout": lambda x, a: F.dropout(x, a), "vector_norm": lambda x, a: torch.linalg.vector_norm(x, 1 + a, -1),
    "cdist": lambda x, a: torch.cdist(x, x.flip(0), p=1 + a),
    "label_smoothing": lambda x, a: F.cross_entropy(x, LABELS, label_smoothing=a),
    "huber_loss": lambda x, a: F.huber_loss(x, x.flip(0), delta=a),
    "smooth_l1_loss": lambda x, a: F.smooth_l1_loss(x, x.flip(0), beta=a), "celu": lambda x, a: F.celu(x, a),
    "softshrink": lambda x, a: F.softshrink(x, a),
    "layer_norm": lambda x, a: F.layer_norm(x, (3,), eps=a), "group_norm": lambda x, a: F.group_norm(x, 1, eps=a),
    "cosine_similarity": lambda x, a: F.cosine_similarity(x, x.flip(0), eps=a),
    "logit": lambda x, a: torch.logit(x.sigmoid(), eps=a),
    "momentum": lambda x, a: F.batch_norm(x, torch.zeros(3), torch.ones(3), training=True, momentum=a),
    "correction": lambda x, a: x.var(-1, correction=a),
    "scale": lambda x, a: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=a),
    "margin": lambda x, a: F.margin_ranking_loss(x, x.flip(0), torch.ones_like(x), margin=a),
    "quantile": lambda x, a: x.quantile(a, -1), "nan_to_num": lambda x, a: torch.nan_to_num(x, a),
}


def graphs_of(f, gradients):
    framejit.reset()
    compiled = framejit.compile(f)
    with torch.set_grad_enabled(gradients):
        for k in range(5):
            compiled(torch.randn(2, 3, requires_grad=True), 0.1 + k / 100)
    return framejit.stats()["graphs"]


@pytest.mark.parametrize("name", VARY | VARY_WITHOUT_GRADIENTS | FIXED)
def test_arguments_that_vary(name):
    f = (VARY | VARY_WITHOUT_GRADIENTS | FIXED)[name]
    assert graphs_of(f, gradients=False) == (5 if name in FIXED else 2)
    assert graphs_of(f, gradients=True) == (2 if name in VARY else 5)


def test_the_first_line_is_true_of_a_number_that_is_part_of_a_kernel():
    lines = []
    token = framejit._framejit.add_listener(lambda e: e["event"] == "Recompile" and lines.append(e["fields"]["hint"]))
    assert graphs_of(FIXED["dropout"], gradients=True) == 5
    framejit._framejit.remove_listener(token)
    assert len(lines) == 4 and all("dropout's p" in line and "use few values" in line for line in lines), lines
