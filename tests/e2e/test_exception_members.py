"""Members that C classes of exceptions add (StopIteration.value, SystemExit.code, ImportError.msg, ...): what the C
initialiser wrote, whatever `args` says now, and whatever a class of the program has under their names."""
import pytest
import torch

import framejit
from check import fresh  # noqa: F401

X = torch.ones(2)
MEMBERS = ("value", "code", "msg", "name", "path", "obj", "errno", "strerror", "filename", "lineno", "text", "held")
OWNERS = (StopIteration, SystemExit, ImportError, NameError, AttributeError, OSError, SyntaxError)


def read(error, name):
    try:
        return getattr(error, name)
    except AttributeError as missing:
        return str(missing), missing.args, missing.name, missing.obj is error


def shown(error):
    """Also members that a class hides."""
    hidden = [c.__dict__[n].__get__(error) for c in OWNERS if isinstance(error, c) for n in MEMBERS if n in c.__dict__]
    return type(error), str(error), error.args, [read(error, n) for n in MEMBERS], hidden, error.__dict__


class Slots(Exception):
    __slots__ = ("held", "value", "msg")


class HidesValue(StopIteration):
    __slots__ = ("value", "held")


class ClassCode(SystemExit):
    code = 3


class ClassName(AttributeError):
    name = "of the class"


class NamedByProperty(NameError):
    name = property(lambda self: "of the property")


class TakesWrites(ImportError):
    def __setattr__(self, name, value):
        super().__setattr__(name, f"seen {value}")


class NoSuper(StopIteration):
    def __init__(self, *args):
        pass


class NoSuperImport(ImportError):
    def __init__(self, *args):
        pass


class OwnNew(StopIteration):
    def __new__(cls, *args):
        return super().__new__(cls, "new")

    def __init__(self, *args):
        pass


class ByException(StopIteration):
    def __init__(self, *args):
        Exception.__init__(self, *args)


class Passes(StopIteration):
    def __init__(self, value):
        super().__init__(value + 1)


class Exits(SystemExit):
    def __init__(self, code):
        super().__init__(code, "more")


class Imports(ImportError):
    def __init__(self, text):
        super().__init__(text, name="n")


class Parses(SyntaxError):
    def __init__(self, text):
        super().__init__(text.upper())


class Opens(OSError):
    def __init__(self, text):
        super().__init__(text)


class ShownArguments(Exception):
    args = property(lambda self: ("of the property",))


def with_args(error, *args):
    error.args = args
    return error


def again(error, *args, **keywords):
    error.__init__(*args, **keywords)
    return error


def writes(error, name, value):
    setattr(error, name, value)
    return error


def deletes(error, name):
    delattr(error, name)
    return error


def raises(error):
    try:
        raise error
    except BaseException as caught:
        return caught


MADE = {
    "slots": lambda: Slots("a", 1),
    "written slot": lambda: writes(Slots("a"), "held", 3),
    "deleted slot": lambda: deletes(writes(Slots("a"), "held", 3), "held"),
    "hides value": lambda: writes(HidesValue(5), "held", 2),
    "hides value, written": lambda: writes(HidesValue(5), "value", 7),
    "class code": lambda: ClassCode(4),
    "class code, none": lambda: ClassCode(),
    "class name": lambda: ClassName("m", name="n"),
    "property": lambda: NamedByProperty("m", name="n"),
    "setattr": lambda: TakesWrites("m", name="n"),
    "no super": lambda: NoSuper(1, 2),
    "no super, import": lambda: NoSuperImport("m"),
    "own new": lambda: OwnNew(1, 2),
    "by exception": lambda: ByException(1),
    "passes": lambda: Passes(1),
    "exits": lambda: Exits(1),
    "imports": lambda: Imports("m"),
    "parses": lambda: Parses("m"),
    "opens": lambda: Opens("m"),
    "exit": lambda: SystemExit(),
    "exit 1": lambda: SystemExit(1),
    "exit 1 2": lambda: SystemExit(1, 2),
    "exit of a tuple": lambda: SystemExit((1, 2)),
    "exit, args": lambda: with_args(SystemExit(1), 2),
    "exit, again": lambda: again(SystemExit(3)),
    "exit, again 2": lambda: again(SystemExit(3), 4, 5),
    "exit, written": lambda: writes(SystemExit(3), "code", 7),
    "exit, deleted": lambda: deletes(SystemExit(3), "code"),
    "import": lambda: ImportError(),
    "import 1": lambda: ImportError("m"),
    "import 2": lambda: ImportError("m", "k"),
    "import, name": lambda: ImportError("m", name="n", path="p"),
    "import, args": lambda: with_args(ImportError("m"), "q"),
    "import, again": lambda: again(ImportError("m", name="n"), "b", "c"),
    "import, again 2": lambda: again(ImportError("m", name="n"), "b", path="p"),
    "stop": lambda: StopIteration(),
    "stop 2": lambda: StopIteration(3, 4),
    "stop 9": lambda: StopIteration(*range(9)),
    "stop, args": lambda: with_args(StopIteration(3), 1),
    "stop, again": lambda: again(StopIteration(3)),
    "stop, again 2": lambda: again(StopIteration(3), 5, 6),
    "name": lambda: NameError("m", name="n"),
    "attribute": lambda: AttributeError("m", name="n", obj=3),
    "attribute, again": lambda: again(AttributeError("m", name="n"), "k"),
    "os": lambda: OSError("m"),
    "os, args": lambda: with_args(OSError("m"), 2, "k"),
    "os, written": lambda: writes(OSError("m"), "errno", 4),
    "syntax": lambda: SyntaxError("m"),
    "syntax, args": lambda: with_args(SyntaxError("m"), "k"),
    "syntax, again": lambda: again(SyntaxError("m")),
    "plain": lambda: ValueError("m"),
    "shown arguments": lambda: ShownArguments("a", 1)}


