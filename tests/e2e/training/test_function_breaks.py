"""torch.autograd.Function with gradients whose backward cannot be traced: a break at apply, and eager's results."""
import pytest
import torch
from torch.autograd import Function

import framejit
from steps import Program, check_step, leaf

BETA = 1.5
SEEN = []


class Broken(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(y)
        ctx.kept, ctx.list = x, []
        return y


CONSTANTS = [2.0]
OUTSIDE = torch.ones(3)
CONFIG = type("Config", (), {})()
CONFIG.scale = 3.0


def reads_a_global(ctx, g):
    return g * BETA


def reads_an_item(ctx, g):
    return g * CONSTANTS[0]


def reads_an_attribute(ctx, g):
    return g * CONFIG.scale


def reads_a_tensor(ctx, g):
    return g * OUTSIDE


def reads_unsaved(ctx, g):
    return g * ctx.kept


def writes_to_a_list(ctx, g):
    SEEN.append(1)
    return g * 2


def writes_to_an_object(ctx, g):
    CONFIG.last = 1
    return g * 2


def writes_to_its_context(ctx, g):
    ctx.done = True
    return g * 2


def appends_on_its_context(ctx, g):
    ctx.list.append(1)
    return g * len(ctx.list)


def writes_its_gradient(ctx, g):
    return g.mul_(2)


def draws(ctx, g):
    return g + torch.rand_like(g)


def asks_the_data(ctx, g):
    return g * 2 if g.sum() > 0 else g


def runs_autograd(ctx, g):
    with torch.enable_grad():
        x = ctx.saved_tensors[0].detach().requires_grad_()
        return torch.autograd.grad((x * 2).sum(), x)[0] * g


def too_many(ctx, g):
    return g, g


def raises(ctx, g):
    raise ValueError("no")


def wrong_shape(ctx, g):
    return g.sum(0)[:2]


BREAKS = [reads_a_global, reads_an_item, reads_an_attribute, reads_a_tensor, reads_unsaved, writes_to_a_list,
          writes_to_an_object, writes_to_its_context, appends_on_its_context, writes_its_gradient, draws, asks_the_data,
          runs_autograd, too_many, raises]


@pytest.mark.parametrize("backward", BREAKS, ids=lambda f: f.__name__)
def test_breaks(backward):
    SEEN.clear()
    cls = type("Broken", (Broken,), {"backward": staticmethod(backward)})
    stats = check_step(lambda: Program(lambda x: cls.apply(x + 1).exp() + 1, leaf(5, 3)), breaks=None, backward=None,
                       captured=False, graphs=2)
    assert stats["break_reasons"] == {"custom_dispatch": 1}, stats
    assert len(SEEN) in (0, 6)  # three steps, plain and compiled


@pytest.mark.nothing_captured
@pytest.mark.breaks(no_backward=1)
def test_a_gradient_of_the_wrong_shape():
    cls = type("Broken", (Broken,), {"backward": staticmethod(wrong_shape)})
    check_step(lambda: Program(lambda x: cls.apply(x + 1).exp(), leaf(5, 3)), breaks=None, backward=None,
               captured=False, graphs=0)


@pytest.mark.breaks(custom_dispatch=2)
def test_changed_between_forward_and_backward():
    """Why a global is a break: eager's backward sees the new number."""
    global BETA
    cls = type("Broken", (Broken,), {"backward": staticmethod(reads_a_global)})

    def step(run, args, k):
        global BETA
        BETA = 1.5
        y = run(*args)
        BETA = 2.5
        y.sum().backward()

    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            return x * BETA
        backward = staticmethod(reads_a_global)

    for function in cls, Both:
        check_step(lambda: Program(lambda x: function.apply(x + 1) + BETA, leaf(5, 3), step=step), breaks=None,
                   backward=None, graphs=2)
    BETA = 1.5


@pytest.mark.breaks(custom_dispatch=1)
def test_context_that_is_kept():
    class Kept(Function):
        @staticmethod
        def forward(ctx, x):
            SEEN.append(ctx)
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor

    def step(run, args, k):
        y = run(*args)
        SEEN.pop().factor = 3
        y.sum().backward()
    check_step(lambda: Program(lambda x: Kept.apply(x + 1).exp(), leaf(5, 3), step=step), breaks=None, backward=None,
               captured=False, graphs=2)


LIBRARY = """
import torch
SCALE = 2.0
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * SCALE
"""


def test_a_constant_of_an_installed_package(tmp_path, monkeypatch):
    """Programs set such constants, so they count as state of the program."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "scaled_by_a_constant.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    import scaled_by_a_constant as library
    compiled = framejit.compile(lambda x: library.Scaled.apply(x * 1))
    for scale in (2.0, 3.0, 4.0):
        x = torch.ones(2, requires_grad=True)
        y = compiled(x).sum()
        library.SCALE = scale + 1
        y.backward()
        assert x.grad.tolist() == [scale + 1] * 2
    assert framejit.stats()["break_reasons"] == {"custom_dispatch": 1}
