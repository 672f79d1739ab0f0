"""Where a tensor begins in its storage: slices of one tensor share an entry, unless the program looks at the offset
itself."""
import pytest
import torch

import framejit
from check import backend, check, fresh, same  # noqa: F401
from devices import DEVICE, moved

BASE = torch.arange(60.0)
OFFSETS = (0, 3, 7, 1, 0, 3)


def part(offset):
    return BASE.clone()[offset:offset + 12]


def written(y, *strided):
    y.as_strided(*strided).add_(100)
    return y


def twice_written(x):
    y = x.clone()
    z = y[2:]
    written(y, (3,), (2,), 1)
    return written(z, (3,), (2,), 1), y


def at_every_offset(fn):
    compiled = framejit.compile(fn)
    for offset in OFFSETS:
        given, ours = (moved(part(offset), DEVICE) for _ in range(2))
        want, got = fn(given), compiled(ours)
        same(got, want, None, f"offset {offset}")
        same(ours, given, None, f"offset {offset}: argument")
        if isinstance(want, torch.Tensor):
            assert got.storage_offset() == want.storage_offset(), offset
    return framejit.stats()


READ = {
    "itself": lambda x: (x.storage_offset(), x + 1),
    "in a sum": lambda x: x + x.storage_offset(),
    "of a slice": lambda x: x[1:].storage_offset() + x[0],
    "of a row": lambda x: x.view(3, 4)[1].storage_offset(),
    "expanded": lambda x: x.expand(2, 12).storage_offset(),
    "detached": lambda x: x.detach().storage_offset(),
    "no copy": lambda x: (x + 1, x.contiguous().storage_offset()),
    "other dtype": lambda x: x.view(torch.int32)[2:].storage_offset(),
    "decides": lambda x: x + 1 if x.storage_offset() % 2 else x - 1,
}


@pytest.mark.parametrize("name", READ)
def test_an_offset_that_is_read_is_guarded(name):
    stats = at_every_offset(READ[name])
    assert stats["recompiles"] == 3 and stats["graph_breaks"] == 0, stats


def test_the_guard_and_the_recompile_name_the_offset():
    fn = READ["in a sum"]
    explanation = framejit.explain(fn)(part(3))
    [guard] = [e.fields["guard"] for e in explanation.guards if "storage_offset()" in e.fields["guard"]]
    assert guard.startswith("L['x'] matches ") and "storage_offset() 3" in guard
    heard = []
    token = framejit._framejit.add_listener(heard.append)
    try:
        compiled = framejit.compile(fn)
        compiled(part(3))
        compiled(part(7))
    finally:
        framejit._framejit.remove_listener(token)
    assert [e["fields"]["guard"] for e in heard
            if e["event"] == "Recompile"] == ["L['x'].storage_offset() == 3 but is 7"]


def test_slices_share_an_entry_otherwise():
    stats = at_every_offset(lambda x: x[1:] * 2 + x.view(3, 4)[0, 0])
    assert stats["graphs"] == 1 and stats["recompiles"] == 0, stats


SCATTERED = {
    "select": lambda x: torch.select_scatter(x, torch.tensor(1.0), 0, 1),
    "select, viewed": lambda x: torch.select_scatter(x, torch.tensor(1.0), 0, 1).as_strided((3,), (2,), 1) + 1,
    "select, offset": lambda x: torch.select_scatter(x, torch.tensor(1.0), 0, 1).storage_offset(),
    "slice": lambda x: torch.slice_scatter(x, torch.ones(4), 0, 4, 8),
    "diagonal": lambda x: torch.diagonal_scatter(x.view(3, 4), torch.ones(3)).storage_offset(),
}


@pytest.mark.breaks(unsupported_op=1)
@pytest.mark.breaks(unsupported_op={"select, viewed": 1})
@pytest.mark.parametrize("name", SCATTERED)
def test_scatters_keep_the_place_of_their_argument(name):
    at_every_offset(SCATTERED[name])


