"""Gradient modes that are set inside a traced function: in force for what follows, in the graph, and at the end as
eager leaves them."""
import pytest
import torch

import framejit
from check import backend, check, fresh, same  # noqa: F401


def on(*values):
    """The modes in force here, together with the values."""
    return (*values, torch.is_grad_enabled())


def with_blocks(x):
    with torch.set_grad_enabled(True):
        a = on(x + 1)
        with torch.no_grad():
            b = on(x * 2)
        c = on(x - 1)
    with torch.set_grad_enabled(False), torch.enable_grad():
        d = on(x * 3)
    return a, b, c, d, on()


def plain_calls(x):
    seen = [on()]
    before = torch.is_grad_enabled()
    for mode in (True, False, True):
        torch.set_grad_enabled(mode)
        x = x + 1
        seen.append(on(x))
    torch.set_grad_enabled(mode=before)
    return seen, on()


def manager_entered_by_hand(x):
    manager = torch.enable_grad()
    manager.__enter__()
    a = on(x + 1)
    manager.__exit__(None, None, None)
    return a, on(x * 2)


@torch.enable_grad()
def enabled(x):
    return on(x + 1)


@torch.set_grad_enabled(True)
def set_enabled(x):
    return on(x + 2)


@torch.no_grad()
def disabled(x):
    return on(x + 3)


@torch.enable_grad
def bare(x):
    return on(x + 4)


def decorated_callees(x):
    return enabled(x), set_enabled(x), disabled(x), bare(x), on()


@torch.enable_grad()
def generate(x):
    for k in range(3):
        yield on(x * k)


def decorated_generator(x):
    seen = []
    for value in generate(x):
        seen.append((value, on()))
    return seen, on()


def left_by_an_exception(x):
    try:
        with torch.enable_grad():
            x = x + 1
            raise ValueError
    except ValueError:
        return on(x * 2)


def left_by_return_and_break(x):
    def early(x):
        with torch.set_grad_enabled(True):
            return on(x + 1)
    for _ in range(3):
        with torch.enable_grad():
            x = x * 2
            if x.shape[0]:
                break
    return early(x), on(x)


PROGRAMS = [with_blocks, plain_calls, manager_entered_by_hand, enabled, set_enabled, disabled, bare, decorated_callees,
            decorated_generator, left_by_an_exception, left_by_return_and_break]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph(program, grad):
    before = torch.is_grad_enabled()
    check(program, torch.randn(3), grad=grad, breaks=0, compiles=1)
    assert torch.is_grad_enabled() == before


@pytest.mark.parametrize("mode", [False, True])
def test_a_mode_that_is_left_set(mode, backend):
    def f(x):
        torch.set_grad_enabled(mode)
        return on(x + 1)
    compiled, x = framejit.compile(f, backend=backend), torch.randn(3)
    for _ in range(3):
        for start in (False, True):
            with torch.set_grad_enabled(start):
                want = f(x), torch.is_grad_enabled()
            with torch.set_grad_enabled(start):
                got = compiled(x), torch.is_grad_enabled()
            same(got, want)
            assert got[1] == mode
    assert framejit.stats()["graphs"] == 2 and framejit.stats()["hits"] == 4 and not framejit.stats()["graph_breaks"]


@pytest.mark.breaks(disabled_function=4)
def test_breaks_within_a_mode(backend):
    seen = []

    @framejit.disable
    def look():
        seen.append(torch.is_grad_enabled())

    def f(x):
        with torch.enable_grad():
            x = x + 1
            look()
            with torch.no_grad():
                x = x * 2
                look()
            x = x - 1
        look()
        torch.set_grad_enabled(True)
        x = x * 3
        look()
        torch.set_grad_enabled(False)
        return on(x + 1)
    compiled, x = framejit.compile(f, backend=backend), torch.randn(3)
    for _ in range(3):
        seen.clear()
        same(compiled(x), f(x))
        assert seen == [True, False, False, True] * 2
        assert not torch.is_grad_enabled()
    assert framejit.stats()["graphs"] == 5 and framejit.stats()["hits"] == 10, framejit.stats()


def test_a_gradient_that_is_needed_inside_only(backend):
    weight = torch.randn(3, requires_grad=True)

    def f(x):
        y = x * 2
        with torch.enable_grad():
            z = (weight * y).sum()
        return z, y + 1
    compiled, x = framejit.compile(f, backend=backend), torch.randn(3)
    for _ in range(3):
        got, want = compiled(x), f(x)
        same(got, want)
        same(torch.autograd.grad(got[0], weight), torch.autograd.grad(want[0], weight))
    assert not framejit.stats()["break_reasons"] and framejit.stats()["backward_runs"] == 3


def test_a_gradient_taken_inside(backend):
    def f(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (y * y).sum().backward()
        return x + 1, y.grad * 2
    compiled, x = framejit.compile(f, backend=backend), torch.randn(3)
    for _ in range(3):
        same(compiled(x), f(x))
    assert not framejit.stats()["fallbacks"]


# Autocast keeps the low-precision casts of weights until it ends, including those of ops that run plainly between
# compiled parts.
def steps(compile_, step):
    torch.manual_seed(0)
    linear = torch.nn.Linear(10, 3)
    run = compile_(lambda x: step(linear, x))
    with torch.enable_grad():
        return [run(torch.ones(4, 10)) for _ in range(5)]


def train(linear, x):
    linear.weight.grad = None
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear(x).float().pow(2).sum()
    loss.backward()
    with torch.no_grad():
        linear.weight.sub_(linear.weight.grad, alpha=0.01)
    return loss.item()


def train_nested(linear, x):
    with torch.autocast("cpu", torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            y = linear(x)
        with torch.autocast("cpu", torch.bfloat16):
            y = y + linear(x)
    with torch.no_grad():
        linear.weight.add_(1.0)
    return y.float().sum().item()


@torch.autocast("cpu", torch.bfloat16)
def decorated(linear, x):
    return linear(x)


def train_decorated(linear, x):
    y = decorated(linear, x).float().sum().item()
    linear.weight.data += 1
    return y


def cleared(linear, x):
    with torch.autocast("cpu", torch.bfloat16):
        seen = [linear(x).float().sum().item()]
        with torch.no_grad():
            linear.weight.add_(1.0)
        torch.clear_autocast_cache()
        seen.append(linear(x).float().sum().item())
    return seen


@pytest.mark.breaks(data_dependent_value={"train": 2, "train_nested": 1, "train_decorated": 1, "cleared": 2},
                    unsupported_write={"train_decorated": 1})
@pytest.mark.parametrize("step", [train, train_nested, train_decorated, cleared])
def test_casts_of_weights_that_change(step, backend):
    got, want = steps(lambda f: framejit.compile(f, backend=backend), step), steps(lambda f: f, step)
    # A sum in another order may differ in its last digit. A stale cast differs from the third digit on.
    assert got == [pytest.approx(number, rel=1e-6) for number in want]


@pytest.mark.nothing_captured  # the products require gradients
def test_casts_do_not_outlive_a_compiled_function(backend):
    linear, x = torch.nn.Linear(4, 2, bias=False), torch.ones(1, 4)

    def under_autocast(x):
        with torch.autocast("cpu", torch.bfloat16):
            return linear(x)

    compiled = framejit.compile(under_autocast, backend=backend)
    with torch.enable_grad():
        compiled(x), compiled(x)
        with torch.no_grad():
            linear.weight.fill_(7.0)
        assert under_autocast(x).tolist() == [[28.0, 28.0]]
