"""backward() and torch.autograd.grad() inside of compiled code: one graph, `.grad` as eager leaves it."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from steps import Program, check_step, leaf, mlp


def inner(fn, *inputs, watch=(), make_inputs=None, step=None):
    """A program whose backward is in `fn`. What it accumulates stays from step to step."""
    return Program(fn, *inputs, watch=watch, make_inputs=make_inputs, zero=False,
                   step=step or (lambda run, args, k: run(*args)))


def check_inner(make, **options):
    return check_step(make, **{"backward": None, "graphs": None, **options})


# ---- grad()


def of_two_leaves(x, w):
    y = (x * w).sin().sum()
    return torch.autograd.grad(y, [x, w]), y


def of_one(x, w):
    [slope] = torch.autograd.grad((x * w).exp().sum(), x)
    return x - 0.1 * slope


def of_an_activation(x, w):
    h = (x * w).tanh()
    [slope] = torch.autograd.grad((h * h).sum(), h)
    return slope


def with_gradients_given(x, w):
    return torch.autograd.grad([x * w, x.sin()], [x, w], [torch.ones_like(x), w.detach()])


def unused(x, w):
    return torch.autograd.grad((x * 2).sum(), [x, w], allow_unused=True)


def unused_as_zeros(x, w):
    return torch.autograd.grad((x * 2).sum(), [x, w], materialize_grads=True)


def twice(x, w):
    y = (x * w).sin().sum()
    [a] = torch.autograd.grad(y, x, retain_graph=True)
    [b] = torch.autograd.grad(y, w)
    return a, b


@pytest.mark.parametrize("fn", [of_two_leaves, of_one, of_an_activation, with_gradients_given, unused, unused_as_zeros,
                                twice], ids=lambda f: f.__name__)
def test_grad(fn):
    check_inner(lambda: inner(fn, leaf(4, 3), leaf(4, 3)), graphs=1)


def test_grad_of_activations_from_outside():
    def make():
        a, b = leaf(4, 3), leaf(4, 3)
        return inner(of_two_leaves, make_inputs=lambda k: (a * 2, b.exp()), watch=[a, b])
    check_inner(make, graphs=1)


def test_a_penalty_on_gradients():
    def make():
        model, x = mlp(), torch.randn(5, 3)

        def penalty(x):
            x = x.detach().requires_grad_()
            [g] = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            return (g.norm(2, dim=1) - 1).pow(2).mean()
        return Program(penalty, x, watch=[model])
    check_step(make, graphs=1)


@pytest.mark.breaks(gradient_call=1)
def test_grad_of_what_was_not_used():
    def f(x, w):
        return torch.autograd.grad((x * 2).sum(), w)
    check_inner(lambda: inner(f, leaf(4, 3), leaf(4, 3)), breaks=None)


# ---- backward()


def accumulates(x, w):
    (x * w).sin().sum().backward()


def same_gradient_for_both(x, w):
    (x + w).backward(torch.ones_like(x))


def of_a_sum(x, w):
    (x.sum() + w.mean()).backward()


def transposed(x, w):
    (x.t() @ w).sin().sum().backward()


def in_parts(x, w):
    (x * 2).sum().backward()
    (x * w).sum().backward()


def one_is_frozen(x, w):
    (x * w.detach()).sum().backward()


def only_one(x, w):
    torch.autograd.backward((x * w).sum(), inputs=[x])


def from_two(x, w):
    torch.autograd.backward([x * w, x.exp()], [w.detach(), torch.ones_like(x)])


def keeps_the_graph(x, w):
    y = (x * w).sin().sum()
    y.backward(retain_graph=True)
    y.backward()


def reads_grad(x, w):
    (x * w).sum().backward()
    return x.grad * 2, w.grad.sum()


def zeroes_first(x, w):
    x.grad = None
    (x * w).sum().backward()
    x.grad.mul_(0.5)
    return x.grad


def moves_grad(x, w):
    (x * w).sum().backward()
    x.grad = x.grad.clone() * 2
    w.grad = None


BACKWARDS = [accumulates, same_gradient_for_both, of_a_sum, transposed, in_parts, one_is_frozen, only_one, from_two,
             keeps_the_graph, reads_grad, zeroes_first, moves_grad]


@pytest.mark.parametrize("fn", BACKWARDS, ids=lambda f: f.__name__)
def test_backward(fn):
    check_inner(lambda: inner(fn, leaf(4, 3), leaf(4, 3)), graphs=None, steps=4)


def test_the_first_gradient_and_later_ones_are_two_graphs():
    check_inner(lambda: inner(accumulates, leaf(4, 3), leaf(4, 3)), graphs=2, steps=5)


def test_layouts_of_gradients():
    def make():
        return inner(accumulates, nn.Parameter(torch.randn(3, 4).t()), nn.Parameter(torch.randn(4, 6)[:, ::2]))
    check_inner(make)


def test_the_model_of_a_step():
    def make():
        model = mlp()

        def f(x):
            loss = F.mse_loss(model(x), torch.ones(5, 2))
            loss.backward()
            return loss.detach()
        return inner(f, torch.randn(5, 3), watch=[model])
    check_inner(make, graphs=2)


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
                                       lambda p: torch.optim.SGD(p, 0.05)], ids=["momentum", "plain"])
@pytest.mark.parametrize("to_none", [True, False])
def test_a_whole_step(optimizer, to_none):
    def make():
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2))
        adjust = optimizer(model.parameters())

        def f(x):
            adjust.zero_grad(set_to_none=to_none)
            loss = F.mse_loss(model(x), torch.ones(5, 2))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            adjust.step()
            return loss
        return inner(f, torch.randn(5, 3), watch=[model, adjust])
    check_inner(make, steps=5, breaks=None)


def test_a_step_by_hand_is_one_graph():
    def make():
        model = mlp()

        def f(x):
            for p in model.parameters():
                p.grad = None
            loss = F.mse_loss(model(x), torch.ones(5, 2))
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.1)
            return loss
        return inner(f, torch.randn(5, 3), watch=[model])
    check_inner(make, steps=5, graphs=1)


# ---- what is left of the graph


def test_a_second_backward_outside_is_the_error_of_eager():
    def f(x, w):
        y = (x * w).sin().sum()
        y.backward()
        return y

    def step(run, args, k):
        y = run(*args)
        facts = y.requires_grad, y.is_leaf, y.grad_fn.name()
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            y.backward()
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            (y * 2).backward()
        return facts
    check_inner(lambda: inner(f, leaf(4, 3), leaf(4, 3), step=step))


@pytest.mark.parametrize("asked", [lambda x, w: [w], lambda x, w: [x, w], lambda x, w: [w * 1]],
                         ids=["one", "both", "another"])
def test_grad_of_what_is_freed(asked):
    """Eager's error if the history leads to the requested tensor; None otherwise."""
    def f(x, w):
        y = (w * w).exp()
        y.sum().backward(retain_graph=False)
        return y, x.sin()

    def step(run, args, k):
        outputs = run(*args)
        return torch.autograd.grad([t.sum() for t in outputs], asked(*args), allow_unused=True)
    check_step(lambda: Program(f, leaf(3), leaf(3), step=step), backward=None, breaks=None)


