"""Plain Python in place of compiled code is counted and logged, is an error under fullgraph=True, and never replaces
the user's own errors. Also: what stats() counts as a hit."""
import contextlib
import datetime
import re
import sys
import threading

import pytest
import torch

import framejit
from check import fresh, same  # noqa: F401
from framejit import _framejit


@pytest.fixture
def fallbacks():
    """The Fallback events of the test: (reason, detail)."""
    seen = []
    token = _framejit.add_listener(lambda e: e["event"] == "Fallback"
                                   and seen.append((e["fields"]["reason"], e["fields"]["detail"])))
    yield seen
    _framejit.remove_listener(token)


ERRORS = {"fullgraph": (framejit.GraphBreakError, r"print\(\) acts outside of the traced program"),
          "limit": (framejit.GraphBreakError, "8/8 entries with fullgraph=True"),
          "stance": (RuntimeError, r'set_stance\("fail_on_recompile"\) forbids it'),
          "backend": (RuntimeError, "^refused$")}


@pytest.mark.parametrize("closure", [False, True], ids=["no closure", "closure"])
@pytest.mark.parametrize("why", [
    pytest.param("fullgraph", marks=[pytest.mark.breaks(outside_effect=2), pytest.mark.nothing_captured]),
    "limit", "stance", pytest.param("backend", marks=pytest.mark.nothing_captured)])
def test_an_error_of_the_compile_runs_nothing(why, closure, capsys):
    """The error arises at the function's first instruction, so none of its code has run."""
    x, effects, show = torch.ones(2), [], print if why == "fullgraph" else len

    def refused(graph, examples):
        raise RuntimeError("refused")

    def with_closure(x, s):
        effects.append(s)
        show("shown")
        return x.add_(len(s))

    def without(x, s, effects=effects, show=show):
        effects.append(s)
        show("shown")
        return x.add_(len(s))
    f = with_closure if closure else without
    assert bool(f.__closure__) == closure
    settings = {"backend": refused} if why == "backend" else {"fullgraph": why in ("fullgraph", "limit")}
    compiled = framejit.compile(f, **settings)
    calls = {"limit": 8, "stance": 1}.get(why, 0)
    for i in range(calls):
        compiled(x, "a" * i)
    before = x.clone()
    with torch.compiler.set_stance("fail_on_recompile") if why == "stance" else contextlib.nullcontext():
        for _ in range(2):
            with pytest.raises(RuntimeError) as raised:
                compiled(x, "b" * 20)
            kind, text = ERRORS[why]
            assert type(raised.value) is kind and re.search(text, str(raised.value))
    assert torch.equal(x, before) and len(effects) == calls and capsys.readouterr().out == ""


class TestEntryLimit:
    @staticmethod
    def named(x, s):
        return x * len(s)

    def test_fullgraph_says_which_guards_fail(self):
        compiled, x = framejit.compile(self.named, backend="eager", fullgraph=True), torch.ones(3)
        for i in range(8):
            same(compiled(x, "a" * i), x * i)
        for _ in range(2):
            with pytest.raises(framejit.GraphBreakError) as error:
                compiled(x, "b")
            text = str(error.value)
            assert "test_plain_runs.py" in text and "8/8 entries with fullgraph=True" in text \
                and "FRAMEJIT_ENTRIES" in text
            assert text.index("s was 'aaaaaaa', now it is 'b'") < text.index("s was 'aa', now it is 'b'")
        same(compiled(x, "aaa"), x * 3)
        assert framejit.stats()["fallbacks"] == 0, "nothing ran plainly"

    def test_the_error_has_the_callers_traceback(self):
        compiled, x = framejit.compile(self.named, backend="eager", fullgraph=True), torch.ones(3)
        with pytest.raises(framejit.GraphBreakError) as error:
            for i in range(9):
                compiled(x, "a" * i)
        assert [entry.name for entry in error.traceback][-1] == "named"

    def test_without_fullgraph_plain_python_runs_and_is_counted(self):
        compiled, x = framejit.compile(self.named, backend="eager"), torch.ones(3)
        for i in range(12):
            same(compiled(x, "a" * i), x * i)
        assert framejit.stats()["fallback_reasons"] == {"entry_limit": 4} and framejit.stats()["fallbacks"] == 4

    @pytest.mark.breaks(outside_effect=8)
    def test_each_instruction_has_its_own_room(self):
        def f(x, before, behind):
            x = x * len(before)
            print(end="")
            return x * len(behind)
        compiled, x = framejit.compile(f, backend="eager"), torch.ones(3)

        def counts(before, behind):
            same(compiled(x, "a" * before, "b" * behind), x * before * behind)
            return framejit.stats()["graphs"], framejit.stats()["fallbacks"]
        for i in range(10):  # fills the instruction after the break
            assert counts(1, i) == (min(i + 2, 9), max(i - 7, 0))
        for i in range(2, 12):  # the first instruction has room for seven more
            assert counts(i, 1) == (min(i + 8, 16), 2 + max(i - 8, 0))

    def test_entries_of_other_settings_take_no_room(self):
        compiled = [framejit.compile(self.named, backend=backend, dynamic=dynamic) for backend in ("eager", "framejit")
                    for dynamic in (None, False)]
        x = torch.ones(3)
        for i in range(5):
            for each in compiled:
                same(each(x, "a" * i), x * i)
        assert framejit.stats()["fallbacks"] == 0 and framejit.stats()["graphs"] == 20


