"""Outputs of compiled code that go backward at different times, or show the same memory."""
import pytest
import torch
from torch import nn

import framejit
from steps import Program, check_step, cotangent, leaf

ZEROS = {
    "sign": lambda x, w: x.sign(), "round": lambda x, w: x.round() + w,
    "floor": lambda x, w: torch.div(x, w, rounding_mode="floor"), "zero_": lambda x, w: (x * 2).zero_(),
    "fill_": lambda x, w: (x * 2).fill_(1.0), "copy_": lambda x, w: (x * 2).copy_(w), "times 0": lambda x, w: x * 0,
    "no rows": lambda x, w: (x * 2)[:0], "where": lambda x, w: torch.where(torch.zeros(3, dtype=torch.bool), x, w),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zeros_are_no_none(name):
    """The gradient depends only on values of the other output; eager has zeros."""
    def step(run, args, k):
        first, _ = run(*args)
        return torch.autograd.grad(first, args, cotangent(first), allow_unused=True)
    check_step(lambda: Program(lambda x, w: (ZEROS[name](x, w), x * w), leaf(3), leaf(3), step=step), graphs=1)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_formula_that_outputs_share_of_which_one_has_another_output(hooked):
    """Eager runs it once, with the sum of both gradients: it shows in the signs of zeros. Two nodes run."""
    def fn(c, w):
        y = (c - c.detach()) * w
        z = y + 1
        return y * 2, z, z.clamp(-1, 0.5)

    def make():
        c, w = leaf(3), leaf(4, 3)
        if hooked:
            w.register_hook(lambda g: g * 2)

        def step(run, args, k):
            results = run(*args)
            weights = [cotangent(t) * by for t, by in zip(results, (1, -1.5, 0.25))]
            return torch.autograd.grad(results, args, weights)
        return Program(fn, c, w, step=step)
    check_step(make, backward=6, graphs=1)


def test_a_write_that_only_another_output_minds():
    """Two losses in one forward, each with its optimizer."""
    def make():
        nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)) for _ in range(2))
        optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.nets = nets

            def forward(self, x):
                return [net(x).pow(2).mean() for net in self.nets]

        def step(run, args, k):
            losses = run(*args)
            for loss, optimizer in zip(losses, optimizers):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return losses
        return Program(Both(), torch.randn(5, 4), step=step)
    check_step(make, backward=6, graphs=1)


PARTS = {
    "a part of unbind": lambda z: z.unbind(0)[1][:2], "unbind": lambda z: z.unbind(0)[1].unflatten(0, (2, 2)),
    "chunk": lambda z: z.chunk(2, 1)[1], "split": lambda z: z.split(2, 1)[1],
    "split, then a view": lambda z: z.split([1, 3], 1)[1].diagonal()[1:],
    "chunk of what is detached": lambda z: z.detach().chunk(2, 1)[1], "one view": lambda z: z[:, :2],
}


@pytest.mark.parametrize("of", ["input", "output"])
@pytest.mark.parametrize("name", PARTS)
def test_the_error_of_a_write_below_one_of_several_views(name, of):
    """Eager names the function that made the views, where it finds a version for other tensors."""
    def fn(x, w):
        z = x * 2 if of == "output" else x
        return z, PARTS[name](z) * w

    def step(run, args, k):
        x = args[0] * 1
        z, y = run(x, args[1])
        with torch.no_grad():
            (x if of == "input" else z).add_(1)
        return torch.autograd.grad(y.sum(), args)
    stats = check_step(lambda: Program(fn, leaf(3, 4), leaf(2), step=step), backward=None)
    assert stats["backward_graphs"] == 0


def test_a_view_that_is_an_output_keeps_its_history_where_errors_are_looked_for():
    def fn(x, w):
        z = x * 2
        return z, z[1:], z.chunk(2, 1)[1] * w, z[1:] * 3
    check_step(lambda: Program(fn, leaf(3, 4), leaf(2)), backward=None)


