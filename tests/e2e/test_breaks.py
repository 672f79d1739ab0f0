"""Frames that break, are resumed, raise, recurse and are inspected from outside: Python shows what it shows in plain
Python."""
import collections
import functools
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import types

import pytest
import torch

import framejit
import programs
from check import check, fresh, same, wait_for_a_signal  # noqa: F401

LOG = []


def note(*values):
    """A break: it cannot be in a graph, and LOG shows how often it ran."""
    LOG.append(values)
    print(end="")


@pytest.fixture(autouse=True)
def empty_log():
    LOG.clear()


def check_log(fn, *args, **options):
    """check(), and the notes of each call equal those of plain Python."""
    def logged(*inner):
        LOG.clear()
        result = fn(*inner)
        return result, list(LOG)
    for backend in ("eager", "framejit"):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend, **options)
        for _ in range(3):
            want = logged(*args)
            LOG.clear()
            got = compiled(*args), list(LOG)
            same(got, want)
        assert not framejit.stats()["fallbacks"]


class TestBreaksAtEveryPlace:
    @pytest.mark.breaks(outside_effect=38, real_iterator=4)
    def test_nested_loops_over_iterators_of_every_kind(self):
        def f(x, items, table):
            for i, t in enumerate(list(items)[:2]):
                for k, v in table.items():
                    for a, b in zip(items, reversed(items)):
                        note(i, k)
                        x = x + t * v + a - b
                for r in reversed([1, 2, 3]):
                    note(r)
                    x = x * r
                for c in "ab":
                    note(c)
                for m in map(len, [[1], [1, 2]]):
                    note(m)
                    x = x + m
            return x
        check_log(f, torch.randn(3), [torch.randn(3), torch.randn(3)], {"a": 1, "b": 2})

    def test_loop_over_a_dict_that_the_trace_wrote(self):
        def f(x, d):
            d["new"] = x + 1
            for k in d:
                note(k)
                d[k] = d[k] * 2
            return dict(d)
        check(f, torch.randn(3), {"a": torch.ones(3)}, compiles=3, breaks=4)

    @pytest.mark.breaks(outside_effect=8, real_iterator=6)
    def test_loop_over_a_list_that_grows(self):
        def f(x):
            xs = [x]
            for t in xs:
                note(len(xs))
                if len(xs) < 4:
                    xs.append(t + 1)
            return xs
        check_log(f, torch.randn(3))

    @pytest.mark.breaks(outside_effect=4)
    def test_reversed_list_with_one_item_left(self):
        def f(x):
            out = []
            for k in reversed([1, 2]):
                out.append(x * k)
                note(k)
            return out
        check_log(f, torch.randn(3))

    @pytest.mark.breaks(outside_effect=10, escaped_traced=2)
    def test_with(self):
        class Manager:
            def __enter__(self):
                note("in")
                return 2
            def __exit__(self, kind, value, trace):
                note("out", kind)
                return kind is KeyError
        def f(x):
            with Manager() as k:
                x = x * k
                note("body")
                x = x + 1
            with Manager():
                raise KeyError("eaten")
            return x
        check_log(f, torch.randn(3))

    @pytest.mark.breaks(outside_effect=14)
    def test_try_finally_and_handlers(self):
        def f(x, fail):
            try:
                x = x + 1
                note("try")
                if fail:
                    raise ValueError("v")
                x = x * 2
            except ValueError as e:
                note("handler", str(e))
                x = x - 1
            else:
                note("else")
            finally:
                note("finally")
                x = x + 3
            return x * 2
        check_log(f, torch.randn(3), True)
        check_log(f, torch.randn(3), False)

    @pytest.mark.breaks(outside_effect=6)
    def test_three_callees_deep(self):
        def inner(x, k):
            y = x * k
            note("inner")
            return y + k
        def middle(x):
            a = inner(x, 2)
            return a + inner(a, 3)
        def outer(x):
            z = middle(x + 1)
            return z - 1
        def f(x):
            return outer(x) * outer(x + 2)
        check_log(f, torch.randn(3))

    @pytest.mark.breaks(outside_effect=8)
    def test_init_property_and_getitem(self):
        class Thing:
            def __init__(self, x):
                self.x = x + 1
                note("init")
                self.y = self.x * 2
            @property
            def total(self):
                s = self.x + self.y
                note("property")
                return s * 2
            def __getitem__(self, k):
                note("getitem")
                return self.x * k
            def __add__(self, other):
                note("add")
                return self.x + other
        def f(x):
            t = Thing(x)
            return t.total + t[3] + (t + 1)
        check_log(f, torch.randn(3))

    @pytest.mark.breaks(outside_effect=4, real_iterator=4)
    def test_generator_consumed_by_the_trace(self):
        def numbers(x):
            for k in range(3):
                note("before", k)
                yield x * k
            return 7
        def f(x):
            total = x
            for t in numbers(x):
                total = total + t
            return total + sum(t.sum() for t in numbers(x + 1))
        check_log(f, torch.randn(3))

    @pytest.mark.breaks(outside_effect=6)
    def test_comprehension_and_closure(self):
        def f(x):
            k = 2
            def add(v):
                nonlocal k
                k += 1
                note(k)
                return v + k
            return [add(x) for _ in range(3)], k
        check_log(f, torch.randn(3))

    @pytest.mark.breaks(outside_effect=10)
    def test_break_with_things_on_the_stack(self):
        def g(x):
            note("g")
            return x + 1
        def f(x):
            return [x, g(x), {"k": g(x * 2), "l": (g(x), x)}], x.sum() + g(x) * g(x)
        check_log(f, torch.randn(3))


