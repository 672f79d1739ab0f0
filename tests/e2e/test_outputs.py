"""The tensors that a program returns have eager's identity, _base, requires_grad and _version, and show the same
memory."""
import pytest
import torch

import framejit
from check import BACKENDS, same


def detached_and_its_views(x):
    d = x.detach()
    return d, d[:1], d[:1][0], x[:1]


def data_written(x):
    d = x.data
    d.mul_(2)
    return d, d[0], x[0]


def data_and_input_written(x):
    x.data.add_(1)
    x.mul_(2)
    x[0].add_(1)
    return x, x.data, x.detach()


def written_views_of_own(x):
    y = x + 1
    y.mul_(2)
    y[0].add_(1)
    return y[1], y, y.detach(), y.data


def written_after_the_view(x):
    v = x[0]
    x.mul_(2)
    return v


def parts_of_one_hidden_tensor(x):
    a, b = (x * 2).unbind(0)
    return b, a, b


def one_of_two_written(x):
    a, b = x + 1, x + 1
    a.add_(1)
    return a, b


def view_of_one_of_two_written(x):
    a, b = x.clone(), x.clone()
    a[0].mul_(2)
    return a, b, x


def hidden_views(x):
    """Tensors that autograd treats as fresh, though they are views."""
    a, b = torch.unsafe_split(x + 1, 1), torch.ops.aten._unsafe_view(x, x.shape)
    a[0].mul_(2)
    return *a, *torch.unsafe_split(x + 1, 1), *torch.unsafe_chunk(x, 2), b, x + 1


def detached_before_its_source(x):
    y = x * 3
    d = y.detach()
    d.add_(1)
    return d, y, d[0], y.view(6)


def written_with_out(x):
    y = torch.empty_like(x)
    torch.add(x, 1, out=y)
    return y, y[0]


def written_in_a_list(x):
    y = x + 1
    torch._foreach_add_([x, y], 1)
    torch._foreach_mul_([x], 2)
    return x, y, x[0]


def batch_norm(x):
    mean, var = x.new_zeros(3), x.new_ones(3)
    return torch.nn.functional.batch_norm(x, mean, var, training=True), mean, var


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen.add_(1).mul_(2)
        return x + self.seen


PROGRAMS = {
    "slice of a detached one": lambda x: x.detach()[:1],
    "views of a detached one": detached_and_its_views,
    "data is counted by itself": lambda x: x.data.mul_(2),
    "data written, views of both": data_written,
    "data and input written": data_and_input_written,
    "data twice": lambda x: (x.data, x.data, x.data[0], x.detach(), x.detach()),
    "equal views": lambda x: (x[0], x[0], x[:], x[:]),
    "one view twice": lambda x: (lambda v: (v, v, x[0]))(x[0]),
    "equal views of a fresh one": lambda x: (lambda y: (y[0], y[0], y))(x + 1),
    "equal fresh ones": lambda x: (x + 1, x + 1),
    "std": lambda x: x.std(),
    "var": lambda x: x.var(1),
    "var_mean": lambda x: torch.var_mean(x),
    "reshape that copies": lambda x: x.t().reshape(6),
    "flatten that copies": lambda x: x.t().flatten(),
    "flatten that views": lambda x: x.flatten(),
    "view of a sum": lambda x: (x + 1).view(3, 2),
    "view of a copy": lambda x: x.clone().view(6),
    "part of a stack": lambda x: torch.stack([x])[0],
    "chunks": lambda x: torch.cat([x, x]).chunk(2),
    "parts of one hidden tensor": parts_of_one_hidden_tensor,
    "other dtype": lambda x: ((x + 1).view(torch.int32), x.view(torch.int32)),
    "fresh one written": lambda x: (x + 1).mul_(2),
    "input written twice": lambda x: (x.mul_(2), x[0].add_(1))[0],
    "written views of its own": written_views_of_own,
    "written after the view": written_after_the_view,
    "detached before its source": detached_before_its_source,
    "written with out": written_with_out,
    "written in a list": written_in_a_list,
    "batch norm": batch_norm,
    "filled by a function in C++": lambda x: (torch.nn.functional.one_hot(x.detach().long().flatten() % 4, 4),
                                              torch.nn.utils.rnn.pad_sequence([x[0], x[1, :1]]), torch.ones(3),
                                              torch.zeros(2), torch.full((2,), 3.0), x.new_zeros(2)),
    "equal sums": lambda x: (x + 1, x + 1, (x + 1).view(6), (x + 1).view(6)),
    "equal copies": lambda x: (x.clone(), x.clone(), x),
    "a copy beside the flattening of an equal one": lambda x: (x.t().contiguous(), x.t().reshape(-1), x.t().ravel()),
    "equal sums, one written": one_of_two_written,
    "equal copies, a view of one written": view_of_one_of_two_written,
    "hidden views": hidden_views,
    "products and their hidden views": lambda x: (x @ x.t(), torch.matmul(x[None], x.t()),
                                                  torch.matmul(x[None], x.t())),
}
INPUTS = {
    "tensor": lambda: torch.arange(6.0).reshape(2, 3),
    "parameter": lambda: torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
    "view": lambda: torch.arange(12.0).reshape(2, 6)[:, 3:],
    "view of a parameter": lambda: torch.nn.Parameter(torch.arange(12.0).reshape(2, 6))[:, 3:],
}