@pytest.mark.parametrize("of", ["input", "output"])
def test_a_write_to_what_another_output_keeps(of):
    def step(run, args, k):
        x, p = args
        y, z = run(x, p)
        with torch.no_grad():
            (p if of == "input" else y).add_(1)
        return torch.autograd.grad(z.sum(), x)
    fn = (lambda x, p: (x * p, x.sum(0) + x)) if of == "input" else (lambda x, p: (x.exp(), x * 2))
    check_step(lambda: Program(fn, leaf(3), leaf(3), step=step), graphs=1)


@pytest.mark.parametrize("fn", [torch.abs, torch.relu, torch.exp, lambda p: p * p, lambda p: p.max(0).values])
def test_a_write_to_what_this_output_keeps(fn):
    def step(run, args, k):
        x, p = args
        y, z = run(x, p)
        with torch.no_grad():
            p.add_(1)
        return torch.autograd.grad(z.sum(), x), torch.autograd.grad(y.sum(), p)
    check_step(lambda: Program(lambda x, p: (fn(p), x * x), leaf(3), leaf(3), step=step), steps=1, backward=None,
               graphs=None)


@pytest.mark.parametrize("of", ["input", "output"])
def test_a_write_to_what_this_output_reads_but_does_not_keep(of):
    """A mask that comes from what another output keeps: eager has saved the mask."""
    def f(x, p):
        y = p.sin() if of == "input" else p.exp()
        return y, x.masked_fill(y > 0.5, 1.5)

    def step(run, args, k):
        y, z = run(*args)
        with torch.no_grad():
            (args[1] if of == "input" else y).add_(1)
        return torch.autograd.grad(z.sum(), args[0])
    check_step(lambda: Program(f, leaf(3, 4), leaf(3, 4), step=step), graphs=1)


@pytest.mark.nothing_captured
@pytest.mark.breaks(unsupported_write=1)
def test_a_write_after_one_of_several_views():
    """Eager returns the view, and raises when its history is asked for."""
    def f(x):
        h = x * 2
        part = h.unbind(0)[0]
        h.mul_(0.5)
        return part, h

    def step(run, args, k):
        part, h = run(*args)
        with pytest.raises(RuntimeError, match="multiple views"):
            part.grad_fn
        return h.sum().backward(), part.detach()
    check_step(lambda: Program(f, leaf(3, 4), step=step), breaks=None, backward=None, captured=False, graphs=None)


@pytest.mark.parametrize("before", [None, True], ids=["never run", "run and kept"])
@pytest.mark.parametrize("order", [[2, 3], [3, 2]], ids=str)
def test_outputs_that_are_dropped_free_nothing_of_others(order, before):
    """The node of an output is gone when nothing leads to it any more. That is not a backward."""
    def f(b, w):
        h = b * b
        s = w + h
        t = s.abs().log1p()
        h.mul_(1.5)
        return h, b.sin(), s, t

    def step(run, args, k):
        outputs = list(run(*args))
        if before:
            torch.autograd.grad(outputs[3].sum(), args, retain_graph=True)
        for i in order:
            outputs[i] = None
        return torch.autograd.grad([t.sum() for t in outputs[:2]], args, allow_unused=True)
    check_step(lambda: Program(f, leaf(3, 4), leaf(3, 4), step=step), graphs=1)