class TestRebuiltAtTheBreak:
    @pytest.mark.breaks(outside_effect=1)
    @pytest.mark.parametrize("make", [
        lambda x: functools.partial(torch.add, x, other=2),
        lambda x: collections.defaultdict(list, a=[x]),
        lambda x: collections.OrderedDict(b=x, a=x + 1),
        lambda x: types.SimpleNamespace(v=x),
        lambda x: slice(1, None),
        lambda x: {1, 2},
        lambda x: KeyError("k", 2),
        lambda x: StopIteration(5),
    ], ids=["partial", "defaultdict", "OrderedDict", "namespace", "slice", "set", "exception", "StopIteration"])
    def test_fresh_objects(self, make):
        def f(x):
            o = make(x * 2)
            note("here")
            y = x + 1
            return o, y
        compiled, x = framejit.compile(f, backend="eager"), torch.randn(3)
        for _ in range(2):
            got, want = compiled(x), f(x)
            assert type(got[0]) is type(want[0])
            if isinstance(want[0], functools.partial):
                assert got[0].func is want[0].func and got[0].keywords == want[0].keywords
                same(got[0](), want[0]())
            elif isinstance(want[0], collections.defaultdict):
                assert got[0].default_factory is list and got[0]["missing"] == []
                same(got[0]["a"], want[0]["a"])
            elif isinstance(want[0], dict):
                assert list(got[0]) == list(want[0])
            elif isinstance(want[0], StopIteration):
                assert got[0].value == 5
            elif isinstance(want[0], Exception):
                assert got[0].args == want[0].args
            elif isinstance(want[0], types.SimpleNamespace):
                same(got[0].v, want[0].v)
            else:
                assert got[0] == want[0]
            same(got[1], want[1])


class TestSeenFromOutside:
    @pytest.mark.breaks(unknown_callable=range(1, 3), unknown_attribute=9)  # two in CPython 3.13
    @pytest.mark.parametrize("backend", ["eager", "framejit"])
    def test_a_traced_function_that_looks_at_its_callers(self, backend):
        seen = []

        def look():
            frame, found = sys._getframe(1), []
            for _ in range(3):
                found.append((frame.f_code.co_name, frame.f_lineno,
                              {k: v for k, v in frame.f_locals.items() if k in "abxyz"}))
                frame = frame.f_back
            seen.append(found)

        def inner(x):
            y = x + 1
            look()
            return y

        def middle(x):
            a = x * 2
            z = inner(a)
            return z + a

        def f(x):
            b = x - 1
            return middle(b)

        compiled, x = framejit.compile(f, backend=backend), torch.randn(3)
        for _ in range(3):
            seen.clear()
            same(compiled(x), f(x))
            same(seen[0], seen[1])

    @pytest.mark.breaks(exception_raised=4, outside_effect=2)
    def test_tracebacks_of_exceptions_out_of_inlined_callees(self):
        def inner(x, k):
            y = x + 1
            if k:
                note("raise")
                raise ValueError("here")
            return y.view(7, 7)

        def middle(x, k):
            a = inner(x, k)
            return a * 2

        def f(x, k):
            try:
                return middle(x * 2, k)
            finally:
                note("finally")

        def lines(call, k):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                call(torch.ones(2), k)
            return [(s.name, s.lineno) for s in traceback.extract_tb(caught.value.__traceback__)
                    if s.name in ("inner", "middle", "f")], str(caught.value)

        compiled = framejit.compile(f, backend="eager")
        for k in (True, False, True, False):
            assert lines(compiled, k) == lines(f, k)

    @pytest.mark.breaks(exception_raised=3, outside_effect=2)
    def test_context_and_cause(self):
        def f(x):
            try:
                x = x + 1
                raise KeyError("first")
            except KeyError as e:
                note("handling")
                raise ValueError("second") from e

        def chain(call):
            with pytest.raises(ValueError) as caught:
                call(torch.ones(2))
            return repr(caught.value.__cause__), repr(caught.value.__context__), caught.value.__suppress_context__
        assert chain(framejit.compile(f, backend="eager")) == chain(f)
        assert sys.exc_info() == (None, None, None)

    def test_property_that_raises(self):
        class Thing:
            @property
            def bad(self):
                raise AttributeError("inside")
            @property
            def worse(self):
                raise ZeroDivisionError("inside")
        def f(x, o):
            y = x + 1
            default = getattr(o, "bad", 3)
            try:
                o.worse
            except ZeroDivisionError as e:
                return y * default, str(e)
        o = Thing()
        check(lambda x: f(x, o), torch.randn(3))
        check(lambda x: (x + 1, o.bad), torch.randn(3))

    @pytest.mark.breaks(data_dependent_value=1)
    def test_fullgraph_error_points_at_the_expression(self):
        def f(x):
            y = x + 1
            return y * y.sum().item()
        with pytest.raises(framejit.GraphBreakError) as caught:
            framejit.compile(f, fullgraph=True)(torch.ones(2))
        text = str(caught.value)
        line = text.splitlines()[1]
        assert line.strip() == "return y * y.sum().item()"
        carets = text.splitlines()[2]
        assert line[carets.index("^"):carets.rindex("^") + 1] == "y.sum().item()"
        entries = traceback.extract_tb(caught.value.__traceback__)
        assert entries[-1].name == "f" and entries[-1].line == "return y * y.sum().item()"

    @pytest.mark.breaks(data_dependent_value=1)
    def test_fullgraph_error_is_not_caught_by_the_function(self):
        def f(x):
            try:
                return x * x.sum().item()
            except Exception:
                return None
        with pytest.raises(framejit.GraphBreakError):
            framejit.compile(f, fullgraph=True)(torch.ones(2))


