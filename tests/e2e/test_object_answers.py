"""Only objects of C types themselves can answer ==, str() and attributes: the answer is concrete under a guard, or a
break, never one of ours."""
import array
import collections
import copy
import datetime
import decimal
import enum
import os
import sys
import threading
import types

import numpy as np
import pytest
import torch

import framejit
from check import same


class Level(enum.IntEnum):
    LOW = 1


class Both(enum.IntFlag):
    A = 1
    B = 2


class Text(str):
    pass


def both_ways(fn, *calls):
    """Runs each call compiled and plain; the compiled function must have been captured."""
    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    with torch.no_grad():
        for args in calls:
            try:
                expected = fn(*args)
            except Exception as e:
                with pytest.raises(type(e), match=".*"):
                    compiled(*args)
                continue
            got = compiled(*args)
            assert str(got) == str(expected) and type(got) is type(expected)


X = torch.ones(2)
PAIRS = [
    (datetime.date(2020, 1, 1), datetime.date(2020, 1, 1)), (datetime.timedelta(1), copy.copy(datetime.timedelta(1))),
    (np.int64(3), 3), (np.float32(1), 1.0),
    (np.float64(2), 2.0), (decimal.Decimal(1), 1), (collections.deque([1]), collections.deque([1])),
    (types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)),
    (bytearray(b"a"), b"a"), (array.array("i", [1]), array.array("i", [1])), (memoryview(b"a"), b"a"),
    (np.dtype("float32"), "float32"), ({"a": 1}.keys(), {"a"}),
    (1 + 0j, 1), (True, 1.0), (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    (collections.OrderedDict(a=1), {"a": 1}), (Level.LOW, 1), (Text("a"), "a"),
    (torch.device("cpu"), torch.device("cpu", 0)), (range(2), range(0, 2)), ([1], (1,)), (None, 0),
    (torch.Size([1]), (1,)), (types.MappingProxyType({}), {}),
]


@pytest.mark.breaks(unsupported_operand={"date-date": 8, "timedelta-timedelta": 8, "Decimal-int": 7, "deque-deque": 8,
                                         "SimpleNamespace-SimpleNamespace": 6, "bytearray-bytes": 7, "array-array": 6,
                                         "memoryview-bytes": 7, "Float32DType-str": 7, "dict_keys-set": 7,
                                         "mappingproxy-dict": 1},
                    unknown_callable={"SimpleNamespace-SimpleNamespace": 2, "array-array": 2})
@pytest.mark.parametrize("a, b", PAIRS, ids=lambda v: type(v).__name__)
def test_equality(a, b):
    both_ways(lambda x, a, b: (x + 1, a == b, a != b, b == a, a in [b], [a] == [b], [b].count(a)), (X, a, b))
    both_ways(lambda x, a, b: (x + 1, a.__eq__(b), b.__ne__(a)), (X, a, b))


@pytest.mark.breaks(unknown_callable=1, unsupported_operand=1)
def test_equality_decides_a_branch():
    both_ways(lambda x, d: x + 100 if d == datetime.date(2020, 1, 1) else x, (X, datetime.date(2020, 1, 1)),
              (X, datetime.date(2021, 1, 1)))


@pytest.mark.breaks(exception_raised=1)
def test_order_of_what_has_none():
    both_ways(lambda x, a, b: (x + 1, [a] < [b]), (X, 1, 2))
    def compare(x, a, b):
        x = x + 1
        return x, [a] < [b]
    both_ways(compare, (X, collections.OrderedDict(a=1), collections.OrderedDict(b=1)))


TEXTS = [torch.device("cpu"), torch.float32, Level.LOW, Both.A | Both.B, OSError(2, "x"), KeyError("k"),
         ValueError(1, 2), UnicodeDecodeError("utf8", b"a", 0, 1, "why"), Text("t"), torch.Size([1, 2]),
         datetime.date(2020, 1, 1), decimal.Decimal("1.50"), np.float32(1.5), collections.OrderedDict(a=1), int,
         range(3), 1 + 2j]


@pytest.mark.breaks(text_formatting={"FileNotFoundError": 6, "UnicodeDecodeError": 6, "date": 9, "Decimal": 9,
                                     "float32": 8, "OrderedDict": 9})
@pytest.mark.parametrize("value", TEXTS, ids=lambda v: type(v).__name__)
def test_texts(value):
    both_ways(lambda x, v: (x + 1, str(v), f"{v}", f"{v!s}", "%s" % (v,), "%r" % (v,), "%%%9r|%-4s" % (v, v),
                            "{}".format(v), repr(v)), (X, value))


def first(n):
    return n


def second(n):
    return n


class Properties:
    a = property(lambda self: 1)
    b = property(lambda self: 2)


def test_members_of_constants_are_guarded():
    both_ways(lambda x, c: (x + 1, c.co_name), (X, first.__code__), (X, second.__code__))
    both_ways(lambda x, p: (x + 1, p.fget(None)), (X, Properties.a), (X, Properties.b))


