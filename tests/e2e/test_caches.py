"""functools caches and id() keys: cached results are used, and a function whose result is not cached never runs while
tracing."""
import enum
import functools
import os
import sys
import threading

import pytest
import torch

import framejit
import programs
from check import BACKENDS, check

x = torch.randn(3)
calls = []


def test_lru_cache_fills_as_in_eager():
    @functools.lru_cache(maxsize=4)
    def table(n, scale=1):
        return n * 2 + scale

    def f(x, n):
        return x * table(n) + table(n, scale=3)
    framejit.reset()
    compiled = framejit.compile(f, dynamic=False)
    with torch.no_grad():
        for n in (3, 3, 4, 5, 3):
            assert torch.equal(compiled(x, n), f(x, n))
    assert framejit.stats()["graph_breaks"] == 0
    table.cache_clear()
    framejit.reset()
    compiled(x, 7)
    assert table.cache_info().currsize == 2
    compiled(x, 7)
    assert framejit.stats()["graphs"] == 1


@pytest.mark.parametrize("size", [None, 8])
def test_a_cached_object_is_the_same_object(size):
    @functools.lru_cache(maxsize=size)
    def make(n):
        return [n, n + 1]

    def f(x, n):
        items = make(n)
        return x * items[0], items
    known = make(2)
    framejit.reset()
    compiled = framejit.compile(f)
    with torch.no_grad():
        assert compiled(x, 2)[1] is known and compiled(x, 2)[1] is known
        assert framejit.stats()["graph_breaks"] == 0
        known[0] = 5
        assert torch.equal(compiled(x, 2)[0], x * 5)
        make.cache_clear()
        got = compiled(x, 2)
        assert got[1] is not known and got[1] is make(2) and torch.equal(got[0], x * 2)


@pytest.mark.parametrize("typed", [False, True])
def test_sizes_are_arguments_of_cached_functions(typed):
    """einops keeps what it knows about a shape."""
    @functools.lru_cache(maxsize=16, typed=typed)
    def turned(kind, shape, other=()):
        return tuple(shape)[::-1], type(shape).__name__, other

    def f(x):
        shape, name, other = turned("a", x.shape, other=(x * 2).t().shape)
        return x.reshape(shape) * 2, shape, name, other
    framejit.reset()
    compiled = framejit.compile(f)
    with torch.no_grad():
        for rows in (3, 3, 4, 5, 3, 6, 4):
            y = torch.randn(rows, 7)
            got, info = compiled(y), turned.cache_info()
            want, plain = f(y), turned.cache_info()
            assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
            assert (plain.hits, plain.misses, plain.currsize) == (info.hits + 1, info.misses, info.currsize)
    assert framejit.stats()["graph_breaks"] == 0 and framejit.stats()["fallback_reasons"] == {}


@pytest.mark.parametrize("typed", [False, True])
def test_cleared_and_refilled(typed):
    state = {"k": 1}

    @functools.lru_cache(typed=typed)
    def k():
        return state["k"]

    def f(x):
        return x * k()
    for backend in BACKENDS:
        framejit.reset()
        k.cache_clear()
        state["k"] = 1
        compiled = framejit.compile(f, backend=backend)
        with torch.no_grad():
            assert torch.equal(compiled(x), x)
            state["k"] = 2
            assert torch.equal(compiled(x), x)  # cached
            k.cache_clear()
            assert torch.equal(compiled(x), x * 2)
            state["k"] = 3
            assert torch.equal(compiled(x), x * 2)


@pytest.mark.breaks(unknown_callable=3)
def test_the_function_runs_as_often_as_in_eager():
    @functools.lru_cache
    def noisy(n):
        calls.append(n)
        return n + 1

    def f(x, n):
        return x * noisy(n)
    compiled = framejit.compile(f)
    framejit.reset()
    calls.clear()
    with torch.no_grad():
        for n in (1, 1, 2, 1, 2, 3):
            assert torch.equal(compiled(x, n), x * (n + 1))
    assert calls == [1, 2, 3]


@pytest.mark.nothing_captured
def test_method_with_an_unhashable_argument_raises_as_eager():
    @functools.lru_cache
    def g(n):
        return 1

    def f(x):
        return x * g([1])
    check(f, x, compiles=0, breaks=1)


class Holder:
    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def doubled(self):
        calls.append(1)
        return self.x * 2


def test_cached_property():
    def fresh(x):
        h = Holder(x)
        return h.doubled + h.doubled, h
    check(fresh, x, breaks=0)

    class Quiet(Holder):
        @functools.cached_property
        def tripled(self):
            return self.x * 3

    def quiet(h):
        return h.tripled + h.tripled, "tripled" in vars(h)
    check(quiet, Quiet(x), breaks=0)