class TestMemory:
    @pytest.mark.breaks(overlapping_inputs=1)
    @pytest.mark.parametrize("order", [(False, True, False, True), (True, False, True, False)])
    def test_overlapping_inputs_on_any_call(self, order):
        def f(a, b):
            a.add_(1)
            return b * 2
        compiled = framejit.compile(f)
        for overlap in order:
            ours, plain = torch.zeros(6), torch.zeros(6)
            def args(base):
                return (base[:4], base[2:]) if overlap else (base[:4], torch.ones(4))
            same(compiled(*args(ours)), f(*args(plain)))
            same(ours, plain)

    @pytest.mark.breaks(overlapping_inputs=1)
    @pytest.mark.nothing_captured
    def test_parts_of_one_storage_and_a_view_of_itself(self):
        def f(a, b, c):
            b.mul_(3)
            return a + b + c
        compiled = framejit.compile(f)
        for _ in range(2):
            ours, plain = torch.ones(8), torch.ones(8)
            same(compiled(ours[:4], ours[4:], torch.ones(4)), f(plain[:4], plain[4:], torch.ones(4)))
            same(ours, plain)
            same(compiled(ours[:4], ours[:4], ours[:4]), f(plain[:4], plain[:4], plain[:4]))
            same(ours, plain)


class TestManyCallers:
    @pytest.mark.breaks(outside_effect=6)
    def test_recursion_through_the_plain_name(self):
        def down(x, n):
            if n == 0:
                return x
            note(n)
            return down(x + n, n - 1) * 2
        check_log(lambda x: down(x, 4), torch.randn(3))

    @pytest.mark.breaks(outside_effect=1)
    def test_reentrancy_from_a_broken_out_call(self):
        def f(x, again):
            y = x + 1
            if again:
                note("again")
                y = y + compiled(x * 2, False)
            return y * 3
        compiled = framejit.compile(f, backend="eager")
        x = torch.randn(3)
        for _ in range(3):
            got = compiled(x, True)
            y = x + 1 + (x * 2 + 1) * 3
            same(got, y * 3)

    @pytest.mark.breaks("outside_effect", "unknown_callable")
    @pytest.mark.fallbacks(compile_running=range(400))  # of the calls that came while another thread compiled
    def test_threads_that_break(self):
        def f(x, k):
            y = x + k
            threading.get_ident()
            print(end="")
            return y * k
        compiled, wrong = framejit.compile(f), []

        def work(k):
            with torch.no_grad():
                for _ in range(50):
                    x = torch.full((5,), float(k))
                    if not torch.equal(compiled(x, k), f(x, k)):
                        wrong.append(k)
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not wrong and set(framejit.stats()["fallback_reasons"]) <= {"compile_running"}
        assert framejit.stats()["graphs"] in (2, 3, 4)  # it depends on how many calls overlap

    def test_fork_after_a_compile(self):
        compiled = framejit.compile(lambda x: x.sin() + 1, backend="eager")
        x = torch.ones(3)
        compiled(x)
        pid = os.fork()
        if pid == 0:
            good = False
            try:
                other = framejit.compile(lambda x: x * 5, backend="eager")
                good = torch.equal(compiled(x), x.sin() + 1) and torch.equal(other(x), x * 5)
            finally:
                os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    @pytest.mark.parametrize("fullgraph", [False, True])
    def test_interrupt_during_a_compile(self, fullgraph):
        def f(x):
            for _ in range(30000):
                x = x + 0
            return x
        compiled = framejit.compile(f, backend="eager", fullgraph=fullgraph)
        timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            for _ in range(100):
                compiled(torch.ones(2))
                assert framejit.stats()["graphs"] == 1
                framejit.reset()
        timer.join()
        stats = framejit.stats()
        assert not stats["graph_breaks"] and stats["interrupted"] <= 1 and stats["graphs"] in (0, 1)  # or between two
        def g(x):
            return x + 1
        same(framejit.compile(g, backend="eager")(torch.ones(2)), torch.full((2,), 2.0))

    def test_interrupt_between_kernels(self):
        lines = [f"    x = (x * 0.{i % 7 + 1}).sin() + {i / 100}" + ("\n    x = x.sort(0).values" if i % 7 == 6 else "")
                 for i in range(200)]
        names = {}
        exec("def f(x):\n" + "\n".join(lines) + "\n    return x\n", names)
        x = torch.ones(64)
        compiled = framejit.compile(names["f"])
        start = time.perf_counter()
        compiled(x)
        whole = time.perf_counter() - start
        assert framejit.stats()["kernels"] > 20
        for _ in range(20):  # on a busy machine the signal may come before the compile or after it
            framejit.reset()
            # From another process, which no lock of this one holds up.
            killer = subprocess.Popen([sys.executable, "-S", "-c",
                                       f"import os, sys, time; sys.stdin.readline(); time.sleep({whole / 3}); "
                                       f"os.kill({os.getpid()}, 2)"],
                                      stdin=subprocess.PIPE, text=True)
            with pytest.raises(KeyboardInterrupt):
                killer.stdin.write("go\n")
                killer.stdin.flush()
                compiled(x)
                killer.wait()
                wait_for_a_signal()
            killer.wait()
            if framejit.stats()["break_reasons"]:
                break
        stats = framejit.stats()
        assert stats["interrupted"] == 1 and stats["graphs"] == stats["graph_breaks"] == 0, stats
        same(compiled(x), names["f"](x))
        assert framejit.stats()["graphs"] == 1

    def test_module_edited_between_calls(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
                self.scale = 2
            def forward(self, x):
                return self.body(x) * self.scale
        net, x = Net().eval(), torch.randn(2, 4)
        compiled = framejit.compile(net)
        edits = [lambda: None, lambda: setattr(net, "scale",
                                               3), lambda: net.body.append(torch.nn.Tanh()), lambda: net.body.pop(0),
                 lambda: setattr(net, "body", torch.nn.Linear(4, 2).eval()), lambda: setattr(net,
                     "forward", lambda x: x - 1), lambda: delattr(net, "forward")]
        for edit in edits:
            edit()
            same(compiled(x), net(x))


class TestBesideTorchCompile:
    @pytest.mark.parametrize("first", ["framejit", "torch"])
    def test_both_in_one_process(self, first):
        def f(x):
            return torch.relu(x) * 2 + 1
        ours, theirs, x = framejit.compile(f), torch.compile(f, backend="eager"), torch.randn(4)
        for call in ((ours, theirs) if first == "framejit" else (theirs, ours)) * 2:
            same(call(x), f(x))

    def test_nested_either_way(self):
        def inner(x):
            return x.sin() + 1
        theirs, ours = torch.compile(inner, backend="eager"), framejit.compile(inner)
        x = torch.randn(4)
        def outer_of_theirs(x):
            return theirs(x * 2) - 1
        def outer_of_ours(x):
            return ours(x * 2) - 1
        same(framejit.compile(outer_of_theirs)(x), inner(x * 2) - 1)
        same(torch.compile(outer_of_ours, backend="eager")(x), inner(x * 2) - 1)


@pytest.mark.nothing_captured  # in this process
def test_a_loop_longer_than_a_trace():
    """The trace stops at its limit and the loop continues from there, in little memory."""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
import torch, framejit
def f(x):
    k = 0
    for i in range(500000):
        k += i
    return x + k
with torch.no_grad():
    for _ in range(2):
        assert torch.equal(framejit.compile(f, backend="eager")(torch.ones(2)), f(torch.ones(2)))
assert framejit.stats()["break_reasons"]["trace_too_long"] and not framejit.stats()["fallbacks"], framejit.stats()
"""
    done = programs.run(program)
    assert done.returncode == 0, done.stderr