# Another tensor of the same layout can replace a clone, but not for ops that address its storage from the beginning.
STRIDED = {
    "of a sum": lambda x: (x * 2)[3:].as_strided((3,), (2,), 1) + 1,
    "of x * 1": lambda x: (x * 1).as_strided((3,), (2,), 1) + 1,
    "of a clone": lambda x: x.clone().as_strided((3,), (2,), 1) + 1,
    "of a part of a clone": lambda x: x.clone()[2:].as_strided((3,), (2,), 1) + 1,
    "of one thing joined": lambda x: torch.cat([x]).as_strided((3,), (2,), 1) + 1,
    "of a clone, turned": lambda x: x.view(3, 4).clone().t().as_strided((3,), (2,), 1) + 1,
    "of a copy": lambda x: x.new_empty(12).copy_(x).as_strided((3,), (2,), 1) + 1,
    "copied": lambda x: torch.as_strided_copy(x.clone(), (3,), (2,), 1),
    "in place": lambda x: x.clone().as_strided_((3,), (2,), 1) + 1,
    "scattered": lambda x: torch.as_strided_scatter(x.clone(), torch.ones(3), (3,), (2,), 1) + 1,
    "scattered into the argument": lambda x: torch.as_strided_scatter(x, torch.ones(3), (3,), (2,), 1) + 1,
    "of the argument": lambda x: x.as_strided((3,), (2,), 1) + 1,
    "written": lambda x: written(x.clone(), (3,), (2,), 1),
    "written through a part": lambda x: (y := x * 2, written(y[2:], (3,), (2,), 1))[0],
    "written through a part, relative": lambda x: (y := x * 1, written(y[2:], (3,), (2,)))[0],
    "written beyond a part": lambda x: (y := x * 2, written(y[2:5], (3,), (4,)))[0],
    "written beyond a part of the argument": lambda x: written(x[2:5], (3,), (4,)) + x[:3],
    "argument written": lambda x: written(x[2:], (3,), (2,)) + 0,
    "argument written at an offset": lambda x: written(x[2:], (3,), (2,), 1) + 0,
    "written twice": twice_written,
}


@pytest.mark.breaks(unsupported_op={"of the argument": 1, "argument written at an offset": 1,
                                    "scattered into the argument": 1},
                    no_functional_form={"written beyond a part of the argument": 1})
@pytest.mark.parametrize("name",
                         [pytest.param(n, marks=[pytest.mark.nothing_captured]
                                       if n == "written beyond a part of the argument" else []) for n in STRIDED])
def test_as_strided_at_every_offset(name):
    at_every_offset(STRIDED[name])


@pytest.mark.parametrize("name", [n for n in STRIDED if "argument" not in n])
def test_as_strided_of_own_memory_is_captured(name):
    check(STRIDED[name], part(3), breaks=0, compiles=1)


# The element at a given offset, in an argument that begins at each of OFFSETS: an offset that is read is guarded.
AT_OFFSET = {
    "at its beginning": lambda x: x.as_strided((2, 2), (1, 2), x.storage_offset()) + 1,
    "inside": lambda x: x.as_strided((2, 2), (1, 2), x.storage_offset() + 3) + 1,
    "returned": lambda x: x.as_strided((2, 2), (1, 2), x.storage_offset() + 3),
    "of a row": lambda x: x.view(3, 4)[1].as_strided((2, 2), (2, 1), x.storage_offset() + 5) + 1,
    "of a transposed view": lambda x: x.view(3, 4).t().as_strided((2, 2), (1, 4), x.storage_offset() + 6) + 1,
    "of every second row": lambda x: x.view(3, 4)[::2].as_strided((2, 2), (1, 4), x.storage_offset() + 1) + 1,
    "after its end": lambda x: x[:4].as_strided((2, 2), (2, 3), x.storage_offset() + 3) + 1,
    "copied": lambda x: torch.as_strided_copy(x, (2, 2), (1, 2), x.storage_offset() + 3),
    "no elements": lambda x: x.as_strided((0, 2), (1, 2), x.storage_offset() + 5) + 1,
    "of its numbers": lambda x: x.as_strided((2,), (1,), x.storage_offset() + int(x.shape[0] > 3)) + 1,
    "written": lambda x: (x.as_strided((3,), (2,), x.storage_offset()).mul_(2), x + 1)[1],
    "after a write": lambda x: (x.mul_(2), x.as_strided((2, 2), (1, 2), x.storage_offset() + 3) + 1)[1],
}


@pytest.mark.parametrize("name", AT_OFFSET)
def test_as_strided_of_the_argument_at_an_offset(name):
    stats = at_every_offset(AT_OFFSET[name])
    assert stats["recompiles"] == 3 and stats["graph_breaks"] == stats["fallbacks"] == 0, stats


