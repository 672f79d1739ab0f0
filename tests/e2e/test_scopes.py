"""Context managers of contextlib, class statements, abstract base classes: in the graph, or a clean break that is
resumed in place."""
import abc
import collections.abc
import contextlib
import sys

import pytest
import torch

import framejit
from check import check, fresh, same  # noqa: F401


class Log:
    def __init__(self):
        self.lines = []

    def close(self):
        self.lines.append("closed")


class TestContextlib:
    def test_exit_stack(self):
        @contextlib.contextmanager
        def scope(name, log):
            log.append("enter " + name)
            try:
                yield len(log)
            finally:
                log.append("leave " + name)

        def f(x, names, log):
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                entered = [stack.enter_context(scope(name, log)) for name in names]
                stack.callback(log.append, "called")
                x = x * len(entered) + entered[-1]
            return x + 1
        check(f, torch.randn(3), ["a", "b"], [], breaks=0, compiles=1)

    def test_an_empty_exit_stack(self):
        def f(x):
            with contextlib.ExitStack():
                return x + 1
        check(f, torch.randn(3), breaks=0, compiles=1)

    @pytest.mark.breaks(exception_state=1)
    def test_the_handled_exception_is_asked_for(self):
        check(lambda x: x + (1 if sys.exception() is None and sys.exc_info()[0] is None else 2), torch.randn(3),
              breaks=0, compiles=1)

        def f(x):
            return x + (1 if sys.exception() is None else 2)
        compiled = framejit.compile(f)
        for _ in range(2):
            same(compiled(torch.ones(2)), f(torch.ones(2)))
            try:
                raise KeyError
            except KeyError:
                same(compiled(torch.ones(2)), f(torch.ones(2)))

    def test_an_exit_stack_that_swallows(self):
        def f(x, key):
            y = x
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.suppress(KeyError))
                y = x * 2
                y = y + {"a": 1}[key]
            return y * 3
        check(f, torch.randn(3), "a")
        check(f, torch.randn(3), "b", compiles=2, breaks=2)

    def test_suppress_closing_and_nullcontext(self):
        def f(x, log):
            with contextlib.suppress(KeyError, IndexError), contextlib.closing(log) as l, contextlib.nullcontext(
                3) as n:
                x = x * n
                l.lines.append("in")
                x = x + {}["missing"]
            return x - 1
        check(f, torch.randn(3), Log(), breaks=0, compiles=1)

    def test_exc_info_where_nothing_is_handled(self):
        def f(x):
            return x + 1, sys.exc_info()
        check(f, torch.randn(3), breaks=0, compiles=1)

    @pytest.mark.breaks(exception_state=1)
    def test_exc_info_depends_on_the_caller(self):
        def f(x):
            return x + 1, sys.exc_info()[0]
        compiled, x = framejit.compile(f), torch.ones(2)
        same(compiled(x), f(x))
        for _ in range(2):
            try:
                raise ValueError
            except ValueError:
                assert compiled(x)[1] is ValueError
            assert compiled(x)[1] is None

    def test_exc_info_in_a_handler(self):
        def f(x):
            try:
                raise ValueError("seen")
            except ValueError:
                kind, value, traceback = sys.exc_info()
            return x + 1, kind.__name__, str(value), traceback is not None
        check(f, torch.randn(3), breaks=2)


def test_a_class_statement_is_one_break():
    def f(x, k):
        y = x * 2

        class Scaled:
            """Made anew in each call."""
            factor = k

            def __call__(self, t):
                return t * self.factor + y.shape[0]
        return Scaled()(y) + 1
    stats = check(f, torch.randn(3), 3, breaks=1, compiles=4)
    assert stats["break_reasons"] == {"made_in_trace": 1}


class TestAbstractClasses:
    def make(self):
        class Shape(abc.ABC):
            pass

        class Square:
            pass
        return Shape, Square

    def test_a_class_registered_later_is_seen(self):
        Shape, Square = self.make()

        def f(x, s):
            return x * 2 if isinstance(s, Shape) else x - 1
        compiled, x = framejit.compile(f), torch.randn(3)
        same(compiled(x, Square()), x - 1)
        Shape.register(Square)
        for _ in range(2):
            same(compiled(x, Square()), x * 2)

    def test_a_subclass_registered_later_is_seen(self):
        Shape, Square = self.make()

        def f(x, kind):
            return x * 2 if issubclass(kind, (int, Shape)) else x - 1
        compiled, x = framejit.compile(f), torch.randn(3)
        same(compiled(x, Square), x - 1)
        Shape.register(Square)
        same(compiled(x, Square), x * 2)

    def test_an_answer_that_stays_is_not_guarded(self):
        Shape, Square = self.make()
        Shape.register(Square)

        def f(x, s):
            return x * 2 if isinstance(s, Shape) and isinstance([], collections.abc.Sequence) else x
        compiled, x = framejit.compile(f), torch.randn(3)
        same(compiled(x, Square()), x * 2)
        Shape.register(type("Other", (), {}))
        same(compiled(x, Square()), x * 2)
        assert framejit.stats()["recompiles"] == 0 and framejit.stats()["hits"] == 1


