"""The backward of compiled code as users call it: ways to call it, errors, threads, double backward, anomaly mode."""
import copy
import gc
import json
import re
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn

import framejit
import programs
from steps import Program, check_step, cotangent, leaf, mlp, with_step


# ---- ways to call it


def test_grad_outside():
    def step(y, x, k):
        return torch.autograd.grad(y.sum(), x), y
    check_step(with_step(step))


def test_grad_of_several_with_weights():
    def make():
        a, b = leaf(4, 3), leaf(4, 3)

        def step(run, args, k):
            y, z = run(a, b)
            first = torch.autograd.grad([y, z], [b, a], [cotangent(y), cotangent(z)], retain_graph=True)
            return first, torch.autograd.grad(z.sum(), [a, b], allow_unused=True), y
        return Program(lambda a, b: (a * b, a.sin()), a, b, step=step)
    check_step(make, backward_graphs=2)


def test_grad_of_what_is_unused_is_the_error_of_eager():
    def make():
        a, b = leaf(3), leaf(3)
        return Program(lambda a, b: a * 2, a, b, step=lambda run, args, k: torch.autograd.grad(run(a, b).sum(), b))
    check_step(make, breaks=None, backward=None)


def test_grad_of_what_is_unused_as_zeros():
    def make():
        a, b = leaf(3), leaf(3)
        return Program(lambda a, b: (a * 2, b.exp()), a, b, step=lambda run, args, k: torch.autograd.grad(
            run(a, b)[0].sum(), [a, b], allow_unused=True, materialize_grads=k % 2 == 1))
    check_step(make)


def test_backward_of_some_inputs():
    def make():
        model, x = mlp(), leaf(5, 3)

        def step(run, args, k):
            run(x).sum().backward(inputs=[[x], [model[0].weight, model[2].bias], list(model.parameters())][k % 3])
        return Program(model, x, step=step)
    check_step(make, steps=6)


def test_backward_with_a_weight():
    def step(y, x, k):
        y.backward(torch.full_like(y, k + 0.5))
    check_step(with_step(step))


def test_a_weight_of_other_strides():
    def step(y, x, k):
        y.backward([torch.ones(2, 5).t(), torch.ones(1).expand(5, 2), torch.ones(5, 4)[:, ::2]][k % 3])
    check_step(with_step(step), steps=6)


def test_retain_graph():
    def step(y, x, k):
        loss = y.pow(2).sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        first = x.grad.clone()
        loss.backward()
        return first
    check_step(with_step(step), backward=9)


def test_a_second_backward_is_the_error_of_eager():
    def step(y, x, k):
        loss = y.pow(2).sum()
        loss.backward()
        loss.backward()
    check_step(with_step(step), backward=None)


def test_a_second_backward_through_one_of_two_outputs():
    """The first backward frees what both outputs need, as in eager."""
    def make():
        x = leaf(4, 3)

        def step(run, args, k):
            y, z = run(x)
            y.sum().backward()
            z.sum().backward()
        return Program(lambda x: ((x * x).sin(), (x * x).sin().exp()), x, step=step)
    check_step(make, backward=None)

    def shared():
        x = leaf(4, 3)

        def f(x):
            a = x.exp()
            return a.sin(), a.cos()
        return Program(f, x, step=lambda run, args, k: [out.sum().backward() for out in run(x)])
    check_step(shared, backward=None)


@pytest.mark.parametrize("fn", [torch.sin, torch.abs, torch.log, torch.nn.functional.gelu], ids=lambda f: f.__name__)
def test_a_second_backward_misses_what_the_formula_makes_of_it(fn):
    """The gradient is multiplied by the cosine of a saved value, never by the saved value itself."""
    def step(run, args, k):
        y, z = run(*args)
        y.sum().backward()
        z.sum().backward()

    def f(x):
        h = fn(x * x + 1)
        return h.amax(-1), h.clone()
    check_step(lambda: Program(f, leaf(3, 3), step=step), steps=1, backward=None)