# These begin where the argument has no element.
OUTSIDE = {
    "before it": lambda x: x[4:].as_strided((2,), (1,), x.storage_offset()) + 1,
    "after it": lambda x: x[:4].as_strided((2,), (1,), x.storage_offset() + 4) + 1,
    "between its elements": lambda x: x[::2].as_strided((2,), (1,), x.storage_offset() + 1) + 1,
    "its beginning, without elements": lambda x: x[:0].as_strided((2,), (1,), x.storage_offset() + 1) + 1,
    "the storage": lambda x: x.as_strided((2,), (1,), 58) + 1,
    "copied": lambda x: torch.as_strided_copy(x[4:], (2,), (1,), x.storage_offset()),
    "scattered": lambda x: torch.as_strided_scatter(x[:4], torch.ones(2), (2,), (4,), 0) + 1,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_as_strided_that_begins_outside_of_the_argument_is_a_break(name):
    before_and_after = 2 if name not in ("the storage", "copied") else 1
    check(OUTSIDE[name], part(0), breaks=1, compiles=before_and_after, fallbacks=0)
    stats = at_every_offset(OUTSIDE[name])
    breaks = 1 if name in ("the storage", "scattered") else 4  # where the offset is a constant, once for all of them
    assert stats["break_reasons"] == {"unsupported_op": breaks} and not stats["fallbacks"], stats


ERRORS = {
    "beyond the storage": lambda x: x.as_strided((20,), (4,), 3),
    "an offset beyond it": lambda x: x.as_strided((2,), (1,), 100),
    "a negative offset": lambda x: x.as_strided((2,), (1,), -1),
    "a negative stride": lambda x: x.as_strided((2,), (-1,), x.storage_offset() + 5),
    "a negative stride, no offset": lambda x: x.as_strided((2,), (-1,)),
    "a negative stride of own memory": lambda x: (x * 2).as_strided((2,), (-1,), 3),
    "fewer strides": lambda x: x.as_strided((2, 2), (1,), x.storage_offset()),
    "copied": lambda x: torch.as_strided_copy(x, (20,), (4,), 3),
}


@pytest.mark.nothing_captured
@pytest.mark.breaks(unsupported_op={"an offset beyond it": 1, "a negative offset": 1, "copied": 1},
                    exception_raised={"beyond the storage": 1, "a negative stride": 4,
                                      "a negative stride, no offset": 1, "a negative stride of own memory": 1,
                                      "fewer strides": 4})
@pytest.mark.fallbacks(run_failed={"copied": 2})
@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_as_strided_are_eagers(name):
    compiled = framejit.compile(ERRORS[name])
    for offset in OFFSETS:
        with pytest.raises(RuntimeError) as want:
            ERRORS[name](part(offset))
        with pytest.raises(RuntimeError) as got:
            compiled(part(offset))
        assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0], offset
    if name != "copied":  # the op itself looks at its storage
        assert framejit.stats()["fallbacks"] == 0, framejit.stats()


@pytest.mark.fallbacks(run_failed=1)
def test_a_storage_that_is_too_small_later_is_eagers_error():
    """The elements beyond the argument are in the first storage, and not in the second."""
    def f(x):
        return x.as_strided((2, 2), (8, 9), 0) + 1
    compiled = framejit.compile(f)
    same(compiled(torch.arange(60.0)[:12]), f(torch.arange(60.0)[:12]))
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 48"):
        compiled(torch.arange(12.0))


def test_sizes_that_vary(backend):
    def f(x):
        return x.as_strided((2, x.shape[1]), (x.shape[1], 1), 2) + x.as_strided((x.shape[0],), (x.shape[1],), 0).sum()
    compiled = framejit.compile(f, backend=backend, dynamic=True)
    for rows, columns in ((4, 5), (6, 3), (3, 9), (8, 4)):
        x = torch.randn(rows, columns)
        same(compiled(x.clone()), f(x), None, f"{rows}, {columns}")
    assert framejit.stats()["graph_breaks"] == 0


LAID_OUT = {
    "an element": lambda x: x.select(0, 1).select(0, 1).as_strided((2, 2), (3, 1)) + 0,
    "a row": lambda x: x[1].as_strided((2, 2), (3, 1)) + 0,
    "a part": lambda x: x[1:, 1:].as_strided((2, 2), (3, 1)) + 0,
    "an offset": lambda x: x.as_strided((2, 2), (3, 1), 5) + 0,
}


@pytest.mark.parametrize("name", LAID_OUT)
def test_as_strided_of_a_written_argument_sees_its_layout(name, backend):
    """The written tensor has another order in memory than the argument."""
    def f(x, y):
        x.copy_(y)
        return LAID_OUT[name](x)
    y = torch.arange(16.0).view(4, 4).exp()
    x, given = (torch.arange(16.0).view(4, 4).t() for _ in range(2))
    same(framejit.compile(f, backend=backend)(x, y), f(given, y))
    same(x, given)
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["fallbacks"] == 0, framejit.stats()


def test_gradients_through_as_strided_at_an_offset():
    def f(x, w):
        y = x * 2
        return (x.as_strided((2, 2), (1, 2), x.storage_offset() + 3) * w).sum() + y.as_strided((3,), (2,), 1).sum()

    def with_gradients(call, offset):
        with torch.enable_grad():
            x, w = part(offset).requires_grad_(), torch.arange(4.0).view(2, 2).requires_grad_()
            return torch.autograd.grad(call(x, w), (x, w))
    compiled = framejit.compile(f)
    for offset in OFFSETS:
        same(with_gradients(compiled, offset), with_gradients(f, offset), None, f"offset {offset}")


