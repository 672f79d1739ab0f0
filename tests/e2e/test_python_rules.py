"""Rules of Python that traces once broke silently, found by tracing CPython's own tests: each program behaves as in
plain Python."""
import collections
import copy
import functools
import itertools
import math
import traceback
import types

import numpy as np
import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401  the fixture

X = torch.ones(3)


def raised(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


class ListOfMine(list):
    pass


class SetOfMine(set):
    pass


class FrozenOfMine(frozenset):
    pass


class DictOfMine(dict):
    pass


class Backwards(dict):
    def keys(self):
        return reversed(list(dict.keys(self)))

    __iter__ = keys


class Slotted:
    __slots__ = ("args", "func")

    def __init__(self, func, args):
        self.func, self.args = func, args


class Plain:
    pass


class Refusing:
    def __iter__(self):
        return 3


class Coded(Exception):
    def __init__(self, *, code=0):
        pass


class OnlySet:
    def __set__(self, owner, value):
        owner.__dict__["kept"] = value


class Named:
    kept = OnlySet()


class Disguised:
    def __getattribute__(self, name):
        return int if name == "__class__" else object.__getattribute__(self, name)


class Spaced(types.SimpleNamespace):
    def __init__(self, **names):
        super().__init__(**names)


class ComplexOfMine(complex):
    pass


class Blocked:
    __reversed__ = None

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return index


class Sized:
    def __len__(self):
        return 1


class Circular:
    pass


Circular.__call__ = Circular()


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    pass


OfMeta.kept = 42
Meta.kept = OnlySet()


class Odd:
    def __format__(self, spec):
        return 3


def arguments_that_c_functions_refuse(x):
    calls = [raised([].clear, None), raised([].copy, None), raised([1].reverse, 42), raised({}.clear, None),
             raised({}.copy, 1), raised([].append), raised([].append, 1, 2)]
    calls += [raised([].append, item=1), raised(list.append), raised(list.append, 3, 4), raised(dict.__len__, []),
              raised(len), raised(len, [], []), raised(sorted), raised(sorted, [], None)]
    return x + 1, calls


def arguments_that_constructors_refuse(x):
    calls = [raised(ListOfMine, a=1), raised(SetOfMine, a=1), raised(FrozenOfMine, a=1), raised(FrozenOfMine, [], 2),
             raised(SetOfMine, [], 2), raised(list, [], 2)]
    calls += [raised(object.__new__, Plain, 5), raised(Plain, 5), raised(ValueError, a=1), raised(ImportError, a=1),
              raised(object.__init__, Plain(), 1)]
    return x + 1, calls, ImportError("m", name="n").name


def keywords_of_an_exception(x):
    return x + 1, hasattr(Coded(code=3), "code"), Coded(code=3).args


def what_an_os_error_is(x):
    return x + 1, type(OSError(2, "gone")).__name__, raised(UnicodeDecodeError), SyntaxError("bad",
        ("file.py", 1, 2, "text")).filename


def made_slots(x):
    made = Slotted(len, (1, 2))
    return x + 1, made.args, made.func([1])


def made_slots_that_leave(x):
    made = Slotted(len, (1, 2))
    print(end="")
    return x + len(made.args)


def attributes_of_a_made_function(x):
    def inner(y):
        return y + 1
    inner.mark = "m"

    @functools.wraps(inner)
    def outer(y):
        return inner(y)
    outer.__dict__["other"] = 2
    names = outer.__dict__
    outer.third = 3
    return outer(x), sorted(names), outer.mark, outer.other, outer.__wrapped__ is inner, raised(delattr, outer, "none")


def type_params_of_a_made_function(x):
    """CPython 3.12 and later have them; before, they are an attribute as any other."""
    def inner(y):
        return y + 1
    def outer(y):
        return inner(y)
    before = getattr(inner, "__type_params__", "none")
    given = ("T",)
    inner.__type_params__ = given
    functools.update_wrapper(outer, inner)
    copied = getattr(outer, "__type_params__", "none")
    return outer(x), before, inner.__type_params__ is given, copied, "__type_params__" in inner.__dict__, inner, outer


def function_that_leaves(x):
    def inner(y):
        return y + 1
    inner.mark = "m"

    @functools.wraps(inner)
    def outer(y):
        return inner(y)
    print(end="")
    return outer(x), outer.mark, sorted(outer.__dict__)


def marked(y):
    return y + 1


def attributes_of_a_real_function(x):
    marked.calls = getattr(marked, "calls", 0) + 1
    marked.__dict__["seen"] = True
    seen = marked.seen, marked.__dict__["calls"]
    del marked.calls, marked.seen
    return marked(x), seen, hasattr(marked, "calls")


def read_only_members(x):
    partial = functools.partial(len, [1])
    return x + 1, raised(setattr, partial, "func", max), partial()


def traceback_of_a_caught_exception(x):
    try:
        raise ValueError(1)
    except ValueError as error:
        line = error.__traceback__.tb_lineno > 0
    return x + 1, line


def causes(x):
    error = ValueError(1)
    before = error.__suppress_context__
    error.__cause__ = None
    return x + 1, before, error.__suppress_context__, raised(setattr, error, "__cause__", 1), raised(setattr, error,
        "__context__", 1), raised(error.add_note, 3)


def texts_of_containers_in_themselves(x):
    items, table = [1], {}
    items.append(items)
    table["t"] = (table, items)
    return x + 1, repr(items), repr(table)


def text_of_a_deep_container(x):
    deep = []
    for _ in range(500):
        deep = [deep]
    return x + 1, len(repr(deep))


def long_repetitions(x):
    return x + 1, raised(lambda: [0] * (1 << 62)), len([0] * 100000), len((1, 2) * 3)


def iterators_that_are_none(x):
    return x + 1, raised(iter, Refusing()), raised(list, Refusing()), raised(enumerate, Refusing()), raised(iter, 42,
        42)


def types_of_iterators(x):
    iterators = [iter([1]), iter((1,)), iter("ab"), iter(b"ab"), iter({1: 2}), iter({3}), iter(range(2))]
    for iterator in iterators:
        next(iterator)
    names = [type(i).__name__ for i in iterators]
    print(end="")
    return x + 1, names, [type(i).__name__ for i in iterators], [list(i) for i in iterators]


class WithoutNext:
    def __iter__(self):
        return self

    def __next__(self):
        return 1


del WithoutNext.__next__


def iterators_without_next(x):
    return x + 1, raised(iter, WithoutNext())


def reversed_deque_that_leaves(x):
    backwards = reversed(collections.deque([1, 2]))
    print(end="")
    return x + 1, list(backwards)


def ended_iterators(x):
    iterators = [iter([1]), iter((1,)), iter("a"), iter({1: 2}), iter({3}), iter(range(1))]
    ended = [list(i) for i in iterators]
    print(end="")
    return x + 1, ended, [type(i).__name__ for i in iterators], [next(i, None) for i in iterators]


def endless_starmap(x):
    return x + 1, list(itertools.islice(itertools.starmap(pow, zip(itertools.count(1), itertools.count(1))), 3))


def wrong_counts(x):
    return x + 1, raised(itertools.combinations, "abc", -2), raised(itertools.islice, [1], -1), raised(itertools.count,
        "a"), list(itertools.islice([1, 2, 3], None, None, 2))


def copies_of_dicts(x):
    backwards = Backwards(a=1, b=2)
    return x + 1, list(dict(backwards)), type(DictOfMine(a=1) | {"b": 2}).__name__, dict(DictOfMine(c=3))


def copies_of_objects_with_slots(x):
    made = copy.copy(Slotted(len, (1, 2)))
    return x + 1, made.args, made.func([1])


def frozen_copies(x):
    mine = FrozenOfMine([1])
    return x + 1, type(mine.copy()).__name__, mine.copy() == mine


def descriptors_without_get(x):
    named = Named()
    named.kept = 42
    return x + 1, named.kept


def pretended_classes(x):
    return x + 1, isinstance(Disguised(), int), raised(property(len).__get__, None, None)


def initialisers_of_c_classes(x):
    return x + 1, Spaced(a=3).a


def formats_that_are_no_text(x):
    return x + 1, raised(format, Odd(), ""), raised(lambda: f"{Odd()}")


def module_of_another_class(x):
    module = types.ModuleType("m")
    module.__class__ = type("Sub", (types.ModuleType,), {})
    return x + 1, type(module).__name__


def views_of_a_subclass_made_here(x):
    made = DictOfMine()
    keys, view = made.keys(), made.items().mapping
    items = ListOfMine([1])
    iterator = iter(items)
    print(end="")
    made["a"] = 1
    items.append(2)
    return x + 1, list(keys), dict(view), list(iterator)


def comparisons_of_subclasses_of_complex(x):
    return x + 1, ComplexOfMine(1) == 1 + 0j, 1 + 0j == ComplexOfMine(1), ComplexOfMine(1) != 1


def containers_that_hold_themselves_compared(x):
    a, b = [], []
    a.append(a)
    b.append(b)
    return x + 1, raised(lambda: a == b)[0], a == a


def contexts_in_a_circle(x):
    first, second = KeyError("first"), ValueError("second")
    try:
        try:
            raise first
        except KeyError:
            try:
                raise second
            except ValueError:
                raise first
    except KeyError:
        pass
    return x + 1, second.__context__ is None, first.__context__ is second


def reversed_objects(x):
    return x + 1, raised(reversed, Blocked()), raised(reversed, Sized()), type(reversed(range(3))).__name__, list(
        reversed(range(0, 7, 3)))


def notes_that_are_no_list(x):
    error = ValueError(1)
    error.__notes__ = 4
    return x + 1, raised(error.add_note, "x")


def called_for_ever(x):
    return x + 1, raised(Circular())[0]


def modules_without_a_name(x):
    module = types.ModuleType.__new__(types.ModuleType)
    return x + 1, raised(getattr, module, "missing"), hasattr(module, "missing")


def class_attributes_under_a_setter_of_the_metaclass(x):
    return x + 1, OfMeta.kept


PROGRAMS = [v for v in list(globals().values()) if isinstance(v, types.FunctionType)
            and v.__code__.co_varnames[:1] == ("x",)]
BREAKS = {arguments_that_constructors_refuse: 2, what_an_os_error_is: 3, made_slots_that_leave: 1,
          function_that_leaves: 1, traceback_of_a_caught_exception: 3, text_of_a_deep_container: 1, long_repetitions: 2,
          types_of_iterators: 3, reversed_deque_that_leaves: 2, ended_iterators: 2, wrong_counts: 2,
          copies_of_objects_with_slots: 1, descriptors_without_get: 1, pretended_classes: 1,
          module_of_another_class: 3, views_of_a_subclass_made_here: 5,
          comparisons_of_subclasses_of_complex: 6, containers_that_hold_themselves_compared: 1, reversed_objects: 1,
          notes_that_are_no_list: 1, called_for_ever: 1, modules_without_a_name: 1}
GRAPHS = {module_of_another_class: 3, modules_without_a_name: 3}  # a module made in each call


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_plain_python(program):
    check(program, X, compiles=GRAPHS.get(program, 1), breaks=BREAKS.get(program, 0))


def maybe_none(x, last, function, key):
    items = list(itertools.islice([3, 0, 1], last)), list(filter(function, [0, 1])), sorted([2, 1], key=key)
    return x + 1, items, ("a",) * 1 + ()


def test_none_that_becomes_something_else():
    """The answer to "is it None?" is guarded: the entry of the first call must not serve the second."""
    compiled = framejit.compile(maybe_none)
    for arguments in [(None, None, None), (2, callable, None), (None, None, str), (1, None, None)]:
        assert compiled(X, *arguments)[1:] == maybe_none(X, *arguments)[1:]


def wraps_a_c_class(x):
    def wrapper(*args):
        return args
    functools.update_wrapper(wrapper, type, [name for name in functools.WRAPPER_ASSIGNMENTS
                                             if name != "__type_params__"])  # 3.12 refuses what type has there
    return x + 1, wrapper.__name__, wrapper.__annotations__, hasattr(int, "__annotations__"), hasattr(type,
        "__annotations__")


def closes_generators(x):
    def numbers():
        try:
            yield 1
        finally:
            return 7  # noqa: B012
    started, fresh_one = numbers(), numbers()
    next(started)
    return x + 1, started.close(), started.close(), fresh_one.close()


@pytest.mark.parametrize("program", [wraps_a_c_class, closes_generators], ids=lambda f: f.__name__)
def test_as_this_python(program):
    check(program, X)


def keeps_an_error(x, kept):
    y = x * 2
    try:
        {}["missing"]
    except KeyError as error:
        kept.append(error)
    return y + 1


@pytest.mark.breaks(escaped_traced=1)
def test_an_exception_that_leaves_a_trace_has_its_traceback():
    kept, compiled = [], framejit.compile(keeps_an_error)
    for _ in range(3):
        assert torch.equal(compiled(X, kept), X * 2 + 1)
    keeps_an_error(X, kept)
    lines = [traceback.extract_tb(error.__traceback__)[-1].lineno for error in kept]
    assert len(lines) == 4 and set(lines) == {keeps_an_error.__code__.co_firstlineno + 3}


class Bound:
    both = functools.partialmethod(lambda *args: args, 3)


def bind_a_partial_method(x, owner):
    descriptor = vars(Bound)["both"]
    return x + 1, descriptor.__get__(owner, Bound)(4)


def test_partial_methods_of_an_object_and_of_its_class():
    compiled = framejit.compile(bind_a_partial_method)
    owner = Bound()
    assert compiled(X, owner)[1] == (owner, 3, 4) and compiled(X, None)[1] == (4, 3)


def test_formats_with_named_fields():
    def f(x):
        named = {"a": "x", "b": 2, "c": [1, 2], "d": 2.5}
        texts = "%(a)s %(b)03d %% %(c)r %(d).2f|%(a)10s" % named, "%s" % named, "%(b)s%(b)s" % named
        try:
            "%(e)s" % named
        except KeyError as e:
            return x + 1, texts, str(e)

    def mixed(x):
        try:
            return "%(a)s %s" % {"a": [x.shape]}, x
        except TypeError as e:
            return str(e), x + 1
    check(f, torch.ones(2), breaks=0)
    check(mixed, torch.ones(2), breaks=1)


class Index:
    def __index__(self):
        return 2


@pytest.mark.breaks(unsupported_operand=7)
def test_operands_that_another_class_takes():
    single = np.float32(2.5)

    def f(x, size):
        texts = [1] + single, (1,) + single, single + [1], (1,) + size, size + (1,), "ab" * Index(), [
            0] * Index(), Index() * (1,)
        found = [1]
        found += single
        return x + 1, [str(text) for text in map(type, texts)], texts[3:], found
    plain = f(X, torch.Size([2, 3]))
    compiled = framejit.compile(f)
    for _ in range(2):
        got = compiled(X, torch.Size([2, 3]))
        assert torch.equal(got[0], plain[0]) and got[1:3] == plain[1:3] and [type(v) for v in got[2]] == [type(v)
            for v in plain[2]]
        assert type(got[3]) is type(plain[3]) and got[3].tolist() == plain[3].tolist()


def test_errors_of_builtins_on_what_they_do_not_take():
    def f(x, size):
        return x + 1, raised(vars, size), raised(torch.Size, [1.5]), raised(torch.Size, "a"), {1} in {1,
            frozenset([1])}, raised({1}.remove, {2})
    check(f, X, torch.Size([2]), breaks=4)


def test_a_tensor_is_rounded_by_functions_of_math():
    def f(x):
        return x + 1, math.floor(x[0] * 2.5), math.ceil(x[1] * 2.5), raised(math.floor, x), math.trunc(x[0])
    check(f, X, compiles=3, breaks=4)
    check(lambda x: (x + 1, math.floor(torch.tensor(2.5)), math.ceil(torch.tensor(2.5))), X, breaks=0)


def test_methods_of_c_classes_keep_their_class():
    def f(x):
        items, table = [1], {}
        methods = items.append, items.__len__, "a".upper, table.get, dict.fromkeys, x.add, bytes.fromhex
        items.append(2)
        same = isinstance(methods[0], types.MethodType), methods[0] == items.append, isinstance(methods[1],
            types.MethodWrapperType)
        return x + 1, same, methods, [type(m).__name__ for m in methods]
    want = f(X)
    compiled = framejit.compile(f)
    for _ in range(2):
        got = compiled(X)
        assert got[1] == want[1] and got[3] == want[3] and [type(m) for m in got[2]] == [type(m) for m in want[2]]
        got[2][0](3)
        assert got[2][1]() == 3 and got[2][2]() == "A" and got[2][4]("ab") == {"a": None, "b": None}
    assert framejit.stats()["graph_breaks"] == 0