class TestWhatIsHandledAfterwards:
    """A handler that ends in another segment than it began in leaves nothing behind."""

    @staticmethod
    def handled_after(f, *args):
        seen = []
        for call in (framejit.compile(f), f):
            for _ in range(3):
                result = call(*args)
                seen.append((sys.exc_info()[0], result.sum().item()))
        assert len(set(seen)) == 1 and seen[0][0] is None

    @pytest.mark.breaks(escaped_traced=1, outside_effect=1)
    def test_exit_that_breaks_and_swallows(self, capsys):
        class Swallows:
            def __enter__(self):
                return self

            def __exit__(self, kind, value, traceback):
                print("exit", kind.__name__)
                return True

        def f(x):
            with Swallows():
                x = x * 2
                x = x + {}["missing"]
            return x
        self.handled_after(f, torch.ones(2))

    @pytest.mark.breaks(outside_effect=2)
    def test_return_inside_of_a_handler(self, capsys):
        def f(x):
            try:
                x = x * 2
                raise ValueError
            except ValueError:
                print("handling")
                return x + 1
        self.handled_after(f, torch.ones(2))

    @pytest.mark.breaks(exception_raised=1, exception_state=1, outside_effect=1)
    def test_within_the_callers_handler(self, capsys):
        def f(x):
            try:
                raise ValueError
            except ValueError:
                print("handling")
                return x + 1
        compiled = framejit.compile(f)
        for _ in range(3):
            try:
                raise KeyError("outer")
            except KeyError:
                compiled(torch.ones(2))
                assert sys.exc_info()[0] is KeyError

    @pytest.mark.breaks(escaped_traced=1, exception_state=1)
    def test_swallowed_by_an_exit_stack(self):
        def f(x, key):
            with contextlib.ExitStack() as stack:
                stack.enter_context(contextlib.suppress(KeyError))
                x = x * 2
                x = x + {"a": 1}[key]
            return x * 3
        self.handled_after(f, torch.ones(2), "b")


class TestHandledExceptions:
    """The exception being handled where a segment begins, or in the caller, is the context of what is raised, and is
    still being handled afterwards."""

    @pytest.mark.breaks(exception_raised=1, exception_state=3, outside_effect=6)
    def test_a_second_one_inside_of_a_handler(self):
        def nested(x):
            try:
                x.foo
            except AttributeError as e:
                print(end="")
                try:
                    x.bar
                except AttributeError as k:
                    return x + 1, k.__context__ is e

        def popped(x):
            try:
                x.foo
            except AttributeError as e:
                try:
                    x.bar
                except AttributeError:
                    y = x + 1
                    print(end="")
                    x = y * 2
                print(end="")
                return x, sys.exc_info()[1] is e
        for fn in (nested, popped):
            framejit.reset()
            compiled = framejit.compile(fn, backend="eager")
            for _ in range(3):
                got, want = compiled(torch.ones(2)), fn(torch.ones(2))
                assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
                assert sys.exc_info() == (None, None, None)

    @pytest.mark.breaks(exception_raised=2, exception_state=1)
    def test_of_the_caller(self):
        def plain(x):
            try:
                raise KeyError(1)
            except KeyError as k:
                return x + 1, repr(k.__context__)

        def generator(x):
            def values():
                try:
                    raise KeyError(1)
                except KeyError as k:
                    yield repr(k.__context__)
            return x + 1, list(values())
        for fn in (plain, generator):
            framejit.reset()
            compiled = framejit.compile(fn, backend="eager")
            for _ in range(2):
                try:
                    raise ValueError("outer")
                except ValueError:
                    assert compiled(torch.ones(2))[1] == fn(torch.ones(2))[1]
                assert compiled(torch.ones(2))[1] == fn(torch.ones(2))[1]
                assert sys.exc_info() == (None, None, None)

    @pytest.mark.breaks(escaped_traced=1, exception_raised=3, exception_state=2, outside_effect=3)
    def test_leaving_a_with_block_by_an_exception(self):
        class Silent:
            def __enter__(self):
                return self

            def __exit__(self, kind, value, traceback):
                print(end="")
                self.value = value

        def f(x):
            try:
                with Silent():
                    print(end="")
                    x = x + 1
                    raise KeyError(3)
            except KeyError:
                print(end="")
                try:
                    raise TypeError(4)
                except TypeError as e:
                    return x, repr(e.__context__), e.__context__.__context__, sys.exc_info()[1] is e
        compiled = framejit.compile(f, backend="eager")
        for _ in range(3):
            assert compiled(torch.ones(2))[1:] == f(torch.ones(2))[1:]
            assert sys.exc_info() == (None, None, None)
