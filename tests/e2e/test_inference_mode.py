"""torch.inference_mode inside traced code, and what modes leave on the outputs: is_inference, _base, how a view was
made."""
import pytest
import torch

import framejit
from check import BACKENDS, check


def kinds(result):
    return [(t.is_inference(), t._is_view(), t.requires_grad) for t in result]


def compare(fn, *args, breaks=0, grad=False):
    check(fn, *args, breaks=breaks, grad=grad)
    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        with torch.set_grad_enabled(grad):
            for _ in range(2):
                assert kinds(compiled(*args)) == kinds(fn(*args))
                assert not torch.is_inference_mode_enabled()


def test_with_statement():
    def f(x):
        with torch.inference_mode():
            y = x * 2
            z = y[0]
        return y, z, x + 1, x[0]
    compare(f, torch.randn(3, 4))
    compare(f, torch.randn(3, 4), grad=True)


def test_decorator():
    @torch.inference_mode()
    def inner(x):
        return x.sin()

    def f(x):
        y = inner(x)
        return y, y + 1, x.cos()
    compare(f, torch.randn(3, 4))


def test_switched_off_and_nested_with_no_grad():
    def f(x):
        with torch.no_grad():
            with torch.inference_mode():
                y = x * 2
                with torch.inference_mode(False):
                    z = x + 1
            on = torch.is_grad_enabled()
        return (y, z, x - 1) if not on else (x,)
    compare(f, torch.randn(3))
    compare(f, torch.randn(3), grad=True)


def test_called_inside_inference_mode():
    def f(x):
        with torch.inference_mode(False):
            y = x + 1
        return y, x * 2

    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        with torch.inference_mode():
            x = torch.randn(3)
            for _ in range(2):
                assert kinds(compiled(x)) == kinds(f(x)) == [(False, False, False), (True, False, False)]
        assert framejit.stats()["graph_breaks"] == 0


def test_view_made_while_inference_mode_is_off():
    def f(x):
        with torch.inference_mode(False):
            y = x + 1
            z = y[0]
        return z, x[0], y, y[1]

    def facts(fn, x):
        z, w, y, v = fn(x)
        return kinds((z, w, y, v)), z._base is y, v._base is y, y._version

    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        normal = torch.randn(3, 2)
        with torch.inference_mode():
            for x in (normal, torch.randn(3, 2)):
                for _ in range(2):
                    assert facts(compiled, x) == facts(f, x)
                    assert torch.equal(compiled(x)[0], f(x)[0])
        assert framejit.stats()["graph_breaks"] == 0


def test_break_inside():
    seen = []

    def f(x):
        y = x + 1
        with torch.no_grad():
            with torch.inference_mode():
                z = y * 2
                print(end="")
                seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
                z = z + 1
            on = torch.is_grad_enabled()
        return z, y, torch.tensor([on, torch.is_grad_enabled()])
    for grad in (False, True):
        seen.clear()
        check(f, torch.randn(3), grad=grad, compiles=3, breaks=2)
        assert set(seen) == {(True, False)}


def test_exception_inside_restores_the_mode():
    def f(x):
        try:
            with torch.inference_mode():
                y = x + 1
                raise ValueError("inside")
        except ValueError:
            pass
        return y, x + 2
    compare(f, torch.randn(3))


def test_guarded_by_the_mode():
    compiled = framejit.compile(lambda x: x + 1)
    x = torch.randn(3)
    with torch.no_grad():
        assert not compiled(x).is_inference()
    with torch.inference_mode():
        assert compiled(x).is_inference()


class Views(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        return self.weight[0], self.weight.t(), self.weight.view(24), self.weight.t()[
            1], self.weight.detach(), self.weight[0] * x


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_parameters_are_eagers(backend):
    framejit.reset()
    m = Views()
    compiled = framejit.compile(m, backend=backend)
    x = torch.randn(6)
    with torch.no_grad():
        for _ in range(2):
            for got, want in zip(compiled(x), m(x)):
                assert torch.equal(got, want) and got.stride() == want.stride() \
                    and got.storage_offset() == want.storage_offset()
                assert (got._base is want._base) and got.requires_grad == want.requires_grad \
                    and got.is_leaf == want.is_leaf
                assert got._version == want._version
    assert framejit.stats()["graph_breaks"] == 0 and framejit.stats()["graphs"] == 1


def test_view_made_without_grad_refuses_writes_as_eagers_does():
    def f(x):
        with torch.no_grad():
            return x.view(6), x.chunk(2)

    def error(fn):
        w = torch.ones(6, requires_grad=True)
        x = torch.randn(2, 3)
        out = fn(x)
        messages = []
        for view in (out[0], out[1][0]):
            try:
                view.mul_(w[: view.numel()].view_as(view))
                messages.append(None)
            except RuntimeError as e:
                messages.append(str(e))
        return messages
    framejit.reset()
    compiled = framejit.compile(f)
    assert error(compiled) == error(compiled) == error(f)
    assert framejit.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("fn", [
    lambda x: (x.detach(), x + 1),
    lambda x: (x.view(3), x.view_as(x), x + 1),
    lambda x: (x[:2].detach(), x[:], x.contiguous()),
    lambda x: (lambda y: (y, y.detach(), y.view(3), y.view(3, 1)))(x + 1),
    lambda x: (lambda y: (y.detach(), y.sum()))(x * 2),
], ids=range(5))
def test_what_shares_memory_is_an_object_of_its_own(fn):
    def facts(call, x):
        out = call(x)
        named = [x, *out]
        return [([k for k, other in enumerate(named) if other is t],
                 [k for k, other in enumerate(named) if other is t._base], t._is_view(), t.requires_grad, type(t),
                 [k for k, other in enumerate(named) if other.data_ptr() == t.data_ptr()]) for t in out]
    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for x in (torch.randn(3), torch.nn.Parameter(torch.randn(3))):
            with torch.no_grad():
                assert facts(compiled, x) == facts(fn, x) == facts(compiled, x)