BEHIND_WRITES = {
    "index_add": lambda x, n, m: x[..., 2:].index_add(0, n, x[..., 2:][n]),
    "unbind": lambda x, n, m: [part.sort()[0] for part in x.unbind(1)],
    "a view of a view": lambda x, n, m: x[1:][:, 1:].t()[1:].cumsum(0),
    "returned": lambda x, n, m: x[:, 1],
}


@pytest.mark.parametrize("name", BEHIND_WRITES)
def test_views_taken_before_a_write_see_it(name):
    """The write makes a tensor that begins at the start of its memory; former views of the argument become views of
    that tensor."""
    def f(x, n, m):
        view = x[:, :]
        x[m] = -1
        return BEHIND_WRITES[name](view, n, m)
    compiled = framejit.compile(f)
    whole, n, m = torch.randn(9, 7), torch.tensor([1, 0, 1]), torch.rand(4, 7) > 0.5
    for row in (5, 0, 3):
        same(compiled(whole.clone()[row:row + 4], n, m), f(whole.clone()[row:row + 4], n, m), None, f"row {row}")


def test_a_view_of_a_copy_moves_with_it():
    """The copy stands for the argument until it is an output."""
    def f(x):
        y = x.clone()
        y.unsqueeze_(0)
        return y, y[..., 1:]
    compiled = framejit.compile(f)
    whole = torch.randn(9, 7)
    for row in (5, 0, 3):
        same(compiled(whole.clone()[row:row + 4]), f(whole.clone()[row:row + 4]), None, f"row {row}")
    assert not framejit.stats()["fallbacks"]


MADE = {
    "clone": lambda x: x.clone(), "empty_like": lambda x: torch.empty_like(x).copy_(x), "sum": lambda x: x + 1,
    "zeros_like": lambda x: torch.zeros_like(x), "itself": lambda x: x,
}
VIEWS = {
    "rows": lambda t: t[2:], "column": lambda t: t[:, 1:], "row": lambda t: t.select(0, 1),
    "transposed": lambda t: t.t(), "flat": lambda t: t.reshape(-1)[3:], "diagonal": lambda t: t.diagonal(),
    "every second": lambda t: t[::2], "one split": lambda t: t.split(2)[1],
    "strided": lambda t: t.as_strided((2, 2), (4, 1), 3),
}
SLICES = {
    "all": lambda b: b, "rows": lambda b: b[3:], "columns": lambda b: b[:, 2:], "both": lambda b: b[1:, 1:],
    "transposed": lambda b: b[3:].t(), "every second": lambda b: b[1::2],
}
WRITES = {
    "scaled": lambda v: v.mul_(2), "filled": lambda v: v.fill_(3.0), "copied to": lambda v: v.copy_(v + 1),
    "an item": lambda v: v.__setitem__(slice(0, 1), 7.0),
}


@pytest.mark.breaks(no_functional_form={"clone-strided": 16, "empty_like-strided": 16, "sum-strided": 16,
                                        "zeros_like-strided": 16, "itself-strided": 4},
                    unsupported_op={"itself-strided": 4})
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("made", MADE)
def test_a_view_made_inside_begins_where_eagers_does(made, view, backend):
    """For every slice, written in every way."""
    for write in WRITES.values():
        def fn(x):
            y = MADE[made](x)
            v = VIEWS[view](y)
            write(v)
            return y, v
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for name, part_of in SLICES.items():
            ours, given = torch.arange(64.0).reshape(8, 8), torch.arange(64.0).reshape(8, 8)
            got, want = compiled(part_of(ours)), fn(part_of(given))
            same(got, want, None, name)
            same(ours, given, None, name)
            for g, w in zip(got, want):
                assert (g.stride(), g.storage_offset(), g._is_view()) == (w.stride(), w.storage_offset(),
                    w._is_view()), name


OVERLAPPING = {
    "as_strided": lambda y: y.as_strided((2, 2), (1, 1)).add_(1),
    "as_strided, a part": lambda y: y.as_strided((3, 4), (2, 1))[1:, 1:].mul_(2),
    "windows": lambda y: y.unfold(0, 4, 2).add_(1),
    "windows of a part": lambda y: y[2:].unfold(0, 4, 2).cumsum_(1),
}


@pytest.mark.breaks(no_functional_form=1)
@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", OVERLAPPING)
def test_a_write_of_a_view_that_shows_an_element_twice_runs_plainly(name):
    def fn(x):
        y = x.clone()
        z = OVERLAPPING[name](y)
        return y, z
    x = torch.arange(12.0)
    same(framejit.compile(fn)(x), fn(x))
    assert framejit.stats()["graphs"] == 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.float32], ids=str)
def test_copies_of_every_dtype(dtype):
    check(lambda x: torch.as_strided_copy(x, (2, 2), (1, 2), 1), torch.arange(9).view(3, 3).to(dtype))
