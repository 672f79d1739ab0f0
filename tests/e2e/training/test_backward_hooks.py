"""Hooks, saved tensors, checkpoints and functions with their own backward, around compiled code and inside it."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from steps import Program, backward, check_step, leaf, mlp, with_step


# ---- hooks


def seen_by(log, name):
    def hook(g):
        log.append((name, g.clone()))
    return hook


def test_hooks_on_outputs_and_inputs():
    """Between compiled code and the rest: each hook is called once, in order, with eager's gradient."""
    def make():
        model, a = mlp(), leaf(5, 3)

        def step(run, args, k):
            log = []
            x = a * 2
            x.register_hook(seen_by(log, "input"))
            y = run(x)
            y.register_hook(seen_by(log, "output"))
            y.register_hook(lambda g: g * 2)
            y.pow(2).sum().backward()
            return log
        return Program(model, a, step=step)
    check_step(make)


def test_hooks_on_leaves():
    """Hooks are called in eager's order, and may change the gradient."""
    def make():
        model, x, log = mlp(), leaf(5, 3), []
        for name, p in model.named_parameters():
            p.register_hook(seen_by(log, name))
        model[0].weight.register_hook(lambda g: g.clamp(-0.1, 0.1))
        x.register_hook(seen_by(log, "x"))

        def step(run, args, k):
            log.clear()
            run(x).pow(2).sum().backward()
            return list(log)
        return Program(model, x, step=step)
    check_step(make)


@pytest.mark.parametrize("place", ["leaf", "input", "inside", "output", "node before", "node after"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64, torch.int64], ids=str)
def test_hooks_that_return_another_dtype(dtype, place):
    """The engine casts what they return to the dtype of the tensor, or raises."""
    def make():
        x, w = (torch.tensor([0.5, -1.0, 3.0, 1.0009765625], requires_grad=True) for _ in range(2))
        log = []

        def hook(*given):
            log.append(str(given))
            return given[0].to(dtype) if isinstance(given[0], torch.Tensor) else tuple(g.to(dtype) for g in given[0])

        def fn(x, w):
            y = x * w
            if place == "inside":
                y.register_hook(hook)
            return y, y * 3

        def step(run, args, k):
            log.clear()
            inner = x * 2
            for at, t in (("leaf", x), ("input", inner)):
                if place == at and (at == "input" or k == 0):
                    t.register_hook(hook)
            y, z = run(inner, w)
            if place == "output":
                y.register_hook(hook)
            if place == "node before":
                z.grad_fn.register_prehook(hook)
            if place == "node after":
                inner.grad_fn.register_hook(hook)
            torch.autograd.backward([y, z], [torch.ones(4), torch.tensor([0.0, 1.0, -2.0, 0.5])])
            return list(log)
        return Program(fn, x, w, step=step, watch=[x, w])
    breaks = int(place == "inside")
    check_step(make, breaks=breaks, graphs=1 + breaks, backward=None)


def test_hooks_that_come_and_go():
    def make():
        model, x, log = mlp(), leaf(5, 3), []

        def step(run, args, k):
            log.clear()
            handle = model[0].weight.register_hook(seen_by(log, k)) if k % 2 else None
            y = run(x)
            later = model[2].weight.register_hook(seen_by(log, "between")) if k % 3 == 2 else None
            y.pow(2).sum().backward()
            for h in (handle, later):
                if h is not None:
                    h.remove()
            return list(log)
        return Program(model, x, step=step)
    check_step(make, steps=6)


@pytest.mark.breaks(gradient_call=2)
def test_hooks_on_activations():
    """Registered inside compiled code."""
    def make():
        model, x, log = mlp(), leaf(5, 3), []

        def f(x):
            y = model[0](x)
            y.register_hook(seen_by(log, "inside"))
            y.register_hook(lambda g: g + 1)
            return model[2](y.tanh())

        def step(run, args, k):
            log.clear()
            run(x).pow(2).sum().backward()
            return list(log)
        return Program(f, x, step=step, watch=[model])
    check_step(make, breaks=None, graphs=2)


