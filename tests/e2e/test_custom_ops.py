"""torch.library.custom_op with a shape function in Python, over sizes that vary: whole, one graph for all sizes."""
import pytest
import torch

import framejit
from check import same

SIZES = (3, 5, 7, 9, 4)
ASKED = []
LIBRARIES = []


@torch.library.custom_op("framejit_ops::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    ASKED.append(x.shape)
    return torch.empty_like(x)


@torch.library.custom_op("framejit_ops::padded", mutates_args=())
def padded(x: torch.Tensor, rows: int) -> list[torch.Tensor]:
    return [torch.cat([x, x.new_ones(rows, x.shape[1])]), x.t().contiguous()]


@padded.register_fake
def _(x, rows):
    assert x.dim() == 2 and rows >= 0
    return [x.new_empty(x.shape[0] + rows, x.shape[1]), torch.empty(x.size(1), x.size(0), dtype=x.dtype,
                                                                    device=x.device)]


@torch.library.custom_op("framejit_ops::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:x.shape[0] // 2].clone(), x[x.shape[0] // 2:].double()


@halves.register_fake
def _(x):
    half = x.shape[0] // 2
    return x.new_empty(half, x.shape[1]), x.new_empty(x.shape[0] - half, x.shape[1], dtype=torch.float64)


@torch.library.custom_op("framejit_ops::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


@product.register_fake
def _(x, w):
    return x @ w


@torch.library.custom_op("framejit_ops::on_cpu", mutates_args=())
def on_cpu(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.shape)


@on_cpu.register_fake
def _(x):
    return torch.empty(x.shape)


@torch.library.custom_op("framejit_ops::by_parity", mutates_args=())
def by_parity(x: torch.Tensor) -> torch.Tensor:
    return x.clone() if x.shape[0] % 2 else x.t().contiguous()


@by_parity.register_fake
def _(x):
    return x.new_empty(x.shape[0], x.shape[1]) if x.shape[0] % 2 else x.new_empty(x.shape[1], x.shape[0])


@torch.library.custom_op("framejit_ops::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x[:, 0] > 0].clone()


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.shape[1])


PROGRAMS = {
    "as the argument": lambda x: twice(x + 1).relu() * 3,
    "another size": lambda x: [part + 1 for part in padded(x * 2, 2)],
    "a size given as a number": lambda x: [part + 1 for part in padded(x * 2, x.shape[0])],
    "an argument that is no row of rows": lambda x: twice((x + 1)[:, 1:].t()) + 1,
    "results of two types": lambda x: [part * 2 for part in halves(x + 1)],
    "a shape function that computes": lambda x: product(x + 1, x.t()) * 2,
    "two ops, one after the other": lambda x: padded(twice(x) + 1, 1)[0].sum(1) * 2,
}
OTHERS = {  # these have an answer only for the current sizes: a graph for each size, or for even and odd sizes
    "a shape function that makes memory": (lambda x: on_cpu(x + 1) * 2, 5),
    "a shape function that asks": (lambda x: by_parity(x + 1) * 2, 3),
}


def counted(fn):
    framejit.reset()
    ASKED.clear()
    compiled = framejit.compile(fn)
    with torch.no_grad():
        for size in (*SIZES, *SIZES):
            x = torch.randn(size, 4)
            same(compiled(x), fn(x))
    stats = framejit.stats()
    assert stats["fallback_reasons"] == {}, stats
    return stats


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name):
    stats = counted(PROGRAMS[name])
    assert (stats["graphs"], stats["recompiles"], stats["graph_breaks"]) == (2, 1, 0), stats


def test_the_shape_function_is_asked_once_a_graph():
    counted(PROGRAMS["as the argument"])
    first, second = ASKED
    assert tuple(first) == (3, 4) and isinstance(second[0], torch.SymInt) and second[1] == 4


@pytest.mark.parametrize("name", OTHERS)
def test_graphs_for_some_sizes(name):
    fn, graphs = OTHERS[name]
    stats = counted(fn)
    assert stats["graphs"] == graphs and stats["graph_breaks"] == 0, stats


RUNS = []


def counting(name, result, fake):
    op = torch.library.custom_op(f"framejit_ops::{name}", mutates_args=(), schema="(Tensor x) -> Tensor")(
        lambda x: (RUNS.append(x.sum().item()), result(x))[1])
    op.register_fake(fake)
    return op


def test_the_kernel_runs_once_a_call_and_on_no_other_values():
    op = counting("counted", lambda x: x * 2, torch.empty_like)
    for given in (lambda n: torch.full((n, 4), 7.), lambda n: torch.full((0, n), 7.)):
        compiled = framejit.compile(lambda x: op(x + 1).relu() * 3)
        RUNS.clear()
        with torch.no_grad():
            sums = [given(n).add(1).sum().item() for n in (*SIZES, *SIZES)]
            for n in (*SIZES, *SIZES):
                assert torch.equal(compiled(given(n)), (given(n) + 1) * 6)
        assert RUNS == sums


@pytest.mark.parametrize("name, result, fake", [
    ("other_sizes", lambda x: x.t().clone(), torch.empty_like),
    ("other_strides", lambda x: x.t().contiguous().t(), torch.empty_like),
    ("other_dtype", lambda x: x.double(), torch.empty_like),
    ("other_rank", lambda x: x.sum(0), torch.empty_like),
])
def test_a_shape_function_that_errs(name, result, fake):
    op = counting(name, result, fake)
    framejit.reset()
    fn = lambda x: op(x + 1) * 2  # noqa: E731
    compiled = framejit.compile(fn)
    with torch.no_grad():
        for call, size in enumerate((3, *SIZES, *SIZES)):
            x = torch.randn(size, 4)
            RUNS.clear()
            got, runs = compiled(x), len(RUNS)
            want = fn(x)
            same(got, want)
            assert got.stride() == want.stride() and got.dtype == want.dtype
            assert runs == (2 if call == 0 else 1), f"call {call}"
    stats = framejit.stats()
    assert stats["fallback_reasons"] == {"unsupported_op": 1} and stats["break_reasons"] == {"unsupported_op": 2}, stats
    assert stats["hits"] > 0, stats


def raw_op(name, schema, kernel, fake):
    torch.library.define(f"framejit_ops::{name}", schema)
    torch.library.impl(f"framejit_ops::{name}", "CPU", kernel)
    torch.library.register_fake(f"framejit_ops::{name}", fake)
    return getattr(torch.ops.framejit_ops, name)


@pytest.mark.breaks(unsupported_op=3)
@pytest.mark.fallbacks(unsupported_op=3)
def test_lists_of_other_lengths_than_the_shape_function_says():
    shapes = lambda n: lambda x: [torch.empty_like(x)] * n  # noqa: E731
    longer = raw_op("longer", "(Tensor x) -> Tensor[]", lambda x: [x + 1, x + 2, x + 3], shapes(2))
    shorter = raw_op("shorter", "(Tensor x) -> Tensor[]", lambda x: [x + 1], shapes(2))
    shifted = raw_op("shifted", "(Tensor x) -> (Tensor[], Tensor)", lambda x: ([x + 1, x + 5], x * 3),
                     lambda x: ([torch.empty_like(x)], torch.empty_like(x)))
    with torch.no_grad():
        for fn in (lambda x: longer(x * 2), lambda x: shorter(x * 2), lambda x: shifted(x * 2)[1] + 1):
            compiled, x = framejit.compile(fn), torch.randn(3, 4)
            for _ in range(3):
                same(compiled(x), fn(x))


@pytest.mark.breaks(data_dependent_value=2)
def test_numbers_that_an_op_gives_are_the_kernels():
    rounded = raw_op("rounded", "(Tensor x) -> int", lambda x: int(x.sum()), lambda x: 3)
    with torch.no_grad():
        fn = lambda x: x * rounded(x + 1)  # noqa: E731
        compiled = framejit.compile(fn)
        for n in (2, 5, 2):
            same(compiled(torch.full((n,), 2.)), fn(torch.full((n,), 2.)))


@pytest.mark.breaks(unsupported_op=1)
def test_kernels_with_effects_run_as_often_as_in_plain_python():
    logged = raw_op("logged", "(Tensor x) -> ()", lambda x: RUNS.append(x.sum().item()), lambda x: None)
    empty = raw_op("empty", "(Tensor x) -> Tensor[]", lambda x: RUNS.append("empty") or [], lambda x: [])
    drawn = raw_op("drawn", "(Tensor x) -> Tensor", lambda x: RUNS.append("drawn") or torch.rand_like(x),
                   torch.empty_like)
    perhaps = raw_op("perhaps", "(Tensor x) -> Tensor?", lambda x: RUNS.append("perhaps") or x * 2, lambda x: None)

    def fn(x):
        logged(x), drawn(x), empty(x)
        logged(x)
        y = drawn(x) - drawn(x)
        z = perhaps(x + 1)
        return y, x + 1, z

    compiled, x = framejit.compile(fn), torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(4):
            RUNS.clear(), torch.manual_seed(0)
            want, wanted, state = fn(x), list(RUNS), torch.get_rng_state()
            RUNS.clear(), torch.manual_seed(0)
            same(compiled(x), want)
            assert RUNS == wanted and torch.equal(torch.get_rng_state(), state)


SEEN = []


@pytest.mark.parametrize("space", ["framejit_ops", "aten", "framejit", "mkl", "mkldnn"])
def test_an_op_of_the_program_in_any_namespace_runs_as_often_as_in_plain_python(space):
    library = torch.library.Library(space, "FRAGMENT")  # noqa: TOR901
    LIBRARIES.append(library)  # an op lives as long as its library
    library.define("framejit_counted(Tensor x) -> Tensor")
    library.impl("framejit_counted", lambda x: RUNS.append(len(x)) or x + 1, "CPU")
    library.impl("framejit_counted", torch.empty_like, "Meta")
    op = getattr(torch.ops, space).framejit_counted

    def fn(x):
        op(x)
        return x * 2

    framejit.reset()
    compiled, x = framejit.compile(fn), torch.randn(3)
    RUNS.clear()
    with torch.no_grad():
        for _ in range(5):
            same(compiled(x), fn(x))
    assert RUNS == [3] * 10 and framejit.stats()["executed_shapes"] == 0
    assert framejit.stats()["graphs"] == 1



@torch.library.custom_op("framejit_ops::modes", mutates_args=())
def modes(x: torch.Tensor) -> torch.Tensor:
    SEEN.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_grad_enabled(),
                 torch.is_inference_mode_enabled()))
    return torch.nn.functional.linear(x, x).float()