def reads(make, x):
    error = make()
    return x + 1, error.args, [read(error, name) for name in MEMBERS]


def returns(make, x):
    return x + 1, make()


def catches(make, x):
    error = raises(make())
    return x + 1, error.args, [read(error, name) for name in MEMBERS]


def both(fn, make):
    plain = fn(make, X)
    made = framejit.compile(fn, backend="eager")(make, X)
    assert torch.equal(plain[0], made[0])
    return [[shown(v) if isinstance(v, BaseException) else v for v in result[1:]] for result in (plain, made)]


@pytest.mark.parametrize("fn", [reads, returns, catches])
@pytest.mark.parametrize("name", MADE)
def test_members_are_what_the_initialiser_wrote(fn, name):
    want, got = both(fn, MADE[name])
    assert got == want


def parsed(x):
    error = OSError(2, "k")
    return x + 1, error.errno, type(error)


class ParsedLater(SyntaxError):
    def __init__(self, text):
        super().__init__(text, ("f", 1, 2, "t"))


class OpenedLater(OSError):
    def __init__(self, text):
        super().__init__(2, text)


@pytest.mark.breaks("unknown_callable")
@pytest.mark.parametrize("fn", [parsed, lambda x: (x + 1, ParsedLater("m").lineno),
                                lambda x: (x + 1, OpenedLater("m").errno)])
def test_arguments_that_c_code_parses_break(fn):
    assert framejit.compile(fn, backend="eager")(X)[1:] == fn(X)[1:]


def filled_only_sometimes(x):
    try:
        raise Slots("a")
    except Slots as error:
        return x * 100 if hasattr(error, "msg") else x + 1, getattr(error, "held", "nothing")


class Yields:
    def __iter__(self):
        return self

    def __next__(self):
        raise HidesValue(7)


def delegates(x):
    def outer():
        got.append((yield from Yields()))
        yield 1
    got = []
    return x + next(outer()), got


def hidden_members(x):
    error = HidesValue(5)
    error.value = 7
    return x + 1, error.value, StopIteration.value.__get__(error), SystemExit.code.__get__(ClassCode(4))


@pytest.mark.parametrize("fn", [filled_only_sometimes, delegates, hidden_members])
def test_programs(fn):
    plain, made = fn(X), framejit.compile(fn, backend="eager")(X)
    assert torch.equal(plain[0], made[0]) and plain[1:] == made[1:]
    assert framejit.stats()["graphs"] == 1


class Says:
    def __getattr__(self, name):
        raise ClassName("none")


class SaysAndTakes:
    def __getattr__(self, name):
        raise TakesWrittenNames("none")


class TakesWrittenNames(AttributeError):
    def __setattr__(self, name, value):
        super().__setattr__(name, f"seen {name}")


@pytest.mark.breaks("exception_raised")
@pytest.mark.parametrize("of", [Says(), SaysAndTakes()])
def test_cpython_writes_what_was_looked_for_as_attributes(of):
    def f(x):
        try:
            of.missing
        except AttributeError as error:
            return x + 1, error.name, error.obj is of, dict(error.__dict__)
    assert framejit.compile(f, backend="eager")(X)[1:] == f(X)[1:]