@pytest.mark.breaks(memory_address=2)
def test_id_as_a_key_of_a_real_dict():
    one, two = Holder(1), Holder(2)
    known = {id(one): 3}

    def f(x):
        missing = id(two) in known
        known[id(two)] = 4
        seen = id(Holder(5)) in known
        return x * known[id(one)] + known.get(id(two), 7), missing, seen
    framejit.reset()
    compiled = framejit.compile(f)
    with torch.no_grad():
        got = compiled(x)
        assert torch.equal(got[0], x * 3 + 4) and got[1:] == (False, False) and known == {id(one): 3, id(two): 4}
        got = compiled(x)
        assert torch.equal(got[0], x * 3 + 4) and got[1:] == (True, False)
        assert framejit.stats()["graphs"] in (1, 2), "one if both calls find Holder(5) at the same address"


PROGRAM = """
import torch
torch.compile(lambda x: x + 1, backend="eager")(torch.randn(3))
import framejit
from check import same_as
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    def forward(self, x, n):
        for layer in self.layers[:n]:
            x = layer(x)
        return x
m, x = Net().eval(), torch.randn(2, 4)
with torch.no_grad():
    compiled = framejit.compile(m)
    for n in (2, 2, 3):
        same_as(m, compiled(x, n), x, n)
assert framejit.stats()["graph_breaks"] == 0, framejit.stats()["break_reasons"]
"""


@pytest.mark.nothing_captured
def test_modules_made_in_the_trace_once_torch_compile_was_used():
    done = programs.run(PROGRAM, env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)})
    assert done.returncode == 0, done.stderr[-2000:]


class Logger:
    """Like the loggers of libraries: a method that reports each thing once."""

    def __init__(self):
        self.told = []

    @functools.lru_cache(None)
    def warn_once(self, *args, **kwargs):
        self.told.append(args)
        print(end="")


@pytest.mark.breaks(outside_effect=4)
def test_a_cached_method_whose_effect_has_happened():
    for backend in ("eager", "framejit"):
        framejit.reset()
        logger, x = Logger(), torch.ones(2)

        def f(x, what):
            x = x + 1
            logger.warn_once("told %s", what, stacklevel=2)
            return x * 2

        compiled = framejit.compile(f, backend=backend)
        assert compiled(x, "a")[0] == 4 and logger.told == [("told %s", "a")]
        assert framejit.stats()["graph_breaks"] == 1
        for _ in range(3):
            assert compiled(x, "a")[0] == 4
        assert len(logger.told) == 1
        assert framejit.stats()["graph_breaks"] == 1  # traced again, whole
        assert framejit.stats()["graphs"] == 3
        logger.told.clear()
        Logger.warn_once.cache_clear()
        assert compiled(x, "a")[0] == 4 and len(logger.told) == 1  # reported again
        assert compiled(x, "b")[0] == 4 and len(logger.told) == 2
        assert compiled(x, "b")[0] == 4 and compiled(x, "a")[0] == 4 and len(logger.told) == 2
        logger = Logger()
        assert compiled(x, "a")[0] == 4 and len(logger.told) == 1
        assert compiled(x, "a")[0] == 4 and len(logger.told) == 1


@pytest.mark.breaks(unknown_callable=1)
def test_results_of_a_cached_method_belong_to_their_object():
    class Scale:
        def __init__(self, by):
            self.by = by

        @functools.lru_cache
        def of(self, n):
            return self.by * n

    class Counted(Scale):
        def __hash__(self):
            hashed.append(self.by)
            return self.by

    hashed = []
    compiled = framejit.compile(lambda x, s: x * s.of(3))
    for by in (2, 5, 2):
        hashed.clear()
        assert compiled(torch.ones(1), Counted(by)) == by * 3 and hashed == [by]
    framejit.reset()
    compiled = framejit.compile(lambda x, s: x * s.of(3))
    two, five = Scale(2), Scale(5)
    for s in (two, five, two, five, Scale(7)):
        assert compiled(torch.ones(1), s) == s.by * 3


class Recipe:
    def __init__(self, n):
        self.n, self.sizes = n, [n]


def test_the_first_call_of_a_function_that_makes_an_object():
    @functools.lru_cache
    def made(n):
        return Recipe(n)

    @functools.lru_cache(maxsize=None)
    def used(recipe, k, plus=0):
        return [recipe.n * k + plus, recipe]

    def f(x):
        recipe = made(3)
        found = used(recipe, 2, plus=1)
        return x * recipe.n + found[0], recipe is made(3), found[1] is recipe, found is used(recipe, 2, plus=1)
    compiled = framejit.compile(f)
    for _ in range(3):
        got = compiled(x)
        assert torch.equal(got[0], x * 3 + 7) and got[1:] == (True, True, True)
    assert framejit.stats()["graphs"] == 2 and framejit.stats()["graph_breaks"] == 0  # not cached, and cached
    assert made.cache_info().misses == 1 and used.cache_info().misses == 1
    assert made.cache_info().hits == 5 and used.cache_info().hits == 5
    assert made(3).n == 3 and made.cache_info().currsize == 1


def test_a_function_that_reads_what_the_trace_wrote_runs_in_its_place():
    state = {"n": 1}

    @functools.lru_cache
    def made():
        return Recipe(state["n"])

    def f(x):
        state["n"] = 5
        return x * made().n
    compiled = framejit.compile(f)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 5)


def info(cached):
    return tuple(cached.cache_info())