def facts(fn, make):
    """Everything that a caller can see of the outputs except their values. Other tensors are named by their position; a
    `_base` that nobody holds is described by its layout."""
    x = make()
    out = fn(x)
    out = list(out) if isinstance(out, (tuple, list)) else [out]
    held = [x] + out
    where = lambda t: [i for i, other in enumerate(held) if other is t]
    layout = lambda t: (t.shape, t.stride(), t.storage_offset(), t.dtype)
    rows = []
    for t in out:
        base = t._base
        rows.append({
            "is": where(t), "base": None if base is None else (where(base), layout(base), base.requires_grad,
                                                               base._version),
            "bases": [i for i, other in enumerate(held) if base is not None and other._base is base],
            "memory": [i for i, other in enumerate(held)
                       if other.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()],
            "requires_grad": t.requires_grad, "leaf": None if t.requires_grad else t.is_leaf, "version": t._version,
            "class": type(t), "layout": layout(t),
        })
    return rows, x._version, [t.detach().clone() for t in out], x.detach().clone()


def followers(fn, make):
    """The tensors whose versions change when one output is written."""
    count = len(facts(fn, make)[0])
    moved = []
    for i in range(count):
        x = make()
        out = fn(x)
        held = [x] + (list(out) if isinstance(out, (tuple, list)) else [out])
        before = [t._version for t in held]
        held[i + 1].zero_()
        moved.append([t._version - b for t, b in zip(held, before)])
    return moved


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_are_eagers(name, kind, backend):
    fn, make = PROGRAMS[name], INPUTS[kind]
    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    with torch.no_grad():
        for _ in range(2):
            got, want = facts(compiled, make), facts(fn, make)
            assert got[:2] == want[:2]
            same(list(got[2:]), list(want[2:]))
        assert followers(compiled, make) == followers(fn, make)
    stats = framejit.stats()
    assert stats["graphs"] == 1 and stats["graph_breaks"] == 0 and not stats["fallbacks"], stats["break_reasons"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_fresh_outputs_can_be_detached_in_place(backend):
    framejit.reset()
    compiled = framejit.compile(lambda x: (x.std(), x.t().flatten()), backend=backend)
    with torch.no_grad():
        for t in compiled(torch.randn(2, 3)):
            assert t.detach_() is t
    assert framejit.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_that_overlap_one_written_in_a_list(backend):
    def f(x, y):
        torch._foreach_add_([x], 1)
        z = y * 2
        torch._foreach_mul_([x], 3)
        return z, y + 1
    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    memory, want_memory = torch.zeros(4), torch.zeros(4)
    with torch.no_grad():
        compiled(torch.zeros(4), torch.zeros(3))
        assert framejit.stats()["graphs"] == 1
        got = compiled(memory, memory[1:])
        want = f(want_memory, want_memory[1:])
    assert torch.equal(memory, want_memory) and all(torch.equal(a, b) for a, b in zip(got, want))
    assert framejit.stats()["break_reasons"] == {"overlapping_inputs": 1}


def test_outputs_on_the_meta_device():
    def f(x):
        x = x * 2
        m = x.to("meta")
        return m.detach(), m, m[0]
    framejit.reset()
    with torch.no_grad():
        detached, m, view = framejit.compile(f, backend="eager")(torch.ones(2, 3))
    assert detached is not m and detached._base is None and m._base is None and view._base is m
    assert {t.device.type for t in (detached, m, view, detached + 1, m + 1)} == {"meta"}
    assert framejit.stats()["graphs"] == 1
    assert framejit.stats()["break_reasons"] == {"unsupported_op": 1, "unsupported_tensor": 2}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_buffer_counts_its_writes(backend):
    framejit.reset()
    plain, ours = Counting(), Counting()
    compiled = framejit.compile(ours, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(3)
            assert torch.equal(compiled(x), plain(x))
            assert ours.seen._version == plain.seen._version
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_made_before_a_write_asks_for_its_history_as_eagers_does(backend):
    def error(fn):
        with torch.no_grad():
            v = fn(torch.nn.Parameter(torch.ones(2, 3)))
        with pytest.raises(RuntimeError) as caught:
            v.grad_fn
        return str(caught.value)
    framejit.reset()
    compiled = framejit.compile(written_after_the_view, backend=backend)
    assert error(compiled) == error(compiled) == error(written_after_the_view)
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [
    lambda x: (lambda y: (torch.view_as_real(y), torch.view_as_real(y)))(torch.complex(x, x * 2)),
    lambda x: (lambda y: (y.imag, y.real, y.imag))(torch.complex(x, x * 2)),
    lambda x: (lambda y: (y.conj().imag, y.conj().imag))(torch.complex(x, x * 2)),
    lambda x: (lambda y: (torch.view_as_complex(y), torch.view_as_complex(y), y))(x * 3),
    lambda x: (lambda y: (y.conj(), y.conj()))(torch.complex(x, x * 2)),
    lambda x: (lambda y: (y[0], y[0], y))(x * 3),
], ids=range(6))
def test_writes_to_views_have_eagers_gradients(fn, backend):
    def run(call, x):
        w = torch.ones((), requires_grad=True)
        first, *rest = call(x)
        first.mul_(w * 2)
        total = sum((t.abs() if t.is_complex() else t * t).sum() for t in rest)
        total.backward()
        return [t.detach().resolve_conj().resolve_neg() for t in (first, *rest)], [t._version for t in rest], w.grad
    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    x = torch.randn(4, 2)
    for _ in range(2):
        got, want = run(compiled, x), run(fn, x)
        assert got[1] == want[1]
        torch.testing.assert_close(got[0], want[0])
        torch.testing.assert_close(got[2], want[2])
    assert framejit.stats()["graphs"] == 1


COPIES = {
    "clone": lambda v: v.clone(), "times one": lambda v: v * 1, "to": lambda v: v.to(v.dtype, copy=True),
    "cat": lambda v: torch.cat([v]), "of a view": lambda v: v.view(2, -1).clone(), "turned": lambda v: v.t().clone(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_of_a_part_holds_that_part_alone(copy, backend):
    def of_a_result(x):
        return COPIES[copy]((x + 1)[1])

    def of_a_written_clone(x):
        x = x.clone()
        v = x[1]
        x.add_(1)
        return COPIES[copy](v), x

    def with_the_whole(x):
        y = x + 1
        return y, COPIES[copy](y[2]), COPIES[copy](y[2])

    def with_views_of_it(x):
        y = COPIES[copy]((x + 1)[1])
        return y[:1], y, y.t(), y[1:]
    x = torch.randn(3, 4, 6)
    for fn in (of_a_result, of_a_written_clone, with_the_whole, with_views_of_it):
        with torch.no_grad():
            got, want = framejit.compile(fn, backend=backend)(x), fn(x)
        got, want = (v if isinstance(v, tuple) else (v,) for v in (got, want))
        shared = [[a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in v for b in v]
                  for v in (got, want)]
        assert shared[0] == shared[1]
        for mine, eagers in zip(got, want):
            same(mine, eagers)
            assert mine.storage_offset() == eagers.storage_offset()
            assert mine.untyped_storage().nbytes() == eagers.untyped_storage().nbytes()
