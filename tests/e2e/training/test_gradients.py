"""Gradients of functions and small modules, compiled: equal to eager's, None where eager's are None. Forward and
backward are plans of one graph, unless a test says otherwise."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from steps import Program, check_step, leaf, precision  # noqa: F401


# ---- functions: of leaves


def two_outputs(x, y):
    a = x * y
    return a.sin(), (a + x).cos().sum(0)


def nested_outputs(x, y):
    return {"a": (x + y, [x * 2, y.detach()]), "b": 3, "c": (x - y).tanh()}


def an_output_twice(x, y):
    z = x * y
    return z, z, z + 1


def input_as_output(x, y):
    return x, x * y, y


def view_of_an_input(x, y):
    return x[1:], x.t() * y.t(), y[0]


def views_of_an_output(x, y):
    z = x * y
    return z, z[0], z.t(), z.view(-1)[2:]


def in_place_on_activations(x, y):
    z = x * y
    z.add_(1).mul_(y)
    z[0] = 2
    return z.relu_()


def in_place_on_views(x, y):
    z = x * 2
    z[1:].mul_(y[1:])
    z.t()[0].add_(y[:, 0])
    z.view(-1)[::2] *= 3
    return z, z[1]


def masked_writes(x, y):
    z = x.clone()
    z[y > 0] = 0.5
    z.masked_fill_(x > 1, 2.0)
    return z * y


def copied_into(x, y):
    z = torch.zeros(4, 3)
    z[:2].copy_(x[:2])
    z[2:] = y[2:]
    return z * x


def detached(x, y):
    z = (x * y).detach()
    return z * x, y.detach() + x


def detached_in_the_middle(x, y):
    z = x * y
    return (z - z.detach()).sum() + (z.max().detach() * x).sum()


def detached_beside_a_view(x, y):
    h = x * y
    return h.detach(), h[..., ::2], h.detach()[1:]


def detached_beside_itself(x, y):
    h = x * y
    return h.detach(), h, h.view(-1)


def without_gradients_inside(x, y):
    with torch.no_grad():
        scale = x.abs().max()
        kept = y * 2
    return x / scale, kept, kept * x


def enabled_inside_disabled(x, y):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = y * x
        c = b * 2
    return a, b, c, b * y


def set_inside(x, y):
    torch.set_grad_enabled(False)
    a = x * y
    torch.set_grad_enabled(True)
    return a, x * y


def inference_inside(x, y):
    with torch.inference_mode():
        a = float(x.shape[0])
    with torch.inference_mode(False):
        b = x * y
    return b * a


def requires_grad_inside(x, y):
    z = (x.detach() * 2).requires_grad_()
    return z * y, z.requires_grad, x.requires_grad


def only_one_input(x, y):
    return x * 2, y.shape


def integers_beside(x, y):
    return x * y, x.argmax(-1), (x > y), x.max(-1)


def used_many_times(x, y):
    z = x
    for _ in range(6):
        z = z * x + y * x
    return z


def broadcast(x, y):
    return x * y[0] + y[:, :1] - x.mean(), x.expand(2, 4, 3) * y


def gathers(x, y):
    index = torch.tensor([[0, 1, 2], [2, 2, 0]])
    return x.gather(1, index), y.index_select(0, torch.tensor([3, 0, 3])), x[[1, 1, 2]], y[..., 1], x[:, [0, 2]]


def scatters(x, y):
    index = torch.tensor([0, 2, 2, 1])
    return (torch.zeros(3, 3).index_add(0, index, x), x.scatter_add(0, index.view(4, 1).expand(4, 3), y),
            torch.zeros(5, 3).index_put((index,), y, accumulate=True), x.index_copy(0, index[:2], y[:2]))


def reductions(x, y):
    return x.sum(), y.mean(0), x.std(), y.var(1), x.norm(), y.amax(0), x.logsumexp(1), x.cumsum(0)


def sorting(x, y):
    return x.sort(-1).values, y.topk(2).values, y.kthvalue(2).values, x.max(0).values, torch.maximum(x, y)


def joins(x, y):
    return torch.cat([x, y, x], 1), torch.stack([x, y]).transpose(0, 1), [p * 2 for p in x.split(2)], *y.unbind(1)


def products(x, y):
    return x @ y.t(), torch.einsum("ij,kj->ik", x, y), torch.baddbmm(x[None, :, :1], x[None], y.t()[None])


def softmaxes(x, y):
    return x.softmax(-1), y.log_softmax(0), F.gumbel_softmax(x, tau=0.7), F.normalize(y, dim=1)


def selects(x, y):
    return torch.where(x > 0, x, y * 2), x.clamp(-0.5, 0.5), torch.lerp(x, y, 0.3), F.hardtanh(y), x.abs(), x.sign()


def powers(x, y):
    p = x.abs() + 0.5
    return p ** 0.5, p ** y, 2 ** x, p.log(), p.rsqrt(), p.reciprocal(), torch.atan2(x, y), x.erf(), p.lgamma()


def casts(x, y):
    return x.double() * y, x.bfloat16().float() + y, x.to(torch.float64).to(torch.float32) * 2, x.half().sum()


def numbers_of_random(x, y):
    noise = torch.randn_like(x)
    return x * noise + torch.rand(3), F.dropout(y, 0.5) * torch.bernoulli(torch.full((4, 3), 0.5))


def linear_algebra(x, y):
    a = x.t() @ x + torch.eye(3)
    return torch.linalg.solve(a, y.t()), torch.linalg.cholesky(a), a.inverse(), a.logdet()


def not_contiguous(x, y):
    return x.t().contiguous() * 2, y.t().reshape(2, 6), x.flip(0), y.roll(1, 1), x.tril() @ y.t().triu()


def diagonals_and_paddings(x, y):
    return x.diagonal(), F.pad(y, (1, 2), value=0.5), x.unfold(0, 2, 1), y.repeat(2, 2), x.repeat_interleave(2, 1)


def no_gradient_at_all(x, y):
    with torch.no_grad():
        return x * y, (x + y).relu()


def branch_on_mode(x, y):
    return x * y if torch.is_grad_enabled() and x.requires_grad else x + y


def complex_inside(x, y):
    z = torch.complex(x, y)
    return z.abs(), (z * z.conj()).real, torch.view_as_real(z.exp())


def conjugates(x, y):
    """The gradient of a transform of real numbers is the real part of a lazy conjugate."""
    return torch.fft.hfft(x), torch.fft.ihfft(y).abs(), (torch.complex(x, y).conj() * 2).imag


def eigenvalues(x, y):
    """The check of the solver in the backward stays in the backward."""
    return torch.linalg.eigvals(x[:3] + 3 * torch.eye(3)).abs(), y * 2


def drawn_numbers(x, y):
    """Gradients that are zeros, whatever comes in."""
    return torch.normal(x, y.exp())


FUNCTIONS = [two_outputs, nested_outputs, an_output_twice, input_as_output, view_of_an_input, views_of_an_output,
             in_place_on_activations, in_place_on_views, masked_writes, copied_into, detached, detached_in_the_middle,
             without_gradients_inside, enabled_inside_disabled, set_inside, detached_beside_a_view,
             detached_beside_itself, requires_grad_inside, only_one_input,
             integers_beside, used_many_times, broadcast, gathers, scatters, reductions, sorting, joins, products,
             softmaxes, selects, powers, casts, numbers_of_random, linear_algebra, not_contiguous,
             diagonals_and_paddings, no_gradient_at_all, branch_on_mode, inference_inside, complex_inside,
             conjugates, eigenvalues, drawn_numbers]
NO_BACKWARD = {no_gradient_at_all: False}


def raises_for_strides(fn, transposed):
    """view() of a transposed tensor is the program's error."""
    return fn is view_of_an_input and transposed


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_functions_of_leaves(fn):
    check_step(lambda: (fn, leaf(4, 3), leaf(4, 3)), backward=NO_BACKWARD.get(fn, True), graphs=1)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_functions_of_tensors_that_are_no_leaves(fn):
    """The gradient flows on to the ops that made them."""
    def make():
        a, b = leaf(4, 3), leaf(4, 3)
        return Program(fn, make_inputs=lambda k: (a * 2, (b + 1).t().contiguous().t()), watch=[a, b])
    raises = raises_for_strides(fn, True)
    check_step(make, backward=NO_BACKWARD.get(fn, True), graphs=None if raises else 1,
               breaks=None if raises else 0)


