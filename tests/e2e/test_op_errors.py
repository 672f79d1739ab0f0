"""Errors that eager's kernels raise for the given shapes: the compiled function raises the same error, found while
tracing."""
import abc
import math

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, fresh, raised, same, threads  # noqa: F401
from devices import DEVICE

CASES = {
    "convolution without channels": lambda: F.conv1d(torch.ones(2, 3, 4), torch.ones(0, 3, 3)),
    "fft of nothing": lambda: torch.fft.fft(torch.ones(0, 5), dim=0),
    "norm of nothing": lambda: torch.ones(0, 5).norm(float("-inf")),
    "embedding without rows": lambda: F.embedding(torch.tensor([0]), torch.ones(0, 3)),
    "index into nothing": lambda: torch.ones(0, 3)[torch.tensor([0])],
    "boundaries that are no list": lambda: torch.bucketize(torch.tensor(1.0), torch.tensor(1.0)),
    "slice_scatter of a number": lambda: torch.slice_scatter(torch.tensor(1.0), torch.tensor(1.0)),
    "slice_scatter of another size": lambda: torch.slice_scatter(torch.ones(4), torch.ones(3), 0, 0, 2),
    "as_strided beyond the storage": lambda: torch.ones(4).as_strided((3, 3), (3, 1)),
    "batch norm with another number of channels": lambda: F.batch_norm(torch.ones(2, 3), torch.ones(4), torch.ones(4)),
    "sort along no dimension": lambda: torch.sort(torch.tensor(1.0), -3),
    "stable sort along no dimension": lambda: torch.sort(torch.ones(3), dim=1, stable=True),
    "transposed convolution of fewer rows than groups": lambda: F.conv_transpose1d(torch.ones(1, 1, 1),
        torch.ones(1, 1, 1), groups=2),
    "resized to nothing": lambda: F.interpolate(torch.ones(1, 1, 1, 1), scale_factor=0.5, mode="bilinear",
                                                antialias=True),
    "preserved memory format of nothing": lambda: torch.empty(3, memory_format=torch.preserve_format),
    "copy into shared memory": lambda: torch.ones(1, 2).expand(3, 2).copy_(torch.ones(3, 2)),
}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_errors_of_shapes(case):
    made = []

    def program(x):
        made.append(None)
        return x + 1, case()
    with pytest.raises(Exception) as eager:
        program(torch.ones(2))
    framejit.reset()
    with pytest.raises(type(eager.value)) as compiled:
        framejit.compile(program)(torch.ones(2))
    assert str(compiled.value).splitlines()[0] == str(eager.value).splitlines()[0]
    totals = framejit.stats()
    assert totals["fallbacks"] == 0 and totals["break_reasons"].get("exception_raised") == 1, totals
    assert len(made) == 2  # the instruction that raises is executed once, and so is the code before it


FORMATTED = {
    "to": lambda x, f: x.to(torch.float64, memory_format=f),
    "to itself": lambda x, f: x.to(memory_format=f),
    "half": lambda x, f: x.half(memory_format=f),
    "clone": lambda x, f: x.clone(memory_format=f),
    "contiguous": lambda x, f: x.contiguous(memory_format=f),
    "empty": lambda x, f: torch.empty(x.shape, memory_format=f).fill_(1),
    "empty_like": lambda x, f: torch.empty_like(x, memory_format=f).fill_(1),
    "ones_like": lambda x, f: torch.ones_like(x, memory_format=f),
    "full_like": lambda x, f: torch.full_like(x, 2, memory_format=f),
    "rand_like": lambda x, f: torch.rand_like(x, memory_format=f) * 0,
}


@pytest.mark.breaks(exception_raised=12)
@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", FORMATTED)
def test_memory_formats_of_another_rank(name):
    """channels_last has 4 dimensions, channels_last_3d has 5: any other rank is an error."""
    fn = FORMATTED[name]
    for rank in range(7):
        for memory_format, fits in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
            x = torch.ones((2, 3, 4, 5, 2, 2)[:rank])
            framejit.reset()
            compiled = framejit.compile(lambda x: fn(x, memory_format))
            if rank == fits:
                for _ in range(2):
                    got, want = compiled(x), fn(x, memory_format)
                    assert torch.equal(got, want) and got.stride() == want.stride()
                assert framejit.stats()["graph_breaks"] == 0
                continue
            with pytest.raises(RuntimeError, match=f"required rank {fits} tensor"):
                fn(x, memory_format)
            with pytest.raises(RuntimeError, match=f"required rank {fits} tensor"):
                compiled(x)
            assert framejit.stats()["fallbacks"] == 0


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self): ...

    @property
    @abc.abstractmethod
    def p(self): ...


