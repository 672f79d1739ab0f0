"""What is_compiling() returns in a program: true, unless an exception leaves the code that got this answer. Then it is
false."""
import contextlib

import pytest
import torch

import framejit
from check import check, fresh, same  # noqa: F401


def told():
    return torch.compiler.is_compiling()


def masked_only_in_eager(x, m=None):
    if m is None and not torch.compiler.is_compiling():
        m = torch.ones_like(x[:, 0])
    return x * m[:, None]


@contextlib.contextmanager
def plain_exit(log):
    try:
        yield
    except ValueError:
        print("plain")
        raise
    finally:
        log.append("out")


class TestAnErrorOfTheCompiledBranch:
    """Eager takes the other branch and has no error."""

    def test_reaches_nobody(self):
        stats = check(masked_only_in_eager, torch.randn(3, 4), breaks=0, compiles=1)
        assert stats["graphs"] == 1, stats

    def test_in_an_inlined_callee(self):
        def f(x):
            return masked_only_in_eager(x + 1) * 2
        check(f, torch.randn(3, 4), breaks=0, compiles=1)

    @pytest.mark.parametrize("ask", [torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
                                     framejit.is_compiling, told],
                             ids=["is_compiling", "is_dynamo_compiling", "framejit", "a helper"])
    def test_whoever_was_asked(self, ask):
        def f(x):
            if ask():
                raise ValueError("not here")
            return x * 2
        check(f, torch.randn(3), breaks=0, compiles=1)

    def test_transformers_asks_too(self):
        ask = pytest.importorskip("transformers.utils").is_torchdynamo_compiling

        def f(x):
            return x.missing if ask() else x + 1
        check(f, torch.randn(3), breaks=0, compiles=1)

    def test_raised_by_an_op(self):
        def f(x):
            y = torch.ones(2 if torch.compiler.is_compiling() else 3)
            return x.exp() + y
        check(f, torch.randn(3), breaks=0, compiles=1)

    def test_that_only_the_data_shows(self):
        def f(x, i):
            at = i + 100 if torch.compiler.is_compiling() else i
            return x[at] * 2
        x, i = torch.randn(5), torch.tensor([1, 2])
        same(framejit.compile(f)(x, i), f(x, i))
        assert framejit.stats()["fallback_reasons"] == {"kernel_check": 1}

    def test_after_a_break(self, capsys):
        def f(x, m=None):
            y = x + 1
            print("plain")
            return masked_only_in_eager(y, m)
        check(f, torch.randn(3, 4), breaks=1, compiles=2)

    def test_before_a_break_and_after_it(self, capsys):
        def f(x, m=None):
            y = masked_only_in_eager(x, m)
            print("plain")
            return masked_only_in_eager(y, m)
        check(f, torch.randn(3, 4), breaks=1, compiles=2)

    def test_in_a_callee_that_breaks(self, capsys):
        def g(x, m=None):
            print("plain")
            return masked_only_in_eager(x, m)

        def f(x):
            return g(x + 1) * 2
        check(f, torch.randn(3, 4), breaks=1, compiles=3)

    def test_writes_once(self):
        def f(x, log):
            log.append(1)
            x.add_(1)
            return masked_only_in_eager(x)
        check(f, torch.randn(3, 4), [], breaks=0, compiles=1)

    def test_with_fullgraph(self):
        x = torch.randn(3, 4)
        same(framejit.compile(masked_only_in_eager, fullgraph=True)(x), masked_only_in_eager(x))

    def test_while_it_passes_a_break(self, capsys):
        def f(x):
            try:
                y = masked_only_in_eager(x)
            finally:
                print("plain")
            return y + 1
        check(f, torch.randn(3, 4), breaks=1, compiles=2)

    def test_while_it_passes_a_break_that_plain_python_has_later(self, capsys):
        def f(x, log):
            with plain_exit(log):
                y = masked_only_in_eager(x)
            y = y * 2
            print("plain")
            return y + 1
        check(f, torch.randn(3, 4), [], breaks=1, compiles=2)

    def test_in_a_handler_that_lets_it_through(self):
        def f(x):
            try:
                return masked_only_in_eager(x)
            except ValueError:
                return x
            finally:
                x = None
        check(f, torch.randn(3, 4), breaks=0, compiles=1)


@pytest.mark.breaks(exception_raised=1)
def test_an_error_that_eager_has_too_is_eagers():
    def f(x):
        x = x + 1
        if torch.compiler.is_compiling():
            raise ValueError("compiled")
        raise KeyError("eager")
    compiled = framejit.compile(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="eager"):
            compiled(torch.randn(3))


def test_an_error_that_the_program_catches_is_its_own_affair():
    def f(x):
        try:
            if torch.compiler.is_compiling():
                raise ValueError
            return x + 1
        except ValueError:
            return x + 2
    x = torch.randn(3)
    same(framejit.compile(f)(x), x + 2)