@pytest.mark.parametrize("later", [lambda outputs, c: (c.detach().add_(1), outputs[2].sum().backward())])
def test_a_view_without_grad_mode_is_a_leaf(later):
    """Nobody sees its gradient, but the values that its formula keeps count."""
    def f(w, c):
        h = w * 2
        with torch.no_grad():
            row = h[0]
        s = torch.nn.functional.softplus(row)
        return s.tanh(), s * 3, h.sin() * (c * row).sum()

    def step(run, args, k):
        outputs = run(*args)
        later(outputs, args[1])
    check_step(lambda: Program(f, leaf(3, 3), leaf(3), step=step), steps=1, backward=None)


def test_two_losses_one_after_the_other():
    """They share no saved values: neither needs retain_graph."""
    def make():
        x, w = leaf(4, 3), leaf(4, 3)

        def step(run, args, k):
            y, z = run(x, w)
            y.sum().backward()
            z.sum().backward()
        return Program(lambda x, w: ((x * 2).sin(), (w * 3).exp()), x, w, step=step)
    check_step(make, backward=6)


def test_two_losses_that_share_what_is_not_saved():
    """A sum saves nothing, so both backwards succeed."""
    def make():
        x = leaf(4, 3)

        def f(x):
            a = x + 1
            return a.sin(), a * 2
        return Program(f, x, step=lambda run, args, k: [out.sum().backward() for out in run(x)])
    check_step(make, backward=6)


@pytest.mark.nothing_captured  # here: a process of its own, which once died
def test_a_loss_and_then_what_it_was_made_from():
    """The first backward frees the number that the product has saved, so the second one raises, as in eager."""
    code = ("import torch, framejit; f = lambda c: (lambda t: (t, t.sin()))(c * 2); "
            "c = torch.ones(3, requires_grad=True); a, b = framejit.compile(f)(c); "
            "b.sum().backward(); print(c.grad.tolist(), flush=True); a.sum().backward()")
    done = programs.run(code)
    assert done.returncode == 1 and "backward through the graph a second time" in done.stderr, done.stderr[-500:]
    got = torch.tensor(json.loads(done.stdout.splitlines()[-1]))
    torch.testing.assert_close(got, torch.full((3,), 2 * torch.tensor(2.0).cos().item()))


def test_gradients_accumulate():
    """Into the same tensors; one of them is the user's own."""
    def make():
        model, x = mlp(), leaf(5, 3)
        kept = []

        def step(run, args, k):
            if k == 0:
                model[0].bias.grad = torch.ones(4)
            for _ in range(3):
                run(x).pow(2).sum().backward()
            grads = [p.grad for p in model.parameters()]
            kept.append([id(g) for g in grads])
            return len({tuple(ids) for ids in kept}), [g._version > 0 for g in grads]
        return Program(model, x, step=step, zero=False)
    check_step(make, backward=9)


