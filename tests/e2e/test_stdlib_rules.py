"""Rules of hashes, patterns, iterators, sets and attributes that traces once broke silently, found by tracing the tests
of the standard library."""
import codecs
import collections
import copy
import enum
import functools
import gc
import inspect
import os
import pickle
import sys
import time
import types
import weakref

import pytest
import torch

from check import check, fresh, raised  # noqa: F401  fresh: the fixture

X = torch.ones(3)


class Number(enum.IntEnum):
    A = 0
    B = 1


class Holder:
    pass


class Halibut:
    def __hash__(self):
        return hash("halibut")

    def __eq__(self, other):
        return other == "halibut"


class Pair:
    def __hash__(self):
        return hash((1, "a"))

    def __eq__(self, other):
        return other == (1, "a")


class Hashed:
    def __init__(self, h):
        self.h = h

    def __hash__(self):
        return self.h


def hashes_in_python():
    numbers = [hash(Hashed(h)) == hash(h) for h in (-1, 2**61, 2**70, True, 7)]
    return len({"halibut", Halibut()}), len({(1, "a"), Pair()}), {(1, "a"): 5}.get(Pair()), Pair() in {
        (1, "a")}, numbers, raised(hash, Hashed("x"))


class Twice:
    __match_args__ = ("a", "a")
    a = None


class NoName:
    __match_args__ = (None,)


class Keys:
    KEY = "a"


def match_twice(subject):
    match subject:
        case Twice(_, _):
            return 1


def match_keyword(subject):
    match subject:
        case Twice(_, a=_):
            return 1


def match_no_name(subject):
    match subject:
        case NoName(_):
            return 1


def match_duplicate(subject):
    match subject:
        case {Keys.KEY: _, "a": _}:
            return 1


def patterns_that_are_refused():
    return raised(match_twice, Twice()), raised(match_keyword, Twice()), raised(match_no_name,
        NoName()), raised(match_duplicate, {"a": 1, "b": 2})


def struct_sequences():
    many = time.struct_time([[i] for i in range(time.struct_time.n_fields)])
    stat = os.stat_result([[i] for i in range(os.stat_result.n_sequence_fields)], {"st_atime": [1.0]})
    return copy.copy(many).tm_zone, copy.copy(stat).st_atime


class Counting:
    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 2:
            raise StopIteration(self.n)
        return self.n


def yields_from():
    result = yield from Counting()
    yield "result", result


def value_of_stop_iteration():
    return list(yields_from())


class Missing(dict):
    def __missing__(self, key):
        return int(key.removeprefix("number_"))


sum_of_missing = eval("lambda: number_1 + number_2", Missing())


def globals_of_another_type():
    return sum_of_missing()


def builtins_that_a_callee_writes():
    import builtins
    kept = builtins.len

    def change():
        builtins.len = lambda items: 4
    try:
        before = len([1, 2])
        change()
        return before, len([1, 2])
    finally:
        builtins.len = kept


class WithNew(OSError):
    def __new__(cls, message, extra):
        self = super().__new__(cls, message)
        self.extra = extra
        return self


def characters_written(error):
    return error.characters_written


def errors_of_the_system():
    made = [BlockingIOError(*"abcde"[:n]) for n in range(3)]
    return WithNew("message", "extra").args, [raised(characters_written, error) for error in made]


def views_beside_sets():
    keys = {"d": 4}.keys()
    made = [keys & frozenset("d"), frozenset("d") & keys, keys | frozenset("d"), frozenset("d") - keys,
            frozenset("d") ^ keys, [] & keys, keys - ["d"], keys | ("e",)]
    return [type(m).__name__ for m in made], [sorted(m) for m in made]


def attribute_of_a_function(name, to):
    def made():
        pass
    setattr(made, name, to)
    return getattr(made, name)


def unfit_attributes_of_functions():
    return [raised(attribute_of_a_function, *pair) for pair in (("__name__", 7), ("__qualname__", 7),
                                                                ("__builtins__", 7), ("__name__", "f"), ("__doc__", 7))]


REPLACED = ["one"]
codecs.register_error("framejit.replaced", lambda error: (REPLACED[-1], error.end))


def handlers_of_codecs():
    answers = []
    for word in ("two", "three"):
        REPLACED.append(word)
        answers += ["\u3042".encode("ascii", "framejit.replaced"), b"\xff".decode("ascii", errors="framejit.replaced"),
                    str(b"\xff", "ascii", "framejit.replaced")]
    return answers


def merged_dicts():
    ordered, counted = collections.OrderedDict({1: 1}), collections.defaultdict(int, {1: 1})
    merged = [{0: 0} | ordered, ordered | {0: 0}, counted | {0: 0}, {0: 0} | counted]
    factories = [d.default_factory is int for d in merged[2:]]
    return [type(d).__name__ for d in merged], factories, raised(collections.defaultdict, {})


def copied_defaultdict():
    kept = collections.defaultdict(list, {1: [1]})
    return copy.deepcopy(kept).default_factory is list, copy.copy(kept).default_factory is list


def slots_that_answer_not_implemented():
    answers = [(1).__add__("a"), (1).__lt__("a"), b"abc".__rmod__("%r"), 1.5.__mul__("x"), (1).__radd__(2)]
    return [a is NotImplemented or a for a in answers]


class Closed(list):
    __contains__ = None


class NoInPlace:
    def __add__(self, other):
        return 1

    __iadd__ = None


def is_inside(container):
    return 1 in container


def add_in_place(a):
    a += 1
    return a