def test_other_calls_are_told_yes_again():
    def f(x, n):
        if n == 2 and torch.compiler.is_compiling():
            raise ValueError
        return x * n, torch.compiler.is_compiling()
    compiled, x = framejit.compile(f, dynamic=False), torch.randn(3)
    assert [compiled(x, n)[1] for n in (1, 2, 3, 2)] == [True, False, True, False]


class TestALaterError:
    """The code with the answer true is committed when a later part of the call fails."""

    def test_no_costs_nothing_at_a_break(self, capsys):
        def f(x):
            asked = torch.compiler.is_compiling()
            y = x * 2
            print("plain")
            if asked:
                raise ValueError("not here")
            return y + 1
        check(f, torch.randn(3), breaks=1, compiles=2)

    def test_with_fullgraph_no_may_be_whole(self):
        def f(x):
            y = x + 1
            if torch.compiler.is_compiling():
                print("plain")
            return y * 2
        x = torch.randn(3)
        same(framejit.compile(f, fullgraph=True)(x), f(x))
        assert framejit.stats()["graphs"] == 1

    def test_yes_where_no_would_break_earlier(self, capsys):
        def f(x):
            if not torch.compiler.is_compiling() and bool(x.sum() > 1e9):
                return x
            y = x * 2
            print("plain")
            return y + 1
        check(f, torch.randn(3), breaks=1, compiles=2)

    @pytest.mark.breaks(data_dependent_jump=1, exception_raised=1, outside_effect=2)
    def test_is_no_later_calls_error(self, capfd):
        """The answer true avoids reading data: the first error cannot be undone."""
        def f(x):
            asked = torch.compiler.is_compiling()
            if not asked and bool(x.sum() > 1e9):
                return x
            y = x * 2
            print("plain")
            if asked:
                raise ValueError("not here")
            return y + 1
        compiled, x = framejit.compile(f), torch.randn(3)
        with pytest.raises(ValueError, match="not here"):
            compiled(x)
        assert capfd.readouterr().err.count(
            "f was told that it is being compiled, and then raised ValueError; plain Python may not raise it. Call it "
            "again: ") == 1
        for _ in range(3):
            same(compiled(x), f(x))
        assert "is_compiling()" not in capfd.readouterr().err

    @pytest.mark.breaks(data_dependent_jump=1, exception_raised=1, outside_effect=2)
    def test_in_what_runs_on_after_a_callees_break(self, capsys):
        def callee(x):
            print("plain")
            asked = torch.compiler.is_compiling()
            if not asked and bool(x.sum() > 1e9):
                return x, asked
            return x + 1, asked

        def f(x):
            y, asked = callee(x * 2)
            print("again")
            if asked:
                raise ValueError("not here")
            return y * 3
        compiled, x = framejit.compile(f), torch.randn(3)
        with pytest.raises(ValueError, match="not here"):
            compiled(x)
        for _ in range(3):
            same(compiled(x), f(x))


class TestTheRestOfACall:
    """If the answer is false because of an error, it is false until the call ends."""

    def value(self, x, fails):
        if torch.compiler.is_compiling():
            if fails:
                raise ValueError("not here")
            return x + 1, True
        return x + 1, False

    def test_in_one_segment(self):
        check(lambda x: [self.value(x, i == 0) for i in range(3)], torch.randn(3), breaks=0, compiles=1)

    def test_after_breaks(self, capsys):
        def f(x):
            told = []
            for i in range(3):
                told.append(self.value(x, i == 0))
                print("plain")
            return told
        check(f, torch.randn(3), compiles=2, breaks=2)

    def test_in_a_callee_that_breaks(self, capsys):
        def g(x, fails):
            print("plain")
            return self.value(x, fails)

        def f(x):
            return [g(x, i == 0) for i in range(3)]
        check(f, torch.randn(3), breaks=3)

    @pytest.mark.fallbacks(kernel_check=1)
    @pytest.mark.breaks(outside_effect=1)
    def test_after_data_has_shown_the_error(self, capsys):
        def g(x, i):
            print("plain")
            at = i + 100 if torch.compiler.is_compiling() else i
            return x[at] * 2

        def f(x, i):
            y = g(x, i)
            return y, torch.compiler.is_compiling()
        x, i = torch.randn(5), torch.tensor([1, 2])
        same(framejit.compile(f)(x, i), f(x, i))

    @pytest.mark.breaks(outside_effect=2)
    def test_the_next_call_begins_anew(self, capsys):
        def f(x, n):
            y = self.value(x * n, n == 2)
            print("plain")
            return y, torch.compiler.is_compiling()
        compiled, x = framejit.compile(f, dynamic=False), torch.randn(3)
        assert [compiled(x, n)[1] for n in (2, 1, 2, 1, 1)] == [False, True, False, True, True]


def test_what_else_may_be_asked():
    """Neither export nor torch.jit is active."""
    def f(x):
        return x + 1, torch.compiler.is_exporting(), torch.jit.is_tracing(), torch.jit.is_scripting(), \
            torch.onnx.is_in_onnx_export()
    check(f, torch.randn(3), breaks=0, compiles=1)