@pytest.mark.parametrize("fn", [f for f in FUNCTIONS if f not in NO_BACKWARD], ids=lambda fn: fn.__name__)
def test_functions_of_which_one_input_asks(fn):
    check_step(lambda: (fn, leaf(4, 3), torch.randn(4, 3)), backward=None)


@pytest.mark.nothing_captured
@pytest.mark.parametrize("fn", [lambda x: x.cumprod(0), lambda x: x.cumprod(1)])
@pytest.mark.breaks(no_backward=1)
def test_formulas_that_read_data_run_plainly(fn):
    check_step(lambda: (fn, leaf(4, 3)), breaks=None, backward=None, captured=False, graphs=0)


@pytest.mark.nothing_captured
@pytest.mark.parametrize("fn", [lambda x, y: x.cumprod(1) * y[:, 0:1], lambda x, y: y.cumprod(0) - x],
                         ids=["cumprod", "other side"])
def test_formulas_of_torch_that_read_data(fn):
    """They break, with a reason that says so."""
    stats = check_step(lambda: (fn, leaf(4, 3), leaf(4, 3)), breaks=None, backward=None, graphs=0)
    assert stats["break_reasons"] == {"no_backward": 1}


# ---- writes to inputs


def writes_an_input(x, y):
    x.mul_(y)
    return x + 1