def test_gradients_that_are_set_to_zero():
    def make():
        model, x = mlp(), torch.randn(5, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(run, args, k):
            optimizer.zero_grad(set_to_none=k % 2 == 0)
            run(x).pow(2).sum().backward()
        return Program(model, x, step=step, zero=False)
    check_step(make, steps=4)


def test_what_is_accumulated_is_nobody_elses():
    """A gradient that autograd keeps shares no memory with another, nor with an output."""
    def make():
        a, b = leaf(3), leaf(3)

        def step(run, args, k):
            y = run(a, b)
            y.sum().backward()
            memories = {t.untyped_storage().data_ptr() for t in (a.grad, b.grad, y)}
            a.grad.zero_()
            return len(memories), b.grad
        return Program(lambda a, b: a + b, a, b, step=step)
    check_step(make)


def test_backward_from_another_thread():
    def step(y, x, k):
        loss, errors = y.pow(2).sum(), []

        def work():
            try:
                loss.backward()
            except Exception as error:
                errors.append(error)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return errors
    check_step(with_step(step), float64=False)


@pytest.mark.fallbacks(compile_running=range(400))  # of the calls that came while the other thread compiled
def test_two_models_at_once():
    """Forward and backward of each in its own thread, with shared code."""
    runs = [framejit.compile(mlp()) for _ in range(4)]
    plain = [copy.deepcopy(run) for run in runs]
    x, errors = torch.randn(5, 3), []

    def work(model):
        try:
            for _ in range(10):
                model(x).pow(2).sum().backward()
        except Exception as error:
            errors.append(error)
    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for run, model in zip(runs, plain):
        model = framejit.disable(model)
        for _ in range(10):
            model(x).pow(2).sum().backward()
        for p, q in zip(run.parameters(), model.parameters()):
            torch.testing.assert_close(p.grad, q.grad)


def test_a_model_that_is_deleted_between_forward_and_backward():
    x = leaf(5, 3)
    for _ in range(3):
        torch.manual_seed(0)
        model = mlp()
        want = torch.autograd.grad(model(x).sum(), x)[0]
        compiled = framejit.compile(model)
        y = compiled(x)
        gone = weakref.ref(model)
        del model, compiled
        gc.collect()
        assert gone() is None, "a graph keeps parameters, no module"
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], want)
        del y


def test_a_reset_between_forward_and_backward():
    model, x = mlp(), leaf(5, 3)
    want = torch.autograd.grad(model(x).sum(), x)[0]
    compiled = framejit.compile(model)
    for _ in range(3):
        y = compiled(x)
        framejit.reset()
        gc.collect()
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], want)
    compiled(x)  # for the count of graphs: reset() has dropped the earlier ones


def test_outputs_that_are_dropped_free_what_was_saved():
    model = mlp(64)
    compiled = framejit.compile(model)
    for _ in range(3):
        x = torch.randn(1000, 3, requires_grad=True)
        y = compiled(x)
        gone = weakref.ref(x)
        del x
        y.sum().backward()
        del y
        gc.collect()
        assert gone() is None


# ---- errors


def changed_after(change, target, *shapes):
    def make():
        tensors = [leaf(*shape) for shape in shapes]

        def step(run, args, k):
            inputs = [t * 1 for t in tensors]
            y = run(*inputs)
            with torch.no_grad():
                change(inputs, y)
            y.sum().backward()
        return Program(target, step=step, watch=tensors)
    return make


def halved(a):
    with torch.no_grad():
        a.mul_(0.5)
    return a ** 2