def test_a_gradient_of_a_view_that_was_written():
    """Asking the view for its history replays the op that made it."""
    def f(x):
        h = x * 2
        row = h.narrow(0, 0, 2)[0]
        h[1] = 0.5
        return torch.autograd.grad(row.sum(), x, retain_graph=True)[0], row * 2
    check_step(lambda: Program(f, leaf(3, 4)), breaks=None)


def test_a_second_backward_of_what_saved_nothing():
    def f(x):
        h = -x
        h.sum().backward()
        return h

    def step(run, args, k):
        h = run(*args)
        h.sum().backward()
        return h
    check_step(lambda: inner(f, leaf(4, 3), step=step), graphs=2)


def test_views_of_what_is_freed():
    def f(x):
        h = x.exp()
        h.sum().backward()
        return h.view(-1), h[1]

    def step(run, args, k):
        out = run(*args)
        for t in out:
            with pytest.raises(RuntimeError, match="second time"):
                t.sum().backward()
        return out
    check_inner(lambda: inner(f, leaf(4, 3), step=step))


def test_a_backward_outside_of_a_graph_that_is_kept():
    def f(x, w):
        y = (x * w).sin().sum()
        y.backward(retain_graph=True)
        return y

    def step(run, args, k):
        y = run(*args)
        y.backward()
        return y
    check_step(lambda: inner(f, leaf(4, 3), leaf(4, 3), step=step), graphs=2)