CAUGHT = {
    "mean of integers": lambda x: x.int().mean(),
    "softmax of integers": lambda x: torch.softmax(x.int(), 0),
    "an item that is too large": lambda x: x.__setitem__(0, torch.ones(3)),
    "a view of another size": lambda x: x.view(5, 5),
    "a product of wrong sizes": lambda x: x @ torch.ones(7, 7),
    "a matrix that is no matrix": lambda x: torch.linalg.inv(x),
    "an abstract class": lambda x: Abstract(),
}


@pytest.mark.breaks(exception_raised=1)
@pytest.mark.parametrize("case", CAUGHT.values(), ids=CAUGHT)
def test_errors_that_the_program_catches_and_reads(case):
    def program(x):
        y = x * 2
        try:
            case(x)
        except Exception as error:
            return type(error), str(error), y
        return y + 1
    with torch.no_grad():
        want = program(torch.ones(3))
        framejit.reset()
        compiled = framejit.compile(program)
        for _ in range(2):
            got = compiled(torch.ones(3))
            assert got[:2] == want[:2] and torch.equal(got[2], want[2])


NAMED_SIZES = {
    "an index": lambda x, n: x[n],
    "parts of a dimension": lambda x, n: x.unflatten(0, (n, 3)),
    "two batches": lambda x, n: F.cross_entropy(x[None], torch.zeros(n, dtype=torch.long)),
    "a product": lambda x, n: x @ torch.ones(n + 20),
}


@pytest.mark.breaks(exception_raised=1)
@pytest.mark.breaks(exception_raised={"None-a product": 1})
@pytest.mark.parametrize("case", NAMED_SIZES.values(), ids=NAMED_SIZES)
@pytest.mark.parametrize("dynamic", [None, True])
def test_errors_that_tell_of_sizes(case, dynamic):
    """Sizes that vary are symbols; the text has their numbers."""
    def program(x, n):
        y = x * 2
        try:
            case(x, n)
        except Exception as error:
            return type(error), str(error), y
        return y + 1
    framejit.reset()
    compiled = framejit.compile(program, dynamic=dynamic)
    for size, n in ((4, 9), (6, 11), (7, 13)):
        want, got = program(torch.ones(size), n), compiled(torch.ones(size), n)
        assert got[:2] == want[:2] and torch.equal(got[2], want[2])


@pytest.mark.breaks(exception_raised=1)
@pytest.mark.nothing_captured
@pytest.mark.parametrize("scan", [torch.Tensor.cumsum_, torch.Tensor.cumprod_])
def test_scans_of_bools_in_place(scan):
    framejit.reset()
    x = torch.tensor([True, False])
    with pytest.raises(NotImplementedError):
        framejit.compile(lambda x: scan(x, 0))(x)
    assert x.tolist() == [True, False]


REDUCTIONS = (torch.sum, torch.mean, torch.prod, torch.cumsum, torch.cumprod, torch.nansum, torch.logsumexp)


@pytest.mark.breaks(unsupported_op=1)
@pytest.mark.nothing_captured
@pytest.mark.parametrize("reduce", REDUCTIONS, ids=lambda f: f.__name__)
def test_out_of_another_dtype(reduce):
    """A reduction computes in the dtype of its out= tensor, or refuses it."""
    x = torch.tensor([[1.1, 2.7], [0.9, -5.6]])
    shape = reduce(x, 0).shape
    compiled = framejit.compile(lambda x, out: reduce(x, 0, out=out))
    for dtype in (torch.float64, torch.int64, torch.bool):
        written, ours = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        want = raised(lambda: reduce(x, 0, out=written))
        got = raised(compiled, x, ours)
        assert torch.equal(written, ours)
        assert got is ours if want is written else got == want


def test_statistics_whose_elements_share_memory():
    """Eager writes one element several times; a graph's own copies would not. On two threads, eager's own writes
    race."""
    x = torch.arange(50.0).view(2, 5, 5)
    with threads(1):
        check(lambda x, m, v: F.batch_norm(x * 2, m, v, training=True) + 1, x, torch.zeros(1).expand(5),
              torch.ones(1).expand(5), breaks=1, compiles=2)


