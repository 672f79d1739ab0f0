"""Instances of subclasses of builtin classes as arguments and attributes: their contents are read and guarded like
those of the class itself."""
import collections

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import backend, fresh, raised  # noqa: F401

Size = torch.Size
Pair = collections.namedtuple("Pair", "h w")


class Row(tuple):
    """With attributes besides the items."""

    def __new__(cls, items, scale=1):
        row = super().__new__(cls, items)
        row.scale = scale
        return row


class AllEqual(tuple):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


class Items(list):
    pass


class Table(dict):
    pass


class Names(frozenset):
    pass


class Holder:
    def __init__(self, last):
        self.last = last


SIZES = [Size((2, 3)), Size((5, 3)), Size((2, 3, 4)), Size((2,)), Size((2, 3)), Size((4, 7)), Size((1, 1))]
PAIRS = [Pair(2, 3), Pair(3, 2), Pair(1, 1), Pair(2, 3), Pair(4, 2)]
IMAGE = torch.arange(144.0).view(1, 1, 12, 12)
CUBE = torch.arange(24.0).view(2, 3, 4)

READS = {
    "len": (lambda x, s: x * len(s), SIZES),
    "sum": (lambda x, s: x * sum(s), SIZES),
    "first": (lambda x, s: x * s[0], SIZES),
    "last": (lambda x, s: x * s[-1], SIZES),
    "numel": (lambda x, s: x * s.numel(), SIZES),
    "slice": (lambda x, s: x.expand(s[:1]) + s[1:].numel(), SIZES),
    "equal": (lambda x, s: x * 2 if s == Size((2, 3)) else x, SIZES),
    "equal to a tuple": (lambda x, s: x * 2 if s == (2, 3) else x, SIZES),
    "less": (lambda x, s: x * 2 if s < (2, 4) else x, SIZES),
    "in": (lambda x, s: x * 2 if 5 in s else x, SIZES),
    "index and count": (lambda x, s: x * s.count(2) + (s.index(3) if 3 in s else 9), SIZES),
    "truth": (lambda x, s: x * 2 if s else x, SIZES + [Size(())]),
    "unpacked": (lambda x, s: (lambda a, b: x * a - b)(*s), [s for s in SIZES if len(s) == 2]),
    "destructured": (lambda x, s: [x * a - b for a, b in [s]][0], [s for s in SIZES if len(s) == 2]),
    "iterated": (lambda x, s: x + torch.tensor([float(i) for i in s]).sum(), SIZES),
    "tuple()": (lambda x, s: torch.zeros(tuple(s)), SIZES),
    "list()": (lambda x, s: torch.zeros(list(s)), SIZES),
    "added": (lambda x, s: torch.zeros(s + (2,)), SIZES),
    "as a key": (lambda x, s: x * {Size((2, 3)): 5}.get(s, 1), SIZES),
    "repr": (lambda x, s: x * len(repr(s)), SIZES),
    "zeros": (lambda x, s: torch.zeros(s), SIZES),
    "expand": (lambda x, s: x.expand(s), SIZES),
    "attribute": (lambda x, h: torch.zeros(h.last) + x, [Holder(s) for s in SIZES]),
    "in a tuple": (lambda x, t: torch.zeros(t[1]) + t[0], [(1, s) for s in SIZES]),
    "tuple of them to an op": (lambda x, t: torch.zeros(t[0]) + len(t[1]), [(s, s[1:]) for s in SIZES]),
    "in a list": (lambda x, t: torch.zeros(t[1]) + t[0], [[1, s] for s in SIZES]),
    "in a dict": (lambda x, d: torch.zeros(d["size"]) + x, [{"size": s} for s in SIZES]),
    "field": (lambda x, p: x * p.h - p.w, PAIRS),
    "named: expand": (lambda x, p: x.expand(p), PAIRS),
    "named: fields of other types": (lambda x, p: x * (p.h if isinstance(p.h, int) else len(p.h)),
                                     PAIRS + [Pair("ab", "c"), Pair("abc", None)]),
    "named: equal": (lambda x, p: x * 2 if p == (2, 3) else x, PAIRS),
    "named: pool": (lambda x, p: F.avg_pool2d(IMAGE, p) + x, PAIRS),
    "named: interpolate": (lambda x, p: F.interpolate(IMAGE, size=p) + x, PAIRS),
    "named: interpolate by factors": (lambda x, p: F.interpolate(IMAGE, scale_factor=p) + x, PAIRS),
    "named: replaced": (lambda x, p: torch.zeros(p._replace(h=7)) + x, PAIRS),
    "named: asdict": (lambda x, p: x * p._asdict()["w"], PAIRS),
    "permute": (lambda x, p: CUBE.permute(p) + x, [Row((0, 1, 2)), Row((2, 1, 0)), Row((1, 0, 2)), Row((2, 0, 1))]),
    "dims of a sum": (lambda x, p: CUBE.sum(p) + x, [Row((0, 1)), Row((1, 2)), Row((0,)), Row((0, 2))]),
    "roll": (lambda x, p: torch.roll(CUBE, p, (0, 1)) + x, [Row((0, 1)), Row((1, 2)), Row((1, 1))]),
    "its own attributes": (lambda x, r: x.expand(r) * r.scale,
                           [Row((2, 1)), Row((2, 1), 3), Row((4, 1), 3), Row((4, 1), 5), Row((4, 2))]),
    "its own __eq__": (lambda x, r: x * 2 if r == (2, 3) else x * len(r), [AllEqual((1,)), AllEqual((1, 2))]),
    "list": (lambda x, s: x * len(s) + s[0], [Items([1, 3]), Items([1]), Items([1, 2, 3]), Items([2, 2, 3])]),
    "dict": (lambda x, s: x * len(s) + s.get("a", 0), [Table(a=1), Table(), Table(a=1, b=2), Table(a=4, b=2)]),
    "frozenset": (lambda x, s: x * 2 if "a" in s else x, [Names("a"), Names("b"), Names("ab")]),
    "counter": (lambda x, s: x * s["a"], [collections.Counter("aab"), collections.Counter("b")]),
}