CHANGES = {
    "an input that the forward wrote": (lambda inputs, y: inputs[0].add_(1), halved, (3,)),
    "the same, unchanged": (lambda inputs, y: None, halved, (3,)),
    "an input of a product": (lambda inputs, y: inputs[0].add_(1), lambda a, b: a @ b, (3, 3), (3, 3)),
    "an output that is saved": (lambda inputs, y: y.mul_(2), lambda a: (a * 2).exp(), (3,)),
    "an input of a chain": (lambda inputs, y: inputs[0].zero_(), lambda a: a.sin() * 2 + 1, (3,)),
    "an input that is not saved": (lambda inputs, y: inputs[0].zero_(), lambda a: (a + 1).exp() * 2, (3,)),
    "through a view": (lambda inputs, y: inputs[0][1:].zero_(), lambda a, b: (a * b).tanh(), (3,), (3,)),
    "by a version alone": (lambda inputs, y: torch.autograd.graph.increment_version(inputs[0]),
                           lambda a, b: a * b, (3,), (3,)),
    "by data, which is not seen": (lambda inputs, y: inputs[0].data.zero_(), lambda a, b: a * b, (3,), (3,)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_saved_tensor_that_is_changed(name):
    """There is an error exactly where eager raises one. Compiled code does not rely on any tensor that eager does not
    save."""
    change, target, *shapes = CHANGES[name]
    check_step(changed_after(change, target, *shapes), backward=None)


def stepped(w, seen):
    seen.mul_(2).add_(1)
    return w * seen


def stepped_in_part(w, seen):
    part = seen[1:]
    seen.copy_(w.detach())
    return w[1:] * part


@pytest.mark.parametrize("fn", [stepped, stepped_in_part, lambda w, seen: w + seen.mul_(2)])
@pytest.mark.parametrize("later", [False, True])
def test_an_input_that_the_forward_writes_is_changed_again(fn, later):
    def make():
        w, seen = leaf(3), torch.ones(3)

        def step(run, args, k):
            y = run(w, seen)
            if later:
                seen[0] = 5
            y.sum().backward()
        return Program(fn, step=step, watch=[w, seen])
    check_step(make, backward=None)


def test_a_parameter_that_is_changed_between_forward_and_backward():
    def make():
        model, x = mlp(), leaf(5, 3)

        def step(run, args, k):
            y = run(x)
            with torch.no_grad():
                model[[0, 2][k % 2]].weight.mul_(2)
            y.sum().backward()
        return Program(model, x, step=step)
    check_step(make, steps=4, backward=None)


@pytest.mark.nothing_captured
@pytest.mark.breaks(no_backward=1)
def test_a_saved_tensor_changed_inside():
    def f(x):
        y = x.exp()
        z = y * 2
        y.add_(1)
        return z
    check_step(lambda: (f, leaf(3)), breaks=None, backward=None, graphs=0)


@pytest.mark.parametrize("weight", [torch.ones(3, 2), torch.ones(5), torch.ones(5, 2, dtype=torch.float64),
                                    torch.ones(5, 2, dtype=torch.long), None], ids=str)
def test_a_gradient_of_the_wrong_shape(weight):
    def step(y, x, k):
        y.backward(weight)
    check_step(with_step(step), backward=None)


def test_a_loss_that_needs_no_gradient():
    def step(y, x, k):
        y.detach().sum().backward()
    check_step(with_step(step), backward=False)


# ---- double backward


def penalty(run, args, k, x):
    y = run(x)
    [slope] = torch.autograd.grad(y.sum(), x, create_graph=True)
    loss = ((slope.norm(dim=1) - 1) ** 2).mean() + y.pow(2).mean()
    loss.backward()
    return loss, slope


def test_gradient_penalty():
    def make():
        model, x = mlp(), leaf(5, 3)
        return Program(model, x, step=lambda run, args, k: penalty(run, args, k, x))
    check_step(make, breaks=None, backward=None)


def test_gradient_penalty_with_dropout():
    """The second order sees the masks of the first."""
    def make():
        model, x = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)), leaf(5, 3)
        return Program(model, x, step=lambda run, args, k: penalty(run, args, k, x))
    check_step(make, breaks=None, backward=None)


def test_third_order():
    def make():
        x = leaf(4)

        def step(run, args, k):
            orders = [run(x).sum()]
            for _ in range(3):
                orders.append(torch.autograd.grad(orders[-1], x, create_graph=True)[0].sum())
            return orders
        return Program(lambda x: (x * x.sin()).exp(), x, step=step)
    check_step(make, breaks=None, backward=None)


def test_a_hessian():
    def make():
        x = leaf(4)

        def step(run, args, k):
            return torch.autograd.functional.hessian(lambda v: run(v).sum(), x)
        return Program(lambda x: (x ** 3).cos(), x, step=step)
    check_step(make, breaks=None, backward=None)


def test_double_backward_after_an_input_is_gone():
    """create_graph with a temporary input that nobody else holds: the first call may raise an error that says so; from
    then on, the code runs plainly."""
    w = leaf(3)

    def second_order(run):
        [slope] = torch.autograd.grad(run(w * 2).sum(), w, create_graph=True)
        return torch.autograd.grad(slope.sum(), w)[0]
    want = second_order(lambda x: x.sin().exp())
    run = framejit.compile(lambda x: x.sin().exp())
    try:
        second_order(run)
    except RuntimeError as error:
        assert "create_graph" in str(error) and "L['x']" in str(error)
    for _ in range(3):
        torch.testing.assert_close(second_order(run), want)