@modes.register_fake
def _(x):
    return x.new_empty(x.shape[0], x.shape[0], dtype=torch.float32)


def in_autocast(x, dtype=torch.bfloat16):
    with torch.autocast("cpu", dtype):
        return modes(x + 1)


def in_other_modes(x):
    with torch.enable_grad():
        y = modes(x * 2)
    with torch.inference_mode():
        return y, modes(x * 3).clone()


@pytest.mark.breaks(unsupported_op={"in_autocast-no_grad": 1, "in_autocast-enable_grad": 1,
                                    "in_autocast-inference_mode": 1, "in_other_modes": 1, "in_other_modes-no_grad": 1,
                                    "in_other_modes-inference_mode": 1}, outside_effect={"in_other_modes": 1})
@pytest.mark.parametrize("around", [torch.no_grad, torch.enable_grad, torch.inference_mode,
                                    lambda: torch.autocast("cpu", torch.bfloat16)])
@pytest.mark.parametrize("fn", [lambda x: modes(x * 2) + 1, in_autocast, in_other_modes])
def test_kernels_run_under_the_modes_of_the_program(fn, around):
    compiled, x = framejit.compile(fn), torch.randn(5, 4)
    for _ in range(3):
        with around():
            SEEN.clear()
            want, wanted = fn(x), list(SEEN)
            SEEN.clear()
            same(compiled(x), want)
            assert SEEN == wanted