def test_other_outputs_go_backward_outside():
    def f(x, w):
        (x * w).sin().sum().backward()
        return (x * w).cos()

    def step(run, args, k):
        run(*args).sum().backward()
    check_step(lambda: inner(f, leaf(4, 3), leaf(4, 3), step=step), graphs=2)


@pytest.mark.breaks(gradient_call=2)
def test_a_second_backward_inside():
    def f(x):
        y = x.exp().sum()
        y.backward()
        y.backward()
    check_inner(lambda: inner(f, leaf(4, 3)), breaks=None, partial=True)


@pytest.mark.breaks(outside_effect=2)
def test_a_print_after_the_backward(capsys):
    def f(x, w):
        (x * w).sum().backward()
        print("done")
        return x.grad + w.grad
    check_inner(lambda: inner(f, leaf(4, 3), leaf(4, 3)), breaks=None)


# ---- what breaks, and is right


def test_a_history_from_outside():
    def make():
        a = leaf(4, 3)
        return inner(lambda x: x.exp().sum().backward(), make_inputs=lambda k: (a * 2,), watch=[a])
    check_inner(make, breaks=1)

def partly_outside(x, z):
    """z is made of x before the traced code."""
    return torch.autograd.grad((x * z).sum(), x, retain_graph=True)


def all_of_it_outside(x, z):
    return torch.autograd.grad(z.sum(), x, allow_unused=True, retain_graph=True)


def also_of_what_lies_between(x, z):
    return torch.autograd.grad((x * z).sin().sum(), [z, x], retain_graph=True)


@pytest.mark.parametrize("leaf_wanted", [True, False], ids=["leaf", "no leaf"])
@pytest.mark.parametrize("later", [0, 2], ids=["at once", "later"])
@pytest.mark.parametrize("fn", [partly_outside, all_of_it_outside, also_of_what_lies_between],
                         ids=lambda f: f.__name__)
@pytest.mark.fallbacks(run_failed={"later": 2})
@pytest.mark.breaks(gradient_call={"at once": 1})
def test_a_history_from_outside_that_leads_to_what_is_asked(fn, later, leaf_wanted):
    def make():
        a, b = leaf(4, 3), leaf(4, 3)

        def step(run, args, k):
            x = a if leaf_wanted else a * 2
            return run(x, (x if k >= later else b).exp())
        return inner(fn, watch=[a, b], step=step)
    check_inner(make, steps=4, breaks=None, captured=False)


@pytest.mark.parametrize("hook", [lambda x, log: x.register_hook(lambda g: log.append(g.clone()) or g * 2),
                                  lambda x, log: x.register_post_accumulate_grad_hook(lambda p: log.append(1))],
                         ids=["tensor", "post-accumulate"])
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.breaks(gradient_call=1)
def test_leaves_with_hooks(hook, later):
    """A hook that comes after the compile: the call runs plainly."""
    def make():
        x, w, log = leaf(4, 3), leaf(4, 3), []

        def step(run, args, k):
            if k == later:
                hook(x, log)
            run(*args)
            return len(log)
        return inner(accumulates, x, w, step=step)
    check_inner(make, breaks=None, captured=False)


