"""What a program sees of an error that the trace makes: class, text, arguments, members, causes and contexts."""
import pytest
import torch

import framejit
from answers_sweep import FAMILIES, differences, drawn
from check import check, fresh  # noqa: F401

X = torch.ones(3)


@pytest.mark.breaks(total={"operators-False": 179, "operators-True": 222, "special_methods-False": 20,
                           "special_methods-True": 210, "items-False": 94, "items-True": 242, "attributes-False": 64,
                           "attributes-True": 228, "builtins-False": 89, "builtins-True": 144, "methods-False": 81,
                           "methods-True": 230, "statements-False": 92, "statements-True": 145})
@pytest.mark.nothing_captured
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_operands_and_arguments(family, keeps):
    found = differences(drawn(family, 250 if keeps else 700, seed=7), keeps)
    assert not found, "\n".join(f"{s}\n   plain {w}\n   ours  {g}" for s, w, g in found)


def told(error):
    return (type(error).__name__, str(error), error.args, error.__cause__ and type(error.__cause__).__name__,
            error.__context__ and type(error.__context__).__name__, error.__suppress_context__)


class Reads:
    @property
    def p(self):
        return self.missing

    def __len__(self):
        return -1


class Asks:
    def __getattr__(self, name):
        raise AttributeError("nothing of the sort")


class Named(AttributeError):
    def __init__(self, name):
        super().__init__("own")
        self.name = name


class Names:
    def __getattr__(self, name):
        raise Named("mine")


class Unreadable:
    p = property(fset=lambda self, v: None)
    w = property(lambda self: 1)


class Inner:
    def reads(self):
        return super().nothing


@pytest.mark.parametrize("read", [
    lambda: X.nothing, lambda: Reads().p, lambda: Asks().q, lambda: Names().q, lambda: [].nothing, lambda: int.nothing,
    lambda: torch.nothing, lambda: Unreadable().p, lambda: getattr(3, "nothing"), lambda: (1).nothing(),
    lambda: object.__getattribute__(Reads(), "nothing"), lambda: Inner().reads()])
def test_what_an_attribute_error_says(read):
    def f(x):
        y = x + 1
        try:
            read()
        except AttributeError as e:
            return y, told(e), e.name, type(e.obj).__name__
    check(f, X)


@pytest.mark.parametrize("write", [
    lambda o: setattr(Unreadable(), "w", 1), lambda o: delattr(Unreadable(), "w"), lambda o: setattr(3, "q", 1),
    lambda o: delattr(o, "q"), lambda o: setattr([], "append", 1), lambda o: setattr(object(), "q", 1)])
def test_what_a_refused_write_says(write):
    def f(x):
        y = x + 1
        try:
            write(Reads())
        except AttributeError as e:
            return y, told(e), e.name, type(e.obj).__name__
    check(f, X)


def test_names():
    def f(x, n):
        y, seen = x + 1, []
        try:
            nothing_of_that_name  # noqa: F821
        except NameError as e:
            seen.append((told(e), e.name))
        try:
            if n > 100:
                late = 1
            late
        except UnboundLocalError as e:
            seen.append((told(e), e.name))

        def inner():
            return later
        try:
            inner()
        except NameError as e:
            seen.append((told(e), e.name))
        later = 3
        return y, seen, later
    check(f, X, 3)


def test_an_error_that_leaves_the_trace_has_its_members():
    def f(x):
        y = x + 1
        try:
            [].nothing
        except AttributeError as e:
            kept = e
        return y, kept
    check(f, X, breaks=1)

    def g(x):
        return x.nothing
    check(g, X)


def test_chains():
    def f(x):
        y, seen = x + 1, []
        try:
            try:
                {}["k"]
            except KeyError as e:
                seen.append(told(e))
                [].pop()
        except IndexError as e:
            seen.append((told(e), type(e.__context__.__context__).__name__, e.__context__.args))
        try:
            try:
                int("z")
            except ValueError as e:
                e.add_note("a note")
                raise RuntimeError("r") from e
        except RuntimeError as e:
            seen.append((told(e), e.__cause__.__notes__, str(e.__cause__)))
        return y, seen
    check(f, X)


def test_an_exception_is_no_sequence():
    def f(x):
        e, seen = ValueError(1, 2), []
        for ask in (len, list, tuple, sum, iter, set, sorted, lambda e: e[0], lambda e: 1 in e, lambda e: e + (3,),
                    lambda e: [*e], lambda e: dict([e])):
            try:
                seen.append(ask(e))
            except TypeError as error:
                seen.append(told(error))
        return x + 1, seen, e == ValueError(1, 2), e != e, bool(ValueError())
    check(f, X)


def test_warnings_are_compared():
    import warnings

    def f(x):
        y = x + 1
        warnings.warn("mine", DeprecationWarning, stacklevel=1)
        return y * 2
    check(f, X)


@pytest.mark.parametrize("deeper", [False, True])
def test_a_generator_that_lets_a_stop_iteration_out(deeper):
    def inner(x):
        yield x
        next(iter([]))

    def outer(x):
        yield from inner(x)

    def fn(x):
        try:
            raise KeyError("before")
        except KeyError:
            try:
                return list((outer if deeper else inner)(x * 2))
            except RuntimeError as e:
                chain = [told(e), told(e.__cause__)]
                return x + 1, chain, e.__cause__ is e.__context__, repr(e.__cause__.__context__)

    check(fn, X, breaks=0)


@pytest.mark.parametrize("wrong", [lambda n: list(n), lambda n: n[0], lambda n: len(n), lambda n: 3 in n,
                                   lambda n: sum(n), lambda n: "-".join(n), lambda n: dict(n)])
def test_a_type_error_holds_for_every_number(wrong):
    def fn(x, n):
        try:
            wrong(n)
        except TypeError as e:
            return x + n, str(e)

    compiled = framejit.compile(fn)
    for n in (2, 5, 7, 9):
        got, want = compiled(X, n), fn(X, n)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]
    assert framejit.stats()["recompiles"] == 1, "2, then any number"


def test_members_of_an_error_from_a_break_are_guarded():
    cause = [None]

    def fails():
        print(end="")
        raise ValueError("no") from cause[0]

    def run(x):
        try:
            fails()
        except ValueError as error:
            return x + 1, error.__suppress_context__, error.__cause__ is None

    framejit.reset()
    compiled = framejit.compile(run)
    for _ in range(3):
        assert compiled(X)[1:] == (True, True)  # "from None"
    stats = framejit.stats()
    assert stats["recompiles"] == 0 and stats["fallbacks"] == 0
    assert stats["break_reasons"] == {"outside_effect": 1, "exception_raised": 1}