def writes_a_view_of_an_input(x, y):
    x[1:].add_(y[1:])
    return (x * y).sum()


def writes_and_returns(x, y):
    x.relu_()
    return x, x * y


def writes_several_times(x, y):
    x += y
    x.sigmoid_()
    return x * y


def writes_views_several_times(x, y):
    x[1:].add_(y[1:])
    flat = x.view(-1)
    flat.mul_(2)
    flat.tanh_()
    return flat, x.t(), x * y


@pytest.mark.parametrize("fn", [writes_an_input, writes_a_view_of_an_input, writes_and_returns, writes_several_times,
                                writes_views_several_times], ids=lambda fn: fn.__name__)
@pytest.mark.breaks(unsupported_write=1)
def test_writes_to_inputs(fn):
    """If eager's formulas keep a written input, they keep the version that it has after the last write."""
    def make():
        a, b = leaf(4, 3), leaf(4, 3)
        return Program(fn, make_inputs=lambda k: (a * 2, b), watch=[a, b])
    check_step(make)

    def without():
        a, b = torch.randn(4, 3), leaf(4, 3)
        return Program(fn, make_inputs=lambda k: (a.clone(), b), watch=[a, b])
    check_step(without)

    def a_view_comes_in():
        a, b = leaf(6, 3), leaf(4, 3)
        return Program(fn, make_inputs=lambda k: ((a * 2)[2:], b), watch=[a, b])
    check_step(a_view_comes_in, breaks=None, backward=None, captured=False, graphs=0)


@pytest.mark.nothing_captured
@pytest.mark.breaks(exception_raised=1)
def test_a_write_to_a_leaf_is_the_error_of_eager():
    check_step(lambda: (writes_an_input, leaf(4, 3), leaf(4, 3)), breaks=None, backward=None, graphs=0)


def test_an_activation_whose_input_is_written_later():
    """Legal in eager: relu keeps its result, not its input."""
    def make():
        w, a = leaf(3), torch.randn(3)

        def step(run, args, k):
            y = run(w, a)
            a.add_(1)
            y.sum().backward()
            return y
        return Program(lambda w, a: (w + a).relu(), step=step, watch=[w, a])
    check_step(make)


# ---- partial gradients


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x, which):
        a = self.a(x)
        if which == "both":
            return a, self.b(x)
        return (a, self.b(x).detach()) if which == "detached" else (a, self.c(a))


def test_parameters_that_get_no_gradient():
    """c is never reached: None, with and without a backward before."""
    for which in ("both", "detached", "chained"):
        check_step(lambda: Program(Branches(), torch.randn(2, 3), which))


@pytest.mark.parametrize("taken", [(0,), (1,), (0, 1), (1, 0)])
def test_outputs_of_which_some_go_backward(taken):
    def make():
        def step(run, args, k):
            outputs = run(*args)
            sum(outputs[i].pow(2).sum() for i in taken).backward()
            return outputs
        return Program(Branches(), torch.randn(2, 3), "both", step=step)
    check_step(make, backward_graphs=len(taken))  # the two share no formula: each has a node of its own


def test_other_outputs_go_backward_in_other_steps():
    """One forward; a backward for each output, when its gradient first comes in."""
    def make():
        def step(run, args, k):
            outputs = run(*args)
            chosen = [outputs[:1], outputs[1:], outputs][k % 3]
            sum(o.pow(2).sum() for o in chosen).backward()
            return outputs
        return Program(Branches(), torch.randn(2, 3), "both", step=step)
    check_step(make, steps=6, graphs=1, backward_graphs=2)


def test_nothing_goes_backward():
    check_step(lambda: Program(nn.Linear(3, 3), torch.randn(2, 3), step=lambda run, args, k: run(*args)),
               backward=False)