def counts(make, calls, dynamic=False):
    """cache_info() after each call, plainly and compiled, each with its own cache."""
    seen = []
    for compile in (lambda f: f, lambda f: framejit.compile(f, dynamic=dynamic)):
        framejit.reset()
        program, caches = make()
        f, given = compile(program), []
        for call in calls:
            result = f(x, *call)
            given.append((result[1:], [info(c) for c in caches]))
        seen.append(given)
    return seen


@pytest.mark.breaks(unknown_callable={"1": 9, "2": 7, "3": 7})
@pytest.mark.parametrize("size", [None, 0, 1, 2, 3, 128])
def test_hits_and_misses_count(size):
    def make():
        @functools.lru_cache(maxsize=size)
        def scale(n, by=1):
            return n * 10 + by

        @functools.lru_cache(maxsize=size)
        def items(n):
            return [n, scale(n)]

        def f(x, n):
            made = items(n)
            return x * scale(n) + scale(n, by=2), made, items(n) is made, items(1), scale(n)
        return f, (scale, items)
    plain, ours = counts(make, [(n,) for n in (1, 1, 2, 3, 1, 2, 2, 4, 1, 3, 3, 1)])
    assert ours == plain


@pytest.mark.breaks(unknown_callable={"2": 2, "3": 3})
@pytest.mark.parametrize("size", [2, 3])
def test_a_hit_keeps_its_entry(size):
    def make():
        ran = []

        @functools.lru_cache(maxsize=size)
        def scale(n):
            ran.append(n)
            return n * 10

        def f(x, n):
            return x * scale(n), tuple(ran), scale(n)
        for n in range(size):
            scale(n)
        return f, (scale,)
    plain, ours = counts(make, [(0,), (0,), (5,), (0,), (1,), (0,), (6,), (0,), (1,)])
    assert ours == plain


def test_what_the_cache_holds_is_what_the_program_got():
    for compile in (lambda f: f, framejit.compile):
        framejit.reset()
        state = {"n": 2}

        @functools.lru_cache
        def table(n):
            return [n, state["n"]]

        @functools.lru_cache
        def number(n):
            return n + state["n"]

        def f(x, n):
            items, k = table(n), number(n)
            state["n"] = 50
            items.append(7)
            return x * items[1], items, k
        got = compile(f)(x, 3)
        assert table(3) is got[1] and got[1] == [3, 2, 7] and number(3) == got[2] == 5
        assert table.cache_info()[:2] == (1, 1) and number.cache_info()[:2] == (1, 1)


@pytest.mark.breaks(unknown_callable=1)
def test_a_cached_function_that_raises_is_not_cached():
    def make():
        @functools.lru_cache
        def refuses(n):
            raise ValueError(n)

        def f(x, n):
            y = x + 1
            try:
                refuses(n)
            except ValueError as e:
                return y * 2, e.args
        return f, (refuses,)
    plain, ours = counts(make, [(1,), (1,), (2,)])
    assert ours == plain


@pytest.mark.breaks(unknown_callable=3)
def test_no_code_of_the_program_runs_before_its_turn():
    """A cached function runs when plain Python would run it, not when the call is traced."""
    for compile in (lambda f: f, framejit.compile):
        framejit.reset()
        log = []

        class Loud:
            def __init__(self, n):
                self.n = n

        @functools.lru_cache
        def loud(n):
            return Loud(n)

        def f(x):
            y = x + 1
            log.append(loud.cache_info().misses)
            made = loud(1)
            log.append(loud.cache_info().misses)
            return y * made.n, made is loud(1)
        compiled = compile(f)
        for _ in range(3):
            compiled(x)
        assert log == [0, 1, 1, 1, 1, 1] and loud.cache_info()[:2] == (5, 1)


def test_recursion_through_the_cache():
    def make():
        @functools.lru_cache(maxsize=None)
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        def f(x, n):
            return x * fib(n), fib(n)
        return f, (fib,)
    plain, ours = counts(make, [(6,), (6,), (9,), (3,)])
    assert ours == plain


class Kind(enum.Enum):
    A = 1
    B = 2


def test_another_thread_calls_the_cache_while_a_call_is_booked():
    """Hashing a member of an enumeration runs code, so other threads get to run in between."""
    @functools.lru_cache(maxsize=None)
    def value(kind):
        return 10 if kind is Kind.A else 20

    compiled = framejit.compile(lambda x, kind: x * value(kind))
    wrong, is_over, before = [], threading.Event(), sys.getswitchinterval()

    def call_plainly():
        while not is_over.is_set() and not wrong:
            for _ in range(50):
                if value(Kind.B) != 20:
                    wrong.append("B")
            value.cache_clear()
    with torch.no_grad():
        for _ in range(3):
            compiled(x, Kind.A)
        thread = threading.Thread(target=call_plainly)
        sys.setswitchinterval(1e-6)
        try:
            thread.start()
            for _ in range(20000):
                if not torch.equal(compiled(x, Kind.A), x * 10):
                    wrong.append("A")
                if wrong:
                    break
        finally:
            is_over.set()
            sys.setswitchinterval(before)
            thread.join()
    assert not wrong