class TestUsersBackend:
    @pytest.mark.parametrize("made, error, text", [
        (lambda *inputs: 1 // 0, ZeroDivisionError, "integer division"),
        (lambda *inputs: None, TypeError, "a list or tuple of tensors, not NoneType"),
        (lambda *inputs: [], ValueError, "returned 0 values instead of 1"),
        (lambda *inputs: [inputs[0], inputs[0]], ValueError, "returned 2 values instead of 1"),
        (lambda *inputs: [3], TypeError, "value 0 that a backend's function returned is not a tensor but int"),
    ], ids=["raises", "none", "too few", "too many", "no tensor"])
    def test_its_error_reaches_the_user(self, made, error, text):
        ran = []

        def f(x):
            ran.append(1)
            return x + 1
        compiled = framejit.compile(f, backend=lambda graph, examples: made)
        for _ in range(2):
            with pytest.raises(error, match=text) as raised:
                compiled(torch.ones(2))
            assert [entry.name for entry in raised.traceback][1] == "f"
        assert not ran and framejit.stats()["fallbacks"] == 0

    def test_its_error_leaves_the_function_whatever_it_handles(self):
        def f(x):
            try:
                return x + 1
            except ZeroDivisionError:
                return x
        with pytest.raises(ZeroDivisionError):
            framejit.compile(f, backend=lambda graph, examples: lambda *inputs: 1 // 0)(torch.ones(2))

    @pytest.mark.breaks(outside_effect=1)
    def test_its_error_behind_a_break(self, capsys):
        def f(x):
            print("here")
            return x + 1
        calls = []

        def made(*inputs):
            calls.append(len(inputs))
            raise KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            framejit.compile(f, backend=lambda graph, examples: made)(torch.ones(2))
        assert capsys.readouterr().out == "here\n" and calls == [1]

    @pytest.mark.fallbacks(run_failed=1)
    def test_the_graph_as_it_is_fails_as_the_program_does(self, fallbacks):
        def f(x, i, seen):
            seen.append(1)
            return x[i]
        compiled = framejit.compile(f, backend=lambda graph, examples: graph)
        x, seen = torch.arange(3.0), []
        same(compiled(x, torch.tensor([1]), seen), x[1:2])
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            compiled(x, torch.tensor([7]), seen)
        assert len(seen) == 2 and [reason for reason, _ in fallbacks] == ["run_failed"]

    def test_as_many_tensors_as_there_are(self):
        def f(x):
            return x + 1, (x * 2).sum()
        compiled = framejit.compile(f, backend=lambda graph, examples: lambda *inputs: list(graph(*inputs)))
        for _ in range(2):
            same(compiled(torch.ones(2)), f(torch.ones(2)))


class TestCompileRunning:
    def test_a_second_thread_runs_plainly_and_is_counted(self, fallbacks):
        began, go_on = threading.Event(), threading.Event()

        def slow(graph, examples):
            began.set()
            assert go_on.wait(20)
            return graph
        compiled, x, results = framejit.compile(lambda x: x.sin() * 2, backend=slow), torch.randn(5), []

        def work():
            with torch.no_grad():
                results.append(compiled(x))
        first = threading.Thread(target=work)
        first.start()
        assert began.wait(20)
        same(compiled(x), x.sin() * 2)
        assert fallbacks == [("compile_running", "another compile is running, and nobody waits for one")]
        go_on.set()
        first.join()
        same(results[0], x.sin() * 2)
        same(compiled(x), x.sin() * 2)
        stats = framejit.stats()
        assert (stats["fallback_reasons"], stats["graphs"], stats["hits"]) == ({"compile_running": 1}, 1, 1)

    @pytest.mark.fallbacks(compile_running=1)
    def test_a_backend_that_calls_what_is_compiled(self, fallbacks):
        inner = framejit.compile(lambda x: x + 1, backend="eager")

        def backend(graph, examples):
            same(inner(torch.zeros(2)), torch.ones(2))
            return graph
        same(framejit.compile(lambda x: x * 2, backend=backend)(torch.ones(2)), torch.full((2,), 2.0))
        assert [reason for reason, _ in fallbacks] == ["compile_running"]


    def test_a_shape_function_that_is_compiled_is_no_fallback(self, fallbacks):
        """The compile itself calls it to get sizes."""
        @torch.library.custom_op("framejit_plain_runs::doubled", mutates_args=())
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return x * 2
        asked = []

        @doubled.register_fake
        @framejit.compile
        def _(x):
            asked.append(1)
            return torch.empty_like(x)
        same(framejit.compile(lambda x: doubled(x + 1))(torch.ones(3)), torch.full((3,), 4.0))
        assert asked and fallbacks == [] and framejit.stats()["fallback_reasons"] == {}


class TestHits:
    def test_a_call_that_finds_its_graph_is_a_hit(self):
        compiled = framejit.compile(lambda x: x + 1)
        for expected in (0, 1, 2):
            compiled(torch.ones(2))
            assert (framejit.stats()["hits"], framejit.stats()["plain_hits"]) == (expected, 0)
        assert framejit.stats()["plain_hit_reasons"] == {}

    def test_code_without_tensor_work_is_none(self):
        def f(x, n):
            return x, n * 2
        compiled = framejit.compile(f)
        for _ in range(3):
            compiled(torch.ones(2), 3)
        assert (framejit.stats()["hits"], framejit.stats()["plain_hits"], framejit.stats()["graphs"]) == (0, 2, 0)
        assert framejit.stats()["plain_hit_reasons"] == {"no_tensor_work": 2}
        framejit.compile(lambda x: x + 1)(torch.ones(2))

    @pytest.mark.breaks(outside_effect=1, text_formatting=1)
    def test_plain_hits_are_counted_by_what_ends_them(self, capsys):
        def prints(x):
            print("before any tensor")
            return x + 1

        def shows(x, day):
            text = str(day)
            return x + len(text)
        for _ in range(3):
            framejit.compile(prints)(torch.ones(2))
        for _ in range(2):
            framejit.compile(shows)(torch.ones(2), datetime.date(2020, 1, 2))
        stats = framejit.stats()
        assert stats["plain_hit_reasons"] == {"outside_effect": 2, "text_formatting": 1}, stats
        assert stats["plain_hits"] == 3 and stats["hits"] == 3

    @pytest.mark.breaks(outside_effect=1)
    def test_each_part_between_breaks_counts(self, capsys):
        def f(x):
            x = x + 1
            print("between")
            return x * 2
        compiled = framejit.compile(f)
        for _ in range(3):
            compiled(torch.ones(2))
        assert (framejit.stats()["hits"], framejit.stats()["graphs"]) == (4, 2)


@pytest.mark.nothing_captured
@pytest.mark.parametrize("watch", [sys.settrace, sys.setprofile])
def test_a_watched_call_runs_plainly_and_says_so(watch, fallbacks):
    compiled, x, seen = framejit.compile(lambda x: x + 1), torch.ones(3), []
    watch(lambda frame, event, argument: seen.append(event))
    try:
        same(compiled(x), x + 1)
    finally:
        watch(None)
    assert "call" in seen
    assert framejit.stats()["fallback_reasons"] == {"observed": 1} and fallbacks[0][
        0] == "observed" and "tracer" in fallbacks[0][1]