def test_parameters_are_frozen_and_unfrozen_between_steps():
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

        def step(run, args, k):
            model[0].requires_grad_(k % 2 == 0)
            y = run(*args)
            y.pow(2).sum().backward()
            return y
        return Program(model, torch.randn(2, 3), step=step)
    check_step(make, steps=6, graphs=2)


def test_everything_is_frozen():
    def make():
        return Program(nn.Linear(3, 2).requires_grad_(False), torch.randn(2, 3))
    check_step(make, backward=False)
    check_step(lambda: Program(nn.Linear(3, 2).requires_grad_(False), leaf(2, 3)), graphs=1)


def test_modes_in_turn():
    """Training, evaluation under no_grad and under inference_mode, in one loop: an entry for each."""
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))

        def step(run, args, k):
            model.train(k % 3 == 0)
            mode = [torch.enable_grad, torch.no_grad, torch.inference_mode][k % 3]
            with mode():
                y = run(*args)
            if k % 3 == 0:
                y.pow(2).sum().backward()
            return y
        return Program(model, torch.randn(6, 3), step=step)
    check_step(make, steps=9, graphs=3, backward=3)


# ---- state


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(3))
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        self.calls += 1
        y = self.linear(x)
        with torch.no_grad():
            self.average.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return y - self.average


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, i):
        return self.out(self.embedding(i).tanh())


def test_buffers_that_forward_writes():
    check_step(lambda: (Counts(), leaf(4, 3)), steps=4)


def test_statistics_that_are_written_before_the_backward():
    """Batch norm writes them without a new version, so a backward that needs them raises no error."""
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

        def step(run, args, k):
            model.eval()
            y = run(*args)
            model.train()
            z = run(*args)
            y.pow(2).sum().backward()
            z.pow(2).sum().backward()
            return y, z
        return Program(model, leaf(5, 3), step=step)
    check_step(make, graphs=2, backward_graphs=2, backward=6)


def test_tied_weights(precision):
    check_step(lambda: (Tied(), torch.randint(0, 7, (2, 5))), autocast=precision == "bf16")


def test_one_tensor_as_two_inputs():
    def make():
        x = leaf(4, 3)
        return two_outputs, x, x
    check_step(make, breaks=None)


def test_twelve_blocks_are_one_forward_and_one_backward():
    def make():
        blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(12))

        def step(run, args, k):
            x = args[0]
            for block in blocks:
                x = run(block, x)
            x.pow(2).sum().backward()
            return x
        return Program(lambda block, x: x + block(x), torch.randn(4, 8), step=step, watch=[blocks])
    check_step(make, graphs=2, backward_graphs=2, backward=3 * 12)  # the first block's input asks for no gradient


# ---- breaks


def test_a_break_in_the_middle():
    def make():
        a, b = nn.Linear(4, 4), nn.Linear(4, 4)

        def f(x):
            y = a(x).relu()
            print(end="")
            return b(y) + y
        return Program(f, leaf(3, 4), watch=[a, b])
    check_step(make, breaks=1, graphs=2, backward=6)


@pytest.mark.breaks(data_dependent_jump=1)
def test_a_branch_on_data():
    def make():
        w = nn.Parameter(torch.randn(4, 4))

        def f(x):
            y = x @ w
            return y.sin() if y.sum() > 0 else y.cos()
        return Program(f, make_inputs=lambda k: (torch.ones(3, 4) * (-1) ** k,), watch=[w])
    check_step(make, steps=4, breaks=None, graphs=3)


def test_a_variance_that_torch_warns_about():
    """Of one row: eager warns in each step."""
    check_step(lambda: (lambda x: (x * 2).std(0).sum() + x.var(1).sum(), leaf(1, 3)), breaks=1, backward=None,
               graphs=2)


@pytest.mark.breaks(data_dependent_value=1)
def test_a_loss_that_is_printed():
    def make():
        model, losses = nn.Linear(4, 1), []

        def f(x):
            loss = model(x).pow(2).mean()
            losses.append(loss.item())
            return loss * 2
        return Program(f, torch.randn(3, 4), watch=[model])
    check_step(make, breaks=None, graphs=2)


def test_a_disabled_function_in_the_middle():
    def make():
        model = nn.Linear(4, 4)

        @framejit.disable
        def plainly(y):
            return y * y.detach().norm()
        return Program(lambda x: plainly(model(x)).sin(), leaf(3, 4), watch=[model])
    check_step(make, breaks=1, graphs=2)