def test_post_accumulate_hooks():
    """The optimizer in backward."""
    def make():
        model, x = mlp(), torch.randn(5, 3)
        optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}

        def update(p):
            optimizers[p].step()
            optimizers[p].zero_grad()
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)

        def step(run, args, k):
            loss = run(x).pow(2).sum()
            loss.backward()
            return loss, [p.grad for p in model.parameters()]
        return Program(model, x, step=step)
    check_step(make, steps=4)


def test_the_order_of_leaves():
    def make():
        model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])
        x, log = leaf(5, 3), []
        for name, p in [*model.named_parameters(), ("x", x)]:
            p.register_post_accumulate_grad_hook(lambda p, n=name: log.append((n, p.grad.sum())))

        def step(run, args, k):
            log.clear()
            run(x).pow(2).sum().backward()
            return list(log)
        return Program(model, x, step=step)
    check_step(make)


def test_gradients_come_before_the_backward_ends():
    """When a hook of a late layer runs, those of early layers have no gradient yet: eager's stages."""
    def make():
        model, x = nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)]), torch.randn(5, 3)
        ready = []
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: ready.append([q.grad is not None
                                                                         for q in model.parameters()]))

        def step(run, args, k):
            ready.clear()
            run(x).pow(2).sum().backward()
            return list(ready)
        return Program(model, x, step=step)
    check_step(make)


@pytest.mark.breaks(unknown_attribute=6, unknown_callable=3)
def test_module_backward_hooks():
    def make():
        model, x, log = mlp(), leaf(5, 3), []
        model[0].register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
        model.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))

        def step(run, args, k):
            log.clear()
            run(x).pow(2).sum().backward()
            return list(log)
        return Program(model, x, step=step)
    check_step(make, breaks=None, backward=None, graphs=5)


def test_an_exception_in_a_hook():
    def make():
        model, x = mlp(), leaf(5, 3)

        def refuse(g):
            raise ValueError("not this one")
        handle = model[0].weight.register_hook(refuse)

        def step(run, args, k):
            if k == 2:
                handle.remove()
            run(x).pow(2).sum().backward()
        return Program(model, x, step=step)
    check_step(make, steps=4, backward=None, partial=True)


@pytest.mark.breaks(gradient_call=1)
def test_retain_grad():
    def make():
        model, x = mlp(), leaf(5, 3)

        def f(x):
            y = model[0](x)
            y.retain_grad()
            return y, model[2](y.tanh())

        def step(run, args, k):
            y, z = run(x)
            z.retain_grad()
            z.pow(2).sum().backward()
            return y.grad, z.grad, y.retains_grad
        return Program(f, x, step=step, watch=[model])
    check_step(make, breaks=None, backward=None, graphs=2)


# ---- views that other outputs are computed from


def of_an_input(x):
    v = x.t()
    return v, (v * v).sum()


def all_of_an_input(x):
    v = x[:]
    return v, v * v, x * 2


def of_an_output(x):
    h = x.sigmoid()
    v = h.view(-1)
    return h, v, (v * h.mean()).mean()


def part_of_what_is_inside(x):
    v = x.sin()[1:]
    return v, v.exp() * v


def one_of_several(x):
    a, b = (x * 2).chunk(2)
    return a, (a * b).sum()


def view_of_a_view(x):
    u = x.exp().view(-1)
    v = u[1:]
    return u, v, v * 2


def only_views(x):
    u = x.unsqueeze(0)
    return u, u.transpose(0, 1)


def written_before(x):
    h = x * 2
    h.view(-1)[1:].mul_(3)
    v = h.t()
    return h, v, v.square()


def not_dense(x):
    v = x.exp().t()[:, ::2]
    return v, v * v


VIEWS = [of_an_input, all_of_an_input, of_an_output, part_of_what_is_inside, one_of_several, view_of_a_view, only_views,
         not_dense]


def asks_of_views(run, args, k, second=True):
    """Every output has a hook that scales; a later one goes backward to the first; then all of them do."""
    log, outputs = [], run(*args)
    for i, t in enumerate(outputs):
        t.register_hook(lambda g, i=i: log.append((i, g.clone())) or g * (i + 2))
        t.retain_grad()
    taken = torch.autograd.grad(outputs[-1].sum(), outputs[0], retain_graph=True, create_graph=second and k == 2)
    backward(outputs)
    return taken, [t.grad for t in outputs], sorted(log, key=lambda pair: pair[0]), [t.grad_fn.name() for t in outputs]