@pytest.mark.nothing_captured  # at once: it runs plainly
@pytest.mark.parametrize("later", [0, 1], ids=["at once", "later"])
@pytest.mark.parametrize("program", ["written", "handed out"])
@pytest.mark.fallbacks(run_failed={"later": 2})
@pytest.mark.breaks(unsupported_write={"at once": 1})
def test_a_view_of_a_leaf_that_is_a_view(program, later):
    """To autograd it is a view of the leaf's base, which needs no gradient: eager gives none to the leaf after a write
    without grad mode, and lets a view that was made without it be written."""
    def f(x):
        with torch.set_grad_enabled(program == "written"):
            row = x.unsqueeze(0)
        if program == "written":
            with torch.no_grad():
                row.mul_(0.5)
        return row, x.sin() * 2

    def step(run, args, k):
        x = torch.arange(12.0).view(3, 4)
        x = (x.t() if k >= later else x.t().clone()).requires_grad_()
        row, y = run(x)
        if row.requires_grad:
            row.sum().backward()
        y.sum().backward()
        return row, row.requires_grad, x.grad
    check_step(lambda: Program(f, step=step), breaks=None, backward=None, captured=False, graphs=None)


def layouts_meet(x, w):
    s = x.sigmoid()
    total = x.sum(0, keepdim=True)
    return x + s, total, total.sin()


def pieces_meet(x, w):
    a, b = x.chunk(2)
    return a.exp() * w[:1], b.exp(), (b * 2).tanh()


def rows_meet(x, w):
    h = x * w
    return h.softmax(-1), h.t(), h[1:].square(), h.mean(-1)


@pytest.mark.parametrize("fn", [layouts_meet, pieces_meet, rows_meet], ids=lambda f: f.__name__)
def test_each_set_of_outputs(fn):
    """Backward from some outputs, then from the others. No backward reads what the first has freed, and no undefined
    gradient becomes zeros."""
    def step(run, args, k):
        found = []
        for chosen in range(1, 2 ** len(fn(*args))):
            outputs = run(*args)
            for part in (chosen, ~chosen):
                some = [t for i, t in enumerate(outputs) if part >> i & 1]
                if some:
                    found.append(torch.autograd.grad(some, args, [t.detach() for t in some], allow_unused=True,
                                                     retain_graph=part == chosen))
            found.append(args[0].grad)
            torch.autograd.backward([t.sum() for t in run(*args)])
        return found
    # A gradient by itself may be an expanded view in eager; here each has the layout of the sum of all.
    check_step(lambda: Program(fn, leaf(4, 4), leaf(4, 4), step=step), graphs=1, backward=None, steps=1, strides=False)


# ---- one memory, several histories


DETACHED_FIRST = {
    "all of it": lambda y: (y.detach(), y),
    "and a view": lambda y: (y.detach(), y[0]),
    "and both": lambda y: (y.detach(), y, y[0]),
    "a view of it": lambda y: (y.detach()[0], y),
    "twice": lambda y: (y.detach(), y.detach(), y.view(-1)),
    "and what is made of it": lambda y: (y.detach(), y.sin(), y),
    "its data": lambda y: (y.data, y.flatten()),
    "and parts": lambda y: (y.detach(), *y.chunk(2)),
}


@pytest.mark.parametrize("name", DETACHED_FIRST)
def test_a_detached_output_comes_first(name):
    """It shows the same memory as one with a history; the history is not its own."""
    def f(x):
        return DETACHED_FIRST[name](x.exp() * 2)

    def step(run, args, k):
        outputs = run(*args)
        sum((i + 1) * t.sum() for i, t in enumerate(outputs)).backward()
        return (*outputs, [(t.requires_grad, t.is_leaf, t._base is not None) for t in outputs])
    check_step(lambda: Program(f, leaf(4, 4), step=step), graphs=1)


WRITTEN_AND_DETACHED = {
    "after it": lambda h: (h, h.detach()), "before it": lambda h: (h.detach(), h),
    "a row after it": lambda h: (h, h[0].detach(), h.detach()[1:]),
    "with what is made of it": lambda h: (h * 2, h.detach(), h),
}


