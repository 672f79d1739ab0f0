"""Modes and transforms that compiled code enters: one break where they begin, plain Python under them, and capture
again after they end."""
import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import framejit
from check import exactly_as, same, same_as


class Doubles(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.Tensor.add else result


class Counts(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        Counts.calls += 1
        return function(*args, **(kwargs or {}))


class IndexIsTensor(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__getitem__:
            return torch.ops.aten.index(args[0], [*args[1]])
        return function(*args, **(kwargs or {}))


def over_four_axes(function):
    for axes in [(None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)]:
        function = torch.vmap(function, in_dims=axes, out_dims=0)
    return function


def mask_of(x, kept):
    rows, columns = torch.arange(x.shape[0]), torch.arange(x.shape[1])
    with IndexIsTensor():
        mask = over_four_axes(lambda b, h, q, k: (k <= q) & kept[b, k])(rows, torch.arange(1), columns, columns)
    return mask[:, 0]


def attention_with_a_mask(x, kept):
    """How models of transformers make masks from functions."""
    mask = mask_of(x * 2, kept)
    return torch.where(mask, (x @ x.transpose(1, 2)) * 2, -1.0).softmax(-1) @ x


def under_a_function_mode(x, kept):
    y = (x + 1).sin()
    with Doubles():
        y = y.add(1)
        z = [y.add(n) for n in range(3)]
    return (sum(z) * y).sigmoid()


def under_a_dispatch_mode(x, kept):
    y = (x + 1).sin()
    with Counts():
        y = y * 2
    return (y * y).cos()


def raises_under_a_mode(x, kept):
    y = x + 1
    try:
        with Doubles():
            y = y.add(1)
            raise KeyError(int(y.dim()))
    except KeyError as error:
        return (y * 2).sin() + error.args[0]


def one_in_the_other(x, kept):
    y = x * 2
    with Doubles():
        with Doubles():
            y = y.add(1)
        y = y.add(1)
    return y.sin()


def entered(mode, x):
    mode.__enter__()
    return x.add(1)


def entered_and_left_in_other_functions(x, kept):
    mode = Doubles()
    y = entered(mode, x * 2)
    y = y.add(1)
    mode.__exit__(None, None, None)
    return (y * 3).sin()


def of_a_vmap(x, kept):
    return torch.func.vmap(lambda row: (row * 2).sum())(x * 2).sin() + 1


def of_a_gradient(x, kept):
    return torch.func.grad(lambda y: (y * y).sum())(x * 2).sin() + 1


def of_a_jvp(x, kept):
    return torch.func.jvp(lambda y: y * y, (x * 2,), (x,))[1].sin() + 1


def of_a_scan(x, kept):
    """How Mamba's layers call it: a recursion in torch, each level of which calls vmap."""
    y = associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x.sigmoid(), x * 2), dim=1,
                         combine_mode="generic")
    return y[1].sin() + 1


SHAPES = [(2, 12, 4), (2, 9, 4), (3, 12, 4), (2, 17, 4)]


@pytest.mark.parametrize("fn, breaks",
                         [(attention_with_a_mask, 1), (under_a_function_mode, 1), (under_a_dispatch_mode, 1),
                          (raises_under_a_mode, 3), (one_in_the_other, 1),
                                        (entered_and_left_in_other_functions, 1), (of_a_vmap, 1), (of_a_gradient, 1),
                          (of_a_jvp, 2), (of_a_scan, 1)], ids=lambda v: getattr(v, "__name__", ""))
def test_one_break_and_capture_goes_on(fn, breaks):
    framejit.reset()
    compiled, kept = framejit.compile(fn), torch.ones(4, 20, dtype=torch.bool)
    with torch.no_grad():
        for shape in SHAPES:
            x = torch.randn(*shape)
            before, Counts.calls = framejit.stats()["graph_breaks"], 0
            want, plain_calls, Counts.calls = fn(x, kept), Counts.calls, 0
            got, calls = compiled(x, kept), Counts.calls
            same(got, want, exactly_as(lambda: fn(x, kept)))
            assert calls == plain_calls
            stats = framejit.stats()
            assert stats["graph_breaks"] - before <= breaks, stats["break_reasons"]
        hits = stats["hits"]
        same_as(fn, compiled(x, kept), x, kept)
        after = framejit.stats()
    own = {"exception_raised": 2} if fn is raises_under_a_mode else {}
    assert stats["break_reasons"] == {"mode_entered": 2, **own}, stats
    assert stats["recompiles"] <= 6 and not stats["fallbacks"], stats
    # the code before the mode, and the code after it
    assert after["hits"] - hits >= 2 and after["graphs"] == stats["graphs"], after


@pytest.mark.nothing_captured
def test_a_mode_around_the_call():
    def f(x):
        return g(x + 1) * 2

    def g(x):
        return x.add(1)
    compiled, x = framejit.compile(f), torch.randn(3)
    for _ in range(2):
        with torch.no_grad(), Doubles():
            got, want = compiled(x), f(x)
        same(got, want)
    assert framejit.stats()["break_reasons"] == {"modes_unsupported": 1}, framejit.stats()


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x + 1,)) + 1


@pytest.mark.breaks(unknown_callable=1)
def test_a_higher_order_op_is_one_break():
    compiled = framejit.compile(chosen)
    with torch.no_grad():
        for x in (torch.ones(3), -torch.ones(3) * 2):
            same(compiled(x), chosen(x))
    assert framejit.stats()["graphs"] == 2 and not framejit.stats()["fallbacks"], framejit.stats()


@pytest.mark.breaks(unknown_callable=1)
def test_the_break_names_the_higher_order_op():
    with torch.no_grad():
        explanation = framejit.explain(chosen)(torch.ones(3))
    assert ["torch.ops.higher_order.cond" in e.fields["detail"] for e in explanation.breaks] == [True]
    assert framejit.stats()["graphs"] == 2