@pytest.mark.parametrize("leaf_given", [True, False], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("fn", VIEWS, ids=lambda f: f.__name__)
def test_views_that_others_are_made_of(fn, leaf_given):
    def make():
        x = leaf(4, 3)
        if leaf_given:
            return Program(fn, x, step=asks_of_views)
        return Program(fn, make_inputs=lambda k: (x * 1,), watch=[x], step=asks_of_views)
    check_step(make, graphs=1, backward=None, strides=False)


def of_a_written_input(x):
    x.mul_(2)
    v = x.t()
    return v, v * v


def all_of_a_written_input(x):
    v = x[:]
    v.mul_(2)
    return v, x * 2, v * 3


def of_an_input_written_later(x):
    v = x.t()
    y = v * 3
    x.add_(1)
    return v, y, v.square()


def of_parts_of_a_written_input(x):
    x[0] = x[1].exp()
    a, b = x.chunk(2, -1)
    return a, b, a * b, x.sum()


def asks_once(run, args, k):
    """Without second derivatives, which a forward that writes its input does not have."""
    return asks_of_views(run, args, k, second=False)


@pytest.mark.parametrize("fn", [of_a_written_input, all_of_a_written_input, of_an_input_written_later,
                                of_parts_of_a_written_input], ids=lambda f: f.__name__)
def test_views_of_a_written_input(fn):
    def make():
        x = leaf(4, 4)
        return Program(fn, make_inputs=lambda k: (x * 1,), watch=[x], step=asks_once)
    check_step(make, graphs=1, backward=None, strides=False)


def test_views_of_an_input_that_gets_its_history_here():
    def fill_parts(x, w):
        x.masked_fill_(x > 0, 0.5).mul_(w)
        v = x.chunk(2, -1)[1]
        return v, (v + 3) * w

    def make():
        x, w = leaf(4, 4).detach(), leaf(4, 1)
        return Program(fill_parts, make_inputs=lambda k: (x.clone(), w), watch=[w], step=asks_once)
    check_step(make, graphs=1, backward=None, strides=False)


def test_a_write_to_a_view_that_others_are_made_of():
    def step(run, args, k):
        h, v, y = run(*args)
        (h if k else v).mul_(2)
        (y if k else v).sum().backward()
        return h, v, h._version, v._version, v._base is h
    check_step(lambda: Program(of_an_output, leaf(4, 3), step=step), backward=None)


# ---- saved tensors, checkpoints, functions


def test_saved_tensors_hooks_around():
    """Each saved value is packed and unpacked once, and what the hooks return is used."""
    def make():
        model, x = mlp(), leaf(5, 3)

        def step(run, args, k):
            packed = []

            def pack(t):
                packed.append(0)
                return len(packed) - 1, t.detach().clone()

            def unpack(kept):
                packed[kept[0]] += 1
                return kept[1]
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss = run(x).pow(2).sum()
            loss.backward()
            return len(packed) > 0, set(packed) <= {0, 1}
        return Program(model, x, step=step)
    check_step(make, breaks=None, backward=None)


def test_an_unpack_hook_that_raises():
    """Its error reaches the caller, though several values are saved."""
    model = torch.nn.Linear(6, 6)
    f = framejit.compile(lambda x: torch.nn.functional.gelu(model(x)).sum())

    def unpack(kept):
        raise ValueError("unpack")
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
            loss = f(leaf(3, 6))
        with pytest.raises(ValueError, match="^unpack$"):
            loss.backward()


LIE_OTHERWISE = {"contiguous": lambda t: t.detach().contiguous(), "transposed": lambda t: t.detach().mT.clone().mT,
                 "spread": lambda t: t.detach().repeat_interleave(2, -1)[..., ::2]}


@pytest.mark.parametrize("give", LIE_OTHERWISE)
def test_hooks_give_values_that_lie_otherwise(give):
    """As torch.autograd.graph.save_on_cpu does, which makes all values contiguous."""
    def step(run, args, k):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, LIE_OTHERWISE[give]):
            y = run(args[0].t(), args[1])
        y.sum().backward()
        return y
    check_step(lambda: Program(lambda x, w: (x * w).tanh() * w @ x.t().exp(), leaf(3, 5), leaf(5, 3), step=step))


