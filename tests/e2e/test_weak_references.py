"""weakref.ref: called and made in a trace; each call reads the object again."""
import gc
import weakref
from collections import OrderedDict

import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401


class Owner:
    def __init__(self, k=2):
        self.k = k


def run(fn, *args):
    """Results of three calls, and the breaks."""
    framejit.reset()
    compiled = framejit.compile(fn)
    results = [compiled(*args) for _ in range(3)]
    return results, framejit.stats()["graph_breaks"]


def test_a_reference_is_called():
    owner = Owner()
    ref = weakref.ref(owner)
    check(lambda x: x * ref().k, torch.randn(3), breaks=0, compiles=1)
    tensor = torch.ones(3)
    to_tensor = weakref.ref(tensor)
    check(lambda x: x + to_tensor(), torch.randn(3), breaks=0, compiles=1)


@pytest.mark.breaks(made_in_trace=1)
def test_the_object_may_die_or_be_another():
    owner = Owner()
    box = [weakref.ref(owner)]
    compiled = framejit.compile(lambda x: x * (box[0]().k if box[0]() is not None else 10))
    x = torch.ones(2)
    assert compiled(x)[0] == 2
    other = Owner(5)
    box[0] = weakref.ref(other)
    assert compiled(x)[0] == 5
    del other
    gc.collect()
    assert compiled(x)[0] == 10
    box[0] = weakref.ref(owner)
    assert compiled(x)[0] == 2


@pytest.mark.breaks(made_in_trace=1)
def test_entries_keep_nothing_alive():
    owner = Owner()
    ref = weakref.ref(owner)
    compiled = framejit.compile(lambda x: x * (ref().k if ref() else 7))
    assert compiled(torch.ones(1)) == 2
    del owner
    gc.collect()
    assert ref() is None
    assert compiled(torch.ones(1)) == 7


def test_identity_of_what_is_referred_to():
    owner = Owner()
    ref = weakref.ref(owner)
    check(lambda x: x + 1 if ref() is owner else x - 1, torch.randn(3), breaks=0)
    framejit.reset()
    compiled = framejit.compile(lambda x, o: x + 1 if ref() is o else x - 1)
    assert compiled(torch.ones(1), owner) == 2
    assert compiled(torch.ones(1), Owner()) == 0
    assert compiled(torch.ones(1), owner) == 2


def test_references_are_made():
    owner = Owner(3)

    def f(x, o):
        ref = weakref.ref(o)
        return x * ref().k, ref is weakref.ref(o), ref

    (results, breaks), ref = run(f, torch.ones(2), owner), weakref.ref(owner)
    assert breaks == 0
    for result, same, made in results:
        assert result[0] == 3 and same and made is ref

    def keeps(x, o):
        o.ref = weakref.ref(o)
        return x + 1

    _, breaks = run(keeps, torch.ones(2), owner)
    assert breaks == 0 and owner.ref is ref and owner.ref() is owner


@pytest.mark.breaks(made_in_trace=3)
def test_what_the_trace_lets_go_of_is_gone():
    def writes(x, box):
        ref = weakref.ref(box.inner)
        box.inner = None
        return (x + 1, ref() is None)

    def rebinds(x, o):
        ref = weakref.ref(o.inner)
        o = None
        return (x + 1, ref() is None)

    def known(x, box, ref):
        box.inner = None
        return (x + 1, ref() is None)

    for fn in (writes, rebinds):
        framejit.reset()
        compiled = framejit.compile(fn)
        for _ in range(3):
            box = Owner()
            box.inner = Owner()
            want = fn is writes
            assert compiled(torch.ones(1), box) == (2, want)
    framejit.reset()
    compiled = framejit.compile(known)
    for _ in range(3):
        box = Owner()
        box.inner = Owner()
        ref = weakref.ref(box.inner)
        assert compiled(torch.ones(1), box, ref) == (2, True)


@pytest.mark.breaks(made_in_trace=1, outside_effect=2)
def test_what_was_made_in_the_trace_and_callbacks_break():
    calls = []

    def f(x):
        made = Owner()
        ref = weakref.ref(made)
        alive = ref() is made
        del made
        return x + 1, alive, ref() is None

    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(3):
        assert compiled(torch.ones(1)) == (2, True, True)

    def g(x, o):
        weakref.ref(o, calls.append)
        return x * 2
    owner = Owner()
    assert run(g, torch.ones(1), owner)[0] == [2, 2, 2]


def test_subclasses_of_references():
    class Named(weakref.ref):
        pass

    class Twice(weakref.ref):
        def __call__(self):
            found = super().__call__()
            return None if found is None else found.k * 2

    owner = Owner(4)
    named, twice, method = Named(owner), Twice(owner), weakref.WeakMethod(owner.__init__)
    check(lambda x: x * named().k, torch.randn(2), breaks=0)
    check(lambda x: x * twice(), torch.randn(2), breaks=0)
    check(lambda x: x * method().__self__.k, torch.randn(2))


def test_a_reference_of_ours_that_the_program_keeps():
    """It outlives what was compiled: its callback must not write to the freed memory."""
    class Held:
        k = 2.0
    held = Held()
    framejit.compile(lambda x: x * held.k)(torch.ones(3))
    kept = [r for r in weakref.getweakrefs(Held) if r.__callback__]
    assert kept
    framejit.reset()
    gc.collect()
    others = [bytearray(b"\xaa" * size) for size in range(16, 600, 8) for _ in range(40)]
    del held, Held
    gc.collect()
    assert kept[0]() is None
    assert all(set(other) == {0xaa} for other in others)


def reads(x, d, key):
    return x * sum(d[k] for k in d)


def looks_up(x, d, key):
    return x * d[key] if key in d else x


def writes(x, d, key):
    for k in d:
        d[k] += 1
    return x * len(d)


def removes(x, d, key):
    d["other"] = 1
    del d[key]
    return x * len(d)


def in_order(x, d, key):
    return x * sum(d[k] for k in OrderedDict(d))


KEYS = {"parameter": lambda: torch.nn.Parameter(torch.ones(1)), "module": lambda: torch.nn.Linear(1, 1),
        "object": Owner, "function": lambda: lambda: 1}


@pytest.mark.parametrize("make", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("f", [reads, looks_up, writes, removes, in_order], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_keys_of_dicts_are_not_kept_alive(f, make, kind):
    """The entry dies with the key, so that it makes room for the next."""
    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(12):
        key = make()
        got = kind({key: 2.0})
        want = kind(got)
        gone = weakref.ref(key)
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), got, key), f(torch.ones(2), want, key)) and got == want
            got.setdefault(key, 2.0), want.setdefault(key, 2.0)
        del key, got, want
        gc.collect()
        assert gone() is None
    # a number of one dict becomes a symbol; a dict that has "other" already is another form
    assert framejit.stats()["graphs"] == {writes: 13, removes: 24}.get(f, 12)
    assert framejit.stats()["fallback_reasons"] == {}


@pytest.mark.parametrize("keys", [(1, "a", (2, "b"), frozenset({3})), (1.5, b"c", None)], ids=["1", "2"])
def test_keys_that_are_values(keys):
    """Equal keys that each call makes anew fit the same entry."""
    def f(x, d):
        return x * sum(d[k] for k in d)
    compiled = framejit.compile(f)
    framejit.reset()
    for n in range(4):
        made = {frozenset({3}) if isinstance(k, frozenset) else k: 2.0 for k in keys}
        assert compiled(torch.ones(1), made) == 2.0 * len(keys)
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["hits"] == 3
