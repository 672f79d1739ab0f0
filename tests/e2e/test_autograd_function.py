"""torch.autograd.Function and torch.utils.checkpoint when no gradient is recorded; torch.compiler.disable inside."""
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

import framejit
from check import check

x = torch.randn(3, 4)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        ctx.set_materialize_grads(False)
        assert not torch.is_grad_enabled()
        return x * ctx.k if not any(ctx.needs_input_grad) else x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None


class Separate(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y, x.sum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        return g, g


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def test_forward_is_inlined():
    def f(x):
        on = torch.is_grad_enabled()
        y = Scale.apply(x, 3) + 1
        a, b = Separate.apply(y, x)
        return a, b, on == torch.is_grad_enabled()
    check(f, x, breaks=0, compiles=1)
    check(f, x, breaks=0, compiles=1, grad=True)


def test_an_input_returned_as_it_is():
    def f(x):
        y = Identity.apply(x)
        return y + 1, y is x, y._is_view(), y
    check(f, x, breaks=0, compiles=1)
    check(f, x, breaks=0, compiles=1, grad=True)
    check(f, torch.randn(4, 3).t()[1:], breaks=0, compiles=1)

    def written(x):
        y = Identity.apply(x)
        y.add_(1)
        return x * 2, Identity.apply(Identity.apply(y))
    check(written, x, breaks=0, compiles=1)


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, x, y * 2, 3

    @staticmethod
    def backward(ctx, *g):
        return g[0], g[2]


def test_inputs_among_several_outputs():
    def f(x):
        a, b, c, d = Several.apply(x, x + 1)
        return a, b, c, d, a is b, type(Several.apply(x, x))
    check(f, x, breaks=0, compiles=1)


class Put(torch.autograd.Function):
    @staticmethod
    def forward(ctx, memory, value, index):
        memory.data[index] = value
        return memory

    @staticmethod
    def backward(ctx, g):
        return g, None, None


def test_an_input_that_is_written_and_returned():
    """torchdiffeq's steps."""
    def f(x):
        k = torch.empty(3, 4)
        for i in range(4):
            k = Put.apply(k, x[:, i] * 2, (..., i))
        return k + 1, k
    check(f, x, breaks=0, compiles=1)


def test_exception_in_forward_leaves_grad_mode():
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raise ValueError("no")

    def f(x):
        try:
            Raises.apply(x)
        except ValueError:
            pass
        return x + 1, torch.is_grad_enabled()
    check(f, x, grad=True)


@torch.enable_grad()
def test_with_a_gradient():
    """training/test_function_gradients.py has more of these."""
    def f(x):
        return Scale.apply(x, 3).sum()
    a = x.clone().requires_grad_()
    framejit.compile(f)(a).backward()
    assert torch.equal(a.grad, torch.full_like(x, 3))
    assert framejit.stats()["backward_runs"] == 1


def test_checkpoint_without_grad():
    def f(x):
        return torch.utils.checkpoint.checkpoint(lambda a: a.sin() + 1, x * 2, use_reentrant=False) * 3
    check(f, x)


def test_disabled_function_breaks_with_its_reason():
    @torch.compiler.disable
    def inner(x):
        return x + 1

    def f(x):
        return inner(x * 2) * 3
    stats = check(f, x, breaks=1, compiles=2)
    assert stats["break_reasons"] == {"disabled_function": 1}


@pytest.mark.cpu_only("an index that is out of range ends the process")
def test_one_hot():
    def f(x):
        return F.one_hot(x.argmax(-1), 6), F.one_hot(torch.arange(3).view(1, 3), num_classes=3) * 2
    check(f, x, breaks=0, compiles=1)

    def wrong(i):
        return F.one_hot(i, 4) + 1
    check(wrong, torch.tensor([0, 4]))
    check(wrong, torch.tensor([0, -1]))
    check(wrong, torch.tensor([0, 1], dtype=torch.int32))
    check(lambda i: F.one_hot(i, 4) + 1, torch.empty(0, dtype=torch.long))
    check(lambda i: F.one_hot(i) + 1, torch.tensor([0, 2]), breaks=1)