@pytest.mark.breaks(exception_raised={"named: interpolate by factors": 1}, unsupported_operand={"frozenset": 1})
@pytest.mark.parametrize("name", READS)
def test_reads(name, backend):  # noqa: F811
    fn, values = READS[name]
    x = torch.ones(1)
    compiled = framejit.compile(fn, backend=backend)
    for value in values + values[::-1]:
        expected = fn(x, value)
        got = compiled(x, value)
        assert got.shape == expected.shape and torch.equal(got, expected), f"{value}: {got} is not {expected}"


def test_answers_keep_their_classes(backend):  # noqa: F811
    def fn(x, s):
        return x + 1, s, tuple(s), s[:1], s + (1,), s * 2, list(s), [*s], (*s,), s == tuple(s), repr(s)

    compiled = framejit.compile(fn, backend=backend)
    x = torch.ones(1)
    for s in (Size((2, 3)), Size((4, 3)), Size((4,)), Pair(1, 2), Pair(3, 2), Row((1, 2)), Row((5,)), Size((6, 3))):
        expected, got = fn(x, s)[1:], compiled(x, s)[1:]
        assert got == expected and [type(v) for v in got] == [type(v) for v in expected]
        assert got[0] is s


def test_sizes_in_them_become_symbols(backend):  # noqa: F811
    """As in plain tuples and lists."""
    x = torch.ones(1)
    for make, fn in ((lambda n: Size((n, 3)), lambda x, s: x.expand(s) * 2),
                     (lambda n: Pair(n, n + 1), lambda x, s: x.expand(s) + s.h),
                     (lambda n: Holder(Size((2, n))), lambda x, h: x.expand(h.last) + 1)):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for n in range(2, 12):
            assert torch.equal(compiled(x, make(n)), fn(x, make(n)))
        assert framejit.stats()["recompiles"] <= 2 and framejit.stats()["fallbacks"] == 0


def test_other_class_same_items(backend):  # noqa: F811
    def fn(x, s):
        return x * (2 if isinstance(s, Size) else 3) + len(s)

    compiled = framejit.compile(fn, backend=backend)
    x = torch.ones(1)
    for s in (Size((2, 3)), (2, 3), Pair(2, 3), [2, 3], Size((2, 3))):
        assert torch.equal(compiled(x, s), fn(x, s))


class Text(str):
    pass


class Octets(bytes):
    pass


class FormatsItself(str):
    def __format__(self, spec):
        return Text("formatted")


UNCHANGED = ["s.partition('x')", "s.partition('a')", "s.rpartition('x')", "s.format()", "s.format(1, a=2)", "s % ()",
             "s % range(2)", "f'{s:s}'", "f'{s:2}'", "f'{s:4}'", "f'{s:.1}'", "format(s, 's')", "b.partition(b'x')",
             "b.rpartition(b'x')", "b % ()", "s.strip()", "s[:]", "'{}'.format(s)", "'%s' % s", "f'{own}'"]


@pytest.mark.parametrize("text", UNCHANGED)
def test_an_unchanged_text_of_a_subclass(text, backend):
    """C code that formats, or splits in three, returns the object itself; other methods return an exact copy."""
    scope = {}
    exec(f"def f(x, s, b, own): return {text}, x + 1", scope)

    def kinds(f, *args):
        result = raised(lambda: f(torch.ones(2), *args)[0])
        parts = result if isinstance(result, tuple) else (result,)
        return [(type(p), str(p) if isinstance(p, str) else bytes(p), [p is a for a in args]) for p in parts]
    compiled = framejit.compile(scope["f"], backend=backend)
    for s, b in ((Text("ab"), Octets(b"ab")), ("ab", b"ab"), (Text(""), Octets(b"")), (Text("%%"), Octets(b"x"))):
        args = s, b, FormatsItself("f")
        assert kinds(compiled, *args) == kinds(scope["f"], *args)