@pytest.mark.nothing_captured
def test_a_size_that_depends_on_data_breaks():
    stats = counted(lambda x: positive(x) + 1)
    assert stats["break_reasons"] == {"exception_raised": 1}, stats


@pytest.mark.fallbacks(run_failed=1)
def test_an_error_of_the_kernel_reaches_the_program():
    @torch.library.custom_op("framejit_ops::small", mutates_args=())
    def small(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 8:
            raise ValueError(f"{x.shape[0]} rows are too many")
        return x + 1
    small.register_fake(torch.empty_like)
    compiled = framejit.compile(lambda x: small(x * 2) * 2)
    with torch.no_grad():
        for size in (3, 5, 7):
            x = torch.randn(size, 4)
            same(compiled(x), (x * 2 + 1) * 2)
        with pytest.raises(ValueError, match="9 rows are too many"):
            compiled(torch.randn(9, 4))
        x = torch.randn(6, 4)
        same(compiled(x), (x * 2 + 1) * 2)


class Dense(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return twice(x @ self.weight) + 1


@pytest.mark.parametrize("dynamic", [True, False])
def test_all_sizes_symbols_or_none(dynamic):
    model = Dense()
    compiled = framejit.compile(model, dynamic=dynamic)
    with torch.no_grad():
        for size in SIZES:
            x = torch.randn(size, 4)
            same(compiled(x), model(x))
    stats = framejit.stats()
    assert stats["graphs"] == (1 if dynamic else len(SIZES)) and stats["graph_breaks"] == 0, stats


def scaled_in_place(x):
    x.mul_(3)


# Schema, kernel, shape function, and how the program uses the op.
KINDS = [
    ("(Tensor x) -> Tensor", lambda x: x * 2, lambda x: torch.empty_like(x), lambda op, x: op(x) + 1),
    ("(Tensor(a!) x) -> ()", scaled_in_place, lambda x: None, lambda op, x: (op(x), x + 1)[1]),
    ("(Tensor x, int n) -> Tensor", lambda x, n: x * n, lambda x, n: torch.empty_like(x), lambda op, x: op(x, 3) + 1),
    ("(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 5, x * 6), lambda x: (torch.empty_like(x), torch.empty_like(x)),
     lambda op, x: sum(op(x))),
    ("(Tensor x) -> Tensor[]", lambda x: [x * 7, x * 8], lambda x: [torch.empty_like(x), torch.empty_like(x)],
     lambda op, x: sum(op(x))),
]


@pytest.mark.parametrize("names", [("one",), ("one", "two"), ("one", "two", "three")])
def test_a_destroyed_op_leaves_its_name_and_its_address_to_another(names):
    """Another op is registered where the old one was: under its name, or at its address."""
    def with_a_library(name, schema, kernel, fake, use):
        library = torch.library.Library("framejit_gone", "DEF")
        library.define(name + schema)
        library.impl(name, kernel, "CPU")
        torch.library.register_fake(f"framejit_gone::{name}", fake, lib=library)
        op = getattr(torch.ops.framejit_gone, name)

        def f(x):
            return use(op, x)
        x, y = torch.arange(4.0), torch.arange(4.0)
        with torch.no_grad():
            same((framejit.compile(f)(y), y), (f(x), x))
        writes = "!" in schema  # an op that writes has no functional form
        assert framejit.stats()["graphs"] == (0 if writes else 1) and framejit.stats()["graph_breaks"] == writes
        framejit.reset()
        library._destroy()
    framejit.reset()
    for k in range(30):
        with_a_library(names[k % len(names)], *KINDS[k * 3 % len(KINDS) if k % 2 else k // 2 % len(KINDS)])