@pytest.mark.breaks(unknown_callable=2)
def test_state_of_the_process_is_no_constant():
    both_ways(lambda x: (x + 1, os.getpid()), (X,))
    limit = sys.getrecursionlimit()
    recursion = framejit.compile(lambda x: x + sys.getrecursionlimit(), backend="eager")
    with torch.no_grad():
        assert torch.equal(recursion(X), X + limit)
        sys.setrecursionlimit(limit + 1)
        try:
            assert torch.equal(recursion(X), X + limit + 1)
        finally:
            sys.setrecursionlimit(limit)
    before = torch.get_num_threads()
    def threads(x):
        return x + torch.get_num_threads()
    compiled = framejit.compile(threads, backend="eager")
    with torch.no_grad():
        compiled(X)
        torch.set_num_threads(before + 1)
        try:
            assert torch.equal(compiled(X), threads(X))
        finally:
            torch.set_num_threads(before)


@framejit.compile(backend="eager")
def inner(x, k):
    return x * k


class Holder:
    @framejit.compile(backend="eager")
    def method(self, x):
        return x + 3


def test_a_compiled_function_is_inlined_into_another():
    def outer(x, h):
        return inner(x + 1, 2) + h.method(x)
    framejit.reset()
    compiled = framejit.compile(outer, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(X, Holder()), outer(X, Holder()))
    assert framejit.stats()["graph_breaks"] == 0


@pytest.mark.breaks(outside_effect=1)
def test_explain_counts_its_own_breaks():
    def breaks(x):
        print(end="")
        return x + 1
    with torch.no_grad():
        framejit.explain(breaks, backend="eager")(X)
        second = framejit.explain(lambda x: x + 1, backend="eager")(X)
    assert second.stats["graph_breaks"] == 0 and second.stats["break_reasons"] == {}


@pytest.mark.breaks(data_dependent_value=4, unsupported_operand=4)
def test_memory_of_other_libraries():
    """Objects made from an array share its memory, and nobody sees writes to it."""
    numpy = pytest.importorskip("numpy")
    compiled = framejit.compile(lambda x, n: torch.from_numpy(n) * 1 + x)
    array = numpy.ones(2, dtype=numpy.float32)
    for value in (1, 2, 3):
        array[:] = value
        same(compiled(torch.zeros(2), array), torch.full((2,), float(value)))
    shared = framejit.compile(lambda x: torch.from_numpy((x + 1 - 1).numpy()))
    alias = framejit.compile(lambda x: torch.from_numpy(x.numpy()))
    for size in (3, 0, 2):
        x = torch.ones(size)
        same(shared(x), x)
        result = alias(x)
        assert result.data_ptr() == x.data_ptr()
    buffer = bytearray(8)
    read = framejit.compile(lambda x, b: x + torch.frombuffer(b, dtype=torch.float32))
    for value in (0.0, 1.5):
        buffer[:] = torch.full((2,), value).numpy().tobytes()
        same(read(torch.zeros(2), buffer), torch.full((2,), value))


class Answering(threading.local):
    def __getattr__(self, name):
        return 7


@pytest.mark.breaks(unknown_attribute=6)
@pytest.mark.nothing_captured
def test_attributes_that_c_code_of_the_type_looks_up():
    """threading.local: its contents depend on the thread, and no generic lookup finds them."""
    here, answering = threading.local(), Answering()
    here.k, answering.k = 2, 3

    def caught(x):
        try:
            return x * here.k
        except AttributeError:
            return x * 10
    for fn in (lambda x: x * getattr(here, "k", 10), lambda x: x + hasattr(here, "k"), caught, lambda x: x * answering.k
               + answering.z):
        compiled = framejit.compile(fn, backend="eager")
        for _ in range(2):
            assert torch.equal(compiled(X), fn(X))
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append((compiled(X), fn(X))))
        thread.start()
        thread.join()
        assert torch.equal(*elsewhere[0])


class Items(list):
    pass


class OwnTensor(torch.nn.Parameter):
    pass


METHODS = ["x.expand", "p.expand", "torch.Tensor.expand", "[1].append", "items.append", "super(Items, items).append",
           "dict.fromkeys", "Ordered.fromkeys", "'a'.join",
           "torch.Size([1]).index", "items.__len__", "x.__add__", "len", "torch.add"]
ASKED = ["{}.__qualname__", "{}.__name__", "{}.__module__", "hasattr({}, '__objclass__')", "{}(*3)", "{}(**3)",
         "{}(**dict(a=1), **dict(a=1))"]


class Ordered(collections.OrderedDict):
    pass


@pytest.mark.parametrize("method", METHODS)
def test_what_a_method_in_c_says_of_itself(method):
    body = "".join(f"    try: out.append({asked.format(method)})\n    except Exception as e: out.append(str(e))\n"
                   for asked in ASKED)
    names = dict(globals())
    exec(f"def f(x, p, items):\n    out = []\n{body}    return x + 1, out\n", names)
    framejit.reset()
    given = X, OwnTensor(torch.ones(2)), Items([1])
    assert framejit.compile(names["f"], backend="eager")(*given)[1] == names["f"](*given)[1]
    assert framejit.stats()["graphs"] == 1