@pytest.mark.parametrize("fn", [torch.relu, torch.tanh, torch.sigmoid, torch.exp, lambda x: x.softmax(-1), torch.sqrt,
                                lambda x: (x.sigmoid(), x.tanh()), lambda x: (x + 1).tanh()])
def test_double_backward_of_what_keeps_its_result(fn):
    """Eager needs no input of such ops, so it may be gone, for example if each layer is compiled by itself."""
    w = leaf(2, 3)

    def orders(run):
        y = run((w * w + 0.5).clone())
        y = sum(t.square().sum() for t in y) if isinstance(y, tuple) else y.square().sum()
        [slope] = torch.autograd.grad(y, w, create_graph=True)
        return slope.detach(), torch.autograd.grad(slope.square().sum(), w)[0]
    run = framejit.compile(fn)
    for _ in range(2):
        torch.testing.assert_close(orders(run), orders(fn))
    assert framejit.stats()["graphs"] == 1 and not framejit.stats()["fallbacks"]


@pytest.mark.parametrize("fn", [lambda x: x * 2, lambda x: x / 2, lambda x: 2 / x, lambda x: x + 1, lambda x: x - 1,
                                lambda x: torch.cat([x[:1], x[1:] * 2]), lambda x: (x + 1).sum(), lambda x: -x])
def test_a_second_backward_misses_numbers_too(fn):
    """A product keeps its number, a sum keeps nothing."""
    def step(run, args, k):
        x, = args
        y = run(x)
        for _ in range(2):
            y.sum().add(0).backward()
        return y
    check_step(lambda: Program(fn, leaf(3), step=step), steps=1, backward=None)


# ---- anomaly mode


@pytest.mark.breaks(modes_unsupported=1)
def test_nan_under_anomaly_mode():
    """The error is eager's; the warning names the forward line."""
    def run_once(f):
        x = torch.zeros(3, requires_grad=True)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            with torch.autograd.detect_anomaly(check_nan=True):
                with pytest.raises(RuntimeError, match="returned nan values") as raised:
                    (f(x) * torch.zeros(3)).sum().backward()
        return str(raised.value), "\n".join(str(w.message) for w in given)

    def f(x):
        y = x + 1 - 1
        return y.sqrt()  # the line that has no finite gradient
    want, told = run_once(f)
    assert "sqrt()" in told
    compiled = framejit.compile(f)
    for _ in range(3):
        got, told = run_once(compiled)
        assert re.sub(r"'\w+'", "", got) == re.sub(r"'\w+'", "", want)
        assert "y.sqrt()" in told, told
    framejit.compile(lambda x: x + 1)(torch.ones(3))


def test_anomaly_mode_without_nan():
    def step(y, x, k):
        with torch.autograd.set_detect_anomaly(k % 2 == 0):
            y.pow(2).sum().backward()
    check_step(with_step(step), breaks=None)


def detached(x):
    return x.sin() * x.detach() + x.cos() * (x * 2).detach()


def an_island(x):
    with torch.no_grad():
        scale = x.exp().sum()
        same = x.sin()
    return x.sin() * scale + same * x.pow(3)


def a_slope_without_history(x):
    [slope] = torch.autograd.grad(x.pow(3).sum(), x)
    return slope * x.sin()


@pytest.mark.parametrize("f", [detached, an_island, a_slope_without_history], ids=lambda f: f.__name__)
def test_constants_of_a_second_derivative(f):
    """Values without a history are constants to the second derivative too."""
    def make():
        x = leaf(4)

        def step(run, args, k):
            [slope] = torch.autograd.grad(run(x).sum(), x, create_graph=True)
            [bend] = torch.autograd.grad(slope.sum(), x)
            return slope, bend
        return Program(f, x, step=step)
    check_step(make, breaks=None, backward=None)