@pytest.mark.parametrize("write", [None, 0, 1], ids=str)
@pytest.mark.parametrize("name", WRITTEN_AND_DETACHED)
def test_a_detached_output_of_what_was_written(name, write):
    """It has the version counter of the output whose memory it shows, or one that no backward looks at."""
    def f(x, w):
        h = x * w
        return WRITTEN_AND_DETACHED[name](h.relu_())

    def step(run, args, k):
        outputs = run(*args)
        if write is not None:
            with torch.no_grad():
                outputs[write].add_(1)
        versions = [t._version for t in outputs]
        return versions, [torch.autograd.grad(t.sum(), args, retain_graph=True) for t in outputs if t.requires_grad]
    check_step(lambda: Program(f, leaf(3, 4), leaf(3, 4), step=step), graphs=1, backward=None)


def test_data_of_what_was_written_before():
    """It has its own version counter, and no backward looks at it."""
    def f(x, w):
        h = (x * w).relu_()
        return h, h.data, w.data, w.detach()

    def make():
        x, w = leaf(3, 4), leaf(3, 4)
        with torch.no_grad():
            w.add_(1).add_(1)

        def step(run, args, k):
            outputs = run(*args)
            return [t._version for t in outputs], outputs[0].sum().backward()
        return Program(f, x, w, step=step)
    check_step(make, graphs=1)


WRITTEN_DETACHED = {
    "added to": lambda s, y: s.detach().add_(y),
    "copied": lambda s, y: (lambda d: (d.copy_(y), d.sum()))(s.detach()),
    "its data": lambda s, y: s.data.mul_(0.5).add_(y),
    "in part": lambda s, y: s.detach()[:1].add_(y[:1]),
}


@pytest.mark.parametrize("name", WRITTEN_DETACHED)
@pytest.mark.parametrize("asks", [False, True])
def test_a_detached_input_is_written(name, asks):
    """The state of a recurrent cell: the result has a history, and so does the input from which it was detached."""
    def make():
        state, w = leaf(4, 4).requires_grad_(asks), leaf(4, 4)

        def step(run, args, k):
            given = state * 1 if asks else state
            outputs = run(given, w)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            sum(t.sum() for t in outputs).backward()
            return [(t.detach(), t.requires_grad, t.is_leaf, t._base is not None) for t in (given, *outputs)]
        return Program(lambda s, w: WRITTEN_DETACHED[name](s, w.sin()), step=step, watch=[w])
    check_step(make, graphs=1)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("view", [lambda t: t.expand(3, 4), lambda t: t.view(2, 2).t(), lambda t: t.chunk(2)[0][::2]],
                         ids=["expand", "view", "chunk"])
def test_a_view_of_a_view_without_grad_mode(view, inside):
    """It has a history, which leads nowhere."""
    def f(x):
        with torch.no_grad():
            row = (x.sin() if inside else x)[0]
        return row * x, view(row)

    def step(run, args, k):
        y, v = run(*args)
        (y.sum() + v.sum()).backward()
        return y, v, v.requires_grad

    def make():
        x = leaf(3, 4)
        return Program(f, make_inputs=lambda k: (x * 2,), watch=[x], step=step)
    check_step(make, graphs=1, backward=None)


@pytest.mark.parametrize("first", [True, False])
def test_a_view_without_grad_mode_asks_as_its_base_does(first):
    """The view has no requires_grad of its own: guards ask its base."""
    run = framejit.compile(lambda v: v * 2)
    for asks in (first, not first):
        base = torch.ones(2, 3, requires_grad=asks)
        with torch.no_grad():
            view = base[0]
        assert run(view).requires_grad == asks
    assert framejit.stats()["graphs"] == 2


def test_versions_of_inputs_that_a_function_writes():
    """PyTorch counts that an input is marked as dirty, besides its writes."""
    class Written(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            x[0].add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def f(x):
        y = x * 1
        z = Written.apply(y)
        return Written.apply(x) + 1, y, z
    seen = []
    for run in (f, framejit.compile(f)):
        x = leaf(3) * 1
        _, y, z = run(x)
        seen.append((x._version, y._version, z._version))
    assert seen[0] == seen[1] == (3, 3, 3)