def specials_that_are_none():
    return raised(is_inside, Closed([1])), raised(add_in_place, NoInPlace())


def descriptors_that_become_data():
    class Descriptor:
        def __get__(self, instance, owner):
            return 1

    class Owner:
        x = Descriptor()

    class Class(type):
        y = Descriptor()

    class Made(metaclass=Class):
        y = 2

    owner = Owner()
    owner.__dict__["x"] = 2

    def read():
        return owner.x, Made.y
    answers = [read() for _ in range(3)]
    Descriptor.__set__ = lambda *args: None
    answers += [read() for _ in range(3)]
    Class.__getattribute__ = lambda cls, name: 5
    return answers + [read() for _ in range(3)]


class Slotted:
    __slots__ = ("z",)
    y = 0


class Borrowing:
    __slots__ = ("w",)


Borrowing.z = Slotted.z


def write_z(target):
    target.z = 1


def delete_z(target):
    del target.z


def write_y(target):
    target.y = 1


def slots_of_classes():
    return raised(write_z, Borrowing()), raised(delete_z, Slotted()), raised(write_y, Slotted())


def annotations_made_when_read():
    class Bare:
        pass
    first = Bare.__annotations__
    first["x"] = 1
    module = types.ModuleType("m")
    before = "__annotations__" in module.__dict__
    return Bare.__annotations__ is first, before, module.__annotations__, "__annotations__" in module.__dict__


class InItself:
    def __init__(self, value):
        self.value = value


def a_set_that_its_item_holds():
    items = set()
    items.add(InItself(items))
    print(end="")
    return [item.value is items for item in items]


def a_list_in_itself_in_a_tuple():
    pair = ([],)
    pair[0].append(pair)
    return describe_nothing(pair)


def describe_nothing(pair):
    print(end="")
    return pair[0][0] is pair


class Dynamic(type):
    def __getattr__(cls, name):
        return "of the class " + name


class WithDynamic(metaclass=Dynamic):
    @types.DynamicClassAttribute
    def eggs(self):
        return "of the object"


class Warns(type):
    def __getattribute__(cls, name):
        return 7 if name == "q" else super().__getattribute__(name)


class WithWarns(metaclass=Warns):
    q = 1


def attributes_of_metaclasses():
    return WithDynamic.eggs, WithDynamic().eggs, ("eggs",
                                                  "of the class eggs") in inspect.getmembers(
                                                      WithDynamic), WithWarns.q, getattr(WithWarns, "q")


def interned_texts():
    text = "".join(["not ", "interned ", "yet"])
    return sys.intern(text) is sys.intern("not interned" + " yet")


def finalizers():
    holder, seen = Holder(), []
    finalizer = weakref.finalize(holder, seen.append, 67)
    print(end="")
    del holder
    gc.collect()
    return finalizer(), finalizer.alive, seen


class BadEqual:
    def __hash__(self):
        return 7

    def __eq__(self, other):
        raise ValueError("eq")


class SetOfMine(set):
    pass


class FrozenOfMine(frozenset):
    pass


class Wrapping:
    value = None

    def __repr__(self):
        return repr(self.value)


def texts_of_sets():
    wrapping = Wrapping()
    wrapping.value = SetOfMine([wrapping])
    return repr(SetOfMine([1])), str(FrozenOfMine([1])), f"{SetOfMine()}", repr(wrapping), repr({1}), repr(frozenset())


class Locked:
    calls = 0

    @functools.cached_property
    def answer(self):
        Locked.calls += 1
        print(end="")
        return 42


def a_cached_property_that_breaks():
    locked = Locked()
    return locked.answer, locked.answer


def comparisons_that_raise():
    one, two = BadEqual(), BadEqual()
    kept = {one: two}
    return one in kept, raised(kept.__contains__, two), raised(kept.keys().__contains__,
                                                               two), raised(kept.items().__contains__, (one, one))


def copied_by_pickle():
    return pickle.loads(pickle.dumps(collections.OrderedDict(a=Number.A))) == {"a": 0}


PROGRAMS = [hashes_in_python, patterns_that_are_refused, struct_sequences, value_of_stop_iteration,
            globals_of_another_type, builtins_that_a_callee_writes, errors_of_the_system, views_beside_sets,
            unfit_attributes_of_functions, handlers_of_codecs, merged_dicts, copied_defaultdict,
            slots_that_answer_not_implemented, specials_that_are_none, descriptors_that_become_data,
            slots_of_classes, annotations_made_when_read, a_set_that_its_item_holds, a_list_in_itself_in_a_tuple,
            attributes_of_metaclasses, interned_texts, texts_of_sets, a_cached_property_that_breaks,
            finalizers, comparisons_that_raise, copied_by_pickle]
BREAKS = {struct_sequences: 5, globals_of_another_type: 1, builtins_that_a_callee_writes: 2, errors_of_the_system: 3,
          views_beside_sets: 3, unfit_attributes_of_functions: 2, handlers_of_codecs: 4, merged_dicts: 4,
          copied_defaultdict: 5, specials_that_are_none: 2, descriptors_that_become_data: 10, slots_of_classes: 1,
          annotations_made_when_read: 6, a_set_that_its_item_holds: 2, a_list_in_itself_in_a_tuple: 1,
          attributes_of_metaclasses: 1, a_cached_property_that_breaks: 1, finalizers: 4, copied_by_pickle: 2}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_plain_python(program):
    def around(x):
        y = x + 1
        answer = program()
        return y * 2, answer
    check(around, X, compiles=2 if program in BREAKS else 1, breaks=BREAKS.get(program, 0))