def test_results_that_keep_their_place_in_the_storage():
    x = torch.arange(60.0).view(3, 4, 5)
    for view in (x[1:], x[:, 1:3], x.as_strided((2, 2), (2, 1), 5)):
        check(lambda v: torch.select_scatter(v, torch.zeros_like(v[0]), 0, 1), view, breaks=1)
    check(lambda v: torch.select_scatter(v, torch.zeros_like(v[0]), 0, 1), x)
    check(lambda v: torch.select_scatter(v.t(), torch.zeros(3), 0, 1), x[:, :, 0].contiguous())


def test_views_are_not_detached_in_place():
    check(lambda x: (x + 1).detach_() * 2, torch.ones(3), breaks=1, compiles=2)
    check(lambda x: (x + 1, x.detach_()), torch.ones(4).view(2, 2), breaks=1)


OVERLAPS = {
    "shifted assignment": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "shifted sum": lambda x: x[1:].add_(x[:-1]),
    "shifted copy": lambda x: x[1:].copy_(x[:-1]),
    "transposed copy": lambda x: x.copy_(x.t()),
    "transposed sum": lambda x: x.add_(x.t()),
    "row of itself": lambda x: x.div_(x[0]),
    "rows of itself": lambda x: x.sub_(x[:1]),
    "itself": lambda x: x.add_(x),
    "a view that is itself": lambda x: x.mul_(x.view(3, 3)),
    "other rows": lambda x: x[:1].add_(x[1:2]),
    "a temporary": lambda x: x.add_(x.t() * 1),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_writes_to_what_is_read(name):
    """Eager refuses most; where it computes, in its own order, the result must be the same."""
    def f(x):
        y = x * 2
        OVERLAPS[name](y)
        return y + 1
    whole = ("itself", "a view that is itself", "other rows", "a temporary")
    check(f, torch.arange(9.0).view(3, 3) + 1, breaks=0 if name in whole else 1)


def test_dimensions_named_twice():
    for op in (torch.sum, torch.mean, torch.amax, torch.var, torch.any, torch.logsumexp):
        check(lambda x: (x * 2, op(x, dim=(0, -1))), torch.ones(3))
        check(lambda x: (x * 2, op(x, dim=(0, 1))), torch.ones(3, 2))


@pytest.mark.parametrize("shape", [(25, 5), (5, -1), (1, 125)])
def test_view_copy_of_any_strides(shape):
    x = torch.arange(125.0).view(5, 5, 5)
    for v in (x, x.transpose(1, 2), x[:1].expand(5, 5, 5)):
        check(torch.view_copy, v, shape)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce_of_nothing(reduce):
    """Torch's shape function needs a first slice; the kernel does not."""
    def program(x, i, s):
        return torch.index_reduce(x, 0, i, s, reduce) + 1, (x * 2).index_reduce_(0, i, s, reduce)
    none = torch.zeros(0, dtype=torch.int64)
    for x in (torch.ones(0), torch.ones(3, 2), torch.ones(0, 4)):
        check(program, x, none, x[:0], breaks=0)
    check(program, torch.ones(3, 2), torch.tensor([0, 0, 2]), torch.rand(3, 2), breaks=0)
    check(program, torch.ones(3, 2), none, torch.ones(0, 5))


def test_reversed_subtraction_of_small_integers():
    for dtype in (torch.uint8, torch.int8, torch.int16):
        check(lambda x: torch.rsub(x, 0.5) + torch.rsub(x, 2, alpha=3),
              torch.tensor([0, 1, 100, torch.iinfo(dtype).max], dtype=dtype))


DEAD_ERRORS = {
    "int floor_divide": (lambda x, y: (x // y, x + 1)[1], torch.ones(3, dtype=torch.int64),
                         torch.zeros(3, dtype=torch.int64)),
    "int remainder": (lambda x, y: (x % y, x + 1)[1], torch.ones(3, dtype=torch.int64),
                      torch.zeros(3, dtype=torch.int64)),
    "int fmod": (lambda x, y: (torch.fmod(x, y), x + 1)[1], torch.ones(3, dtype=torch.int64),
                 torch.zeros(3, dtype=torch.int64)),
    "int div": (lambda x, y: (torch.div(x, y, rounding_mode="trunc"), x + 1)[1], torch.ones(3, dtype=torch.int64),
                torch.zeros(3, dtype=torch.int64)),
    "embedding_bag": (lambda i, w: (F.embedding_bag(i, w), w + 1)[1], torch.full((2, 2), 99), torch.ones(3, 4)),
    "_unsafe_index": (lambda x, i: (torch.ops.aten._unsafe_index(x, [i]), x + 1)[1], torch.ones(5),
                      torch.full((2,), 99)),
    "masked_scatter": (lambda x, s: (x.masked_scatter(x > 0, s), x + 1)[1], torch.ones(5), torch.ones(2)),
    "segment_reduce": (lambda x, n: (torch.segment_reduce(x, "sum", lengths=n), x + 1)[1], torch.ones(5),
                       torch.tensor([3, 3])),
    "binary_cross_entropy": (lambda x, t: (F.binary_cross_entropy(x, t), x + 1)[1], torch.full((3,), 2.0),
                             torch.ones(3)),
    "multi_margin_loss": (lambda x, t: (F.multi_margin_loss(x, t), x + 1)[1], torch.ones(2, 3), torch.tensor([7, 7])),
    "multilabel_margin_loss": (lambda x, t: (F.multilabel_margin_loss(x, t), x + 1)[1], torch.ones(2, 3),
                               torch.full((2, 3), 7)),
    "max_unpool2d": (lambda x, i: (F.max_unpool2d(x, i, 2), x + 1)[1], torch.ones(1, 1, 2, 2),
                     torch.full((1, 1, 2, 2), 99)),
    "eigh": (lambda x: (torch.linalg.eigh(x), x + 1)[1], torch.full((3, 3), float("nan"))),
    "svd": (lambda x: (torch.linalg.svd(x), x + 1)[1], torch.full((3, 3), float("nan"))),
    "gather": (lambda x, i: (x.gather(0, i), x + 1)[1], torch.ones(5), torch.full((2,), 99)),
    "nll_loss": (lambda x, t: (F.nll_loss(x, t), x + 1)[1], torch.ones(2, 3), torch.tensor([7, 7])),
}


CHECKED = "binary_cross_entropy", "gather", "nll_loss"  # by a kernel of ours


@pytest.mark.fallbacks(run_failed={name: 3 for name in DEAD_ERRORS if name not in CHECKED},
                       kernel_check=dict.fromkeys(CHECKED, 3))
@pytest.mark.parametrize("name", DEAD_ERRORS)
def test_what_raises_for_its_data_raises_unused_too(name, one_thread):  # on several, one of two errors comes first
    fn, *args = DEAD_ERRORS[name]
    compiled = framejit.compile(fn)
    for _ in range(3):
        with pytest.raises(Exception) as plain:
            fn(*args)
        with pytest.raises(type(plain.value)) as ours:
            compiled(*args)
        assert type(ours.value) is type(plain.value) and str(ours.value) == str(plain.value)


@pytest.mark.fallbacks(run_failed=2)
def test_errors_of_values_are_not_those_of_kinds():
    """x ** -1 of integers is an error of the exponent: x ** 2 is still compiled."""
    x = torch.arange(3)
    for exponent in (2, -1, 3, -2, 2):
        compiled = framejit.compile(lambda x, k=exponent: x ** k)
        if exponent < 0:
            with pytest.raises(RuntimeError, match="negative integer powers"):
                compiled(x)
        else:
            assert torch.equal(compiled(x), x ** exponent)


# Kernels refuse dtypes that do not matter for shapes; the same op is still compiled for other dtypes.
KINDS = {
    "in-place quotient": lambda x: x.div_(2),
    "in-place float": lambda x: x.add_(0.5),
    "bool minus bool": lambda x: x - x,
    "one minus": lambda x: 1 - x,
    "negation": lambda x: -x,
    "in-place negation": lambda x: x.neg_(),
    "abs": torch.abs,
    "relu": torch.relu,
    "floor": torch.floor,
    "frac": torch.frac,
    "in-place root": lambda x: x.sqrt_(),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "threshold": lambda x: F.threshold(x, 0, 1),
    "true alpha": lambda x: torch.add(x, x, alpha=True),
    "minus a mask": lambda x: x - (x > 0),
    "gelu": F.gelu,
    "hypot": lambda x: torch.hypot(x, x),
    "reflection": lambda x: F.pad(x[None], (1, 1), mode="reflect"),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "float statistics": lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float64])
@pytest.mark.nothing_captured
def test_dtypes_that_eager_refuses(name, dtype):
    fn = KINDS[name]
    x = torch.tensor([[1, 0, 2], [3, 1, 0]]).to(dtype)
    compiled = framejit.compile(fn)
    for call, compiled in enumerate([compiled, compiled, framejit.compile(lambda x: fn(x))]):
        try:
            expected = fn(x.clone())
        except (RuntimeError, NotImplementedError, TypeError) as error:
            with pytest.raises(type(error)) as ours:
                compiled(x.clone())
            assert str(ours.value).split("\n")[0] == str(error).split("\n")[0], call
            assert framejit.stats()["break_reasons"] == {"exception_raised": 1 + call // 2}
        else:
            torch.testing.assert_close(compiled(x.clone()), expected)
            assert framejit.stats()["graphs"] > 0 and framejit.stats()["graph_breaks"] == 0
    assert framejit.stats()["fallbacks"] == 0


class TestPartsOfWhatIsChecked:
    """All indices are checked, even if only some of the elements that they select are read."""
    PARTS = {
        "a row": lambda d, at: d.index_select(0, at)[0] + 1,
        "the rows after the first": lambda d, at: d[at][1:] * 2,
        "rows that are reshaped": lambda d, at: d[at].reshape(-1) * 2,
        "a column": lambda d, at: d[at][:, 0] + 1,
        "columns of rows": lambda d, at: d.gather(0, at[:, None].expand(2, 3))[:1, 1:].sum(),
        "a row of an embedding": lambda d, at: F.embedding(at, d)[0].exp(),
        "every second row, from the end": lambda d, at: d[at].flip(0)[::2].relu(),
        "parts of two": lambda d, at: d[at][0] + d[at * 2 - at][1],
        "a row, and all of them": lambda d, at: (d[at][0] * 2, d[at] * 3),
    }

    @pytest.mark.parametrize("name", PARTS)
    def test_raises_as_eager(self, name):
        fn, data = self.PARTS[name], torch.randn(5, 3)
        compiled = framejit.compile(fn)
        for at in ([0, 1], [2, 3], [1, 99], [99, 1], [0, -6], [4, 0]):
            args = (data, torch.tensor(at))
            try:
                expected = fn(*args)
            except (IndexError, RuntimeError) as error:
                with pytest.raises(type(error)) as raised:
                    compiled(*args)
                assert str(raised.value) == str(error)
            else:
                torch.testing.assert_close(compiled(*args), expected)
        stats = framejit.stats()
        assert stats["kernels"] and stats["graphs"] == 1 and stats["fallbacks"] == 3, stats


@pytest.mark.nothing_captured
@pytest.mark.parametrize("write",
                         [lambda x, n: x.cumsum_(1), lambda x, n: x.cumprod_(1), lambda x, n: x.index_fill_(1, n,
                             0.5), lambda x, n: x.index_add_(1, n, x[:2]),
                                   lambda x, n: x.scatter_(1, n, 1.0)],
                         ids=["cumsum_", "cumprod_", "index_fill_", "index_add_", "scatter_"])
def test_dimensions_that_there_are_not(write, request):
    """Whatever the rank was when sizes became symbols."""
    n = torch.tensor([1, 0])
    check(write, torch.randn(3), n, breaks=1 if "index_add_" in request.node.name else None)
    compiled = framejit.compile(write)
    for shape in ((2, 3), (2, 4), (3,), (4,)):
        outcomes = []
        for f in (compiled, write):
            try:
                outcomes.append(f(torch.ones(shape), n).tolist())
            except (IndexError, RuntimeError) as e:
                outcomes.append(str(e).splitlines()[0])
        assert outcomes[0] == outcomes[1]
    # Errors of index_add_ show in the trace, or in the run if a shape function of torch in Python has been imported.
    stats, name = framejit.stats(), request.node.callspec.id
    # On a GPU, so do those of index_fill_ and scatter_.
    told = {"cumsum_": 5, "cumprod_": 5, "index_fill_": 1, "index_add_": 4, "scatter_": 1}
    told |= {} if DEVICE == "cpu" else {"index_fill_": 5, "scatter_": 4}
    assert stats["graph_breaks"] + stats["fallbacks"] == told[name]


def refuses_after_others(f, dynamic, *values):
    compiled, x = framejit.compile(f, dynamic=dynamic), torch.tensor([0.5, -1.0, 2.0])
    for n in values[:-1]:
        assert torch.allclose(compiled(x, n), f(x, n))
    want = raised(lambda: f(x, values[-1]))
    assert want[0] == "RuntimeError" and raised(lambda: compiled(x, values[-1])) == want


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("values", [(3, 4, 5, 0), (3.0, 4.0, 5.0, 0.0)], ids=["integers", "floats"])
@pytest.mark.parametrize("celu", [F.celu, lambda x, n: F.celu_(x + 1, n)], ids=["celu", "celu_"])
@pytest.mark.breaks(exception_raised=1)
def test_an_alpha_of_zero_after_others(celu, values, dynamic):
    """Eager refuses it when the op is called, also once the number is a symbol."""
    refuses_after_others(celu, dynamic, *values)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("values", [(3, 4, 5, -1), (3.0, 4.0, 5.0, -1.0), (3.0, 4.0, 5.0, math.inf)],
                         ids=["integers", "floats", "infinity"])
@pytest.mark.breaks(exception_raised=1)
def test_a_lambda_out_of_range_after_others(values, dynamic):
    refuses_after_others(F.softshrink, dynamic, *values)
    assert framejit.stats()["graphs"] in (1, 2, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("number", [math.inf, math.nan, 1e5, 3.4e38, -1e-30])
@pytest.mark.nothing_captured
def test_a_lambda_that_the_dtype_cannot_hold(number, dtype):
    def f(x):
        return F.softshrink(x, number) + 1
    x = torch.tensor([0.5, -1.0, 2.0], dtype=dtype)
    want, got = raised(lambda: f(x)), raised(lambda: framejit.compile(f)(x))
    assert torch.equal(want, got) if isinstance(want, torch.Tensor) else want == got
    assert framejit.stats()["graph_breaks"] == (not isinstance(want, torch.Tensor))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("loss, last", [
    (lambda x, n: F.smooth_l1_loss(x, x * 2, beta=n), float("nan")),
    (lambda x, n: F.huber_loss(x, x * 2, delta=n), float("nan")), (lambda x, n: F.huber_loss(x, x * 2, delta=n), 0.0)])
@pytest.mark.fallbacks(run_failed=1)
def test_a_threshold_that_is_refused_after_others(loss, last, dynamic):
    """The kernel refuses it."""
    refuses_after_others(loss, dynamic, 1.0, 2.0, last)


WEIGHTS = torch.tensor([1.0, 2, 3, 4])
# Programs that some calls may not run with: their argument in each call.
SOMETIMES = {
    "weights for other classes": (
        lambda x: F.cross_entropy(x, torch.ones(2, dtype=torch.long), WEIGHTS),
        [torch.zeros(2, classes) for classes in (4, 5, 3, 9, 4)]),
    "weights for other classes, one row": (
        lambda x: F.cross_entropy(x, torch.tensor(1), WEIGHTS), [torch.zeros(classes) for classes in (4, 5, 3, 4)]),
    "labels for other rows": (
        lambda x: torch.ops.aten.nll_loss_forward(x, torch.ones(2, dtype=torch.long), None, 1, -100),
        [torch.zeros(rows, 4) for rows in (2, 3, 5, 2)]),
    "softshrink": (lambda n: F.softshrink(torch.arange(-2.0, 3), n), [0.5, 0.25, 0.75, -1.0, float("nan"), 1.5]),
    "softshrink of half": (lambda n: F.softshrink(torch.arange(-2.0, 3).half(), n), [0.5, 70000.0, 2, 3, -3]),
    "hardtanh of bytes": (lambda n: F.hardtanh(torch.arange(6, dtype=torch.uint8), n, 4), [2, 3, -1, 1.0, -2.0]),
    "hardtanh of bytes, in place": (lambda n: F.hardtanh(torch.arange(6).byte(), 1, n, True), [2, 3, -1, 4, -2]),
}


@pytest.mark.fallbacks(run_failed={"hardtanh of bytes": 1})  # the limit is a value of the graph
@pytest.mark.parametrize("name", SOMETIMES)
def test_what_some_calls_may_not_do(name):
    f, values = SOMETIMES[name]
    compiled = framejit.compile(f)
    for value in values:
        same(raised(compiled, value), raised(f, value))
    assert framejit.stats()["break_reasons"].get("exception_raised") == 1