@pytest.mark.fallbacks(run_failed=1)
def test_a_hook_that_comes_after_a_users_backend_has_compiled():
    """Errors of the user's code are the program's. This one is ours, so the call runs plainly too."""
    def f(x):
        return torch.autograd.grad((x * x).sum(), x)[0]
    compiled, seen = framejit.compile(f, backend=lambda graph, examples: lambda *inputs: graph(*inputs)), []
    for hooked in (False, True):
        x = leaf(4, 3)
        if hooked:
            x.register_hook(seen.append)
        assert torch.equal(compiled(x), f(x))
    assert len(seen) == 2 and framejit.stats()["graphs"] == 1


def test_leaves_that_become_one():
    def make():
        x, w = leaf(4, 3), leaf(4, 3)
        return inner(accumulates, make_inputs=lambda k: (x, w) if k < 2 else (x, x), watch=[x, w])
    check_inner(make, steps=4, breaks=None, captured=False)


def test_gradients_that_are_no_plain_ones():
    def f(x):
        (x * 2).sum().backward(create_graph=True)
    check_inner(lambda: inner(f, leaf(4, 3)), steps=1, breaks=1)


# ---- leaves made inside


def adversarial(x, w):
    z = x.detach().requires_grad_()
    [g] = torch.autograd.grad((z * w).sin().sum(), z)
    return x + 0.1 * g.sign(), z.requires_grad, z.is_leaf


def grad_of_a_new_leaf(x, w):
    z = x.detach().clone().requires_grad_(True)
    before = z.grad
    (z * w).sin().sum().backward()
    return before, z.grad * 2


def already(x, w):
    return x.requires_grad_() * w.requires_grad_(True)


def off(x, w):
    return (x.detach().requires_grad_(False) * 2).requires_grad_(False)


@pytest.mark.parametrize("fn", [adversarial, grad_of_a_new_leaf, off], ids=lambda f: f.__name__)
def test_leaves_made_inside(fn):
    check_inner(lambda: inner(fn, leaf(4, 3), leaf(4, 3)))


def test_what_is_a_leaf_already():
    check_step(lambda: (already, leaf(4, 3), leaf(4, 3)))


def test_a_new_leaf_that_leaves():
    def f(x, w):
        z = (x.detach() * 2).requires_grad_()
        return z, z * w

    def step(run, args, k):
        z, y = run(*args)
        y.sum().backward()
        return z, z.grad, z.is_leaf
    check_inner(lambda: inner(f, leaf(4, 3), leaf(4, 3), step=step), breaks=1)


@pytest.mark.nothing_captured
@pytest.mark.breaks(gradient_call=1)
def test_a_view_of_a_new_leaf_leaves():
    def f(x):
        z = (x.detach() * 2).requires_grad_()
        return z[0]
    check_inner(lambda: inner(f, leaf(4, 3)), breaks=None)


def test_stats_say_that_it_is_one_graph():
    x, w = leaf(4, 3), leaf(4, 3)
    framejit.reset()
    step = framejit.compile(of_two_leaves)
    for _ in range(3):
        step(x, w)
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["graph_breaks"] == 0


# ---- writes to parts


WRITES = {"a number": lambda v: v.__setitem__(0, 0), "in place": lambda v: v[0].mul_(2),
          "a view of a view": lambda v: v[:, 1:][0].add_(1)}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("grad", [False, True], ids=["backward", "grad"])
def test_what_was_written_in_part_is_returned(write, grad):
    """The backward frees the function of the write, whose node is part of the result's history."""
    def step(x):
        v = x * 2
        write(v)
        if grad:
            return v, torch.autograd.grad(v.sum(), x)[0]
        v.sum().backward()
        return v
    check_step(lambda: Program(step, leaf(2, 3), step=lambda run, args, k: run(*args)), backward=None, breaks=None)