def test_a_hook_gives_other_sizes():
    """No plan can read it. Eager's formulas may broadcast it."""
    run, x = framejit.compile(lambda x: x * x), leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: torch.ones(1)):
        y = run(x)
    with pytest.raises(RuntimeError, match="a saved-tensor hook gave back a tensor of other sizes"):
        y.sum().backward()


def test_values_saved_on_the_cpu():
    def make():
        model, x = mlp(), leaf(5, 3)

        def step(run, args, k):
            with torch.autograd.graph.save_on_cpu():
                loss = run(x).pow(2).sum()
            loss.backward()
            return loss
        return Program(model, x, step=step)
    check_step(make, breaks=None, backward=None)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_checkpoint_inside(reentrant, dropout):
    def make():
        block = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Dropout(dropout), nn.Linear(8, 3))

        def f(x):
            return checkpoint(block, x, use_reentrant=reentrant).sin() * 2
        return Program(f, leaf(5, 3), watch=[block])
    check_step(make, graphs=1, backward_graphs=1)


@pytest.mark.parametrize("reentrant", [pytest.param(False, marks=pytest.mark.nothing_captured), True])
@pytest.mark.breaks(modes_unsupported={"False": 1})
def test_checkpoint_of_compiled_code(reentrant):
    """The recomputation runs the same compiled code, with the same random numbers."""
    def make():
        block = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3))
        x = leaf(5, 3)

        def step(run, args, k):
            loss = checkpoint(run, x, use_reentrant=reentrant).pow(2).sum()
            loss.backward()
            return loss
        return Program(block, x, step=step)
    check_step(make, breaks=None, backward=None, captured=reentrant, graphs=None)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0] * ctx.k + 1, None  # one too much, which shows whose rule is used


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round(), x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, _):
        return g


class Silent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return g, None


@pytest.mark.parametrize("f", [lambda x: Scaled.apply(x * 2, 3).sin(), lambda x: StraightThrough.apply(x * 3)[0] * x,
                               lambda x: Silent.apply(x * 2, x.exp())], ids=["scaled", "straight through", "silent"])
def test_functions_with_a_backward_of_their_own(f):
    check_step(lambda: (f, leaf(4, 3)), breaks=None, backward=None)


# ---- inside of compiled code


def test_grad_inside():
    def f(x, w):
        y = (x * w).sin().sum()
        return torch.autograd.grad(y, [x, w]), y
    check_step(lambda: (f, leaf(4, 3), leaf(4, 3)), graphs=1, backward=None)


def test_grad_inside_with_create_graph():
    def f(x):
        [slope] = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
        return (slope * x).sum()
    check_step(lambda: (f, leaf(4, 3)), graphs=1)


def test_backward_inside():
    def make():
        model = mlp()

        def f(x):
            loss = F.mse_loss(model(x), x.new_ones(5, 2))
            loss.backward()
            return loss.detach()
        return Program(f, torch.randn(5, 3), step=lambda run, args, k: run(*args), watch=[model], zero=False)
    check_step(make, graphs=2, backward=None)


def test_a_whole_step_inside():
    def make():
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

        def f(x):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x.new_ones(5, 2))
            loss.backward()
            optimizer.step()
            return loss.detach()
        return Program(f, torch.randn(5, 3), step=lambda run, args, k: run(*args), watch=[model], zero=False)
    check_step(make, steps=4, breaks=None, backward=None, graphs=2)


def test_what_a_user_can_ask_of_an_output():
    def step(y, x, k):
        facts = y.requires_grad, y.is_leaf, y.grad_fn is not None, y.grad, y.retains_grad, y._is_view()
        y.sum().backward()
        return facts
    check_step(with_step(step))


def test_outputs_that_are_written_by_the_user():
    """An in-place op on an output of compiled code is recorded after it."""
    def step(y, x, k):
        y.mul_(2)
        y[0].add_(x[0, :2])
        backward(y)
        return y
    check_step(with_step(step))
