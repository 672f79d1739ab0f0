"""Classes of collections, dataclasses and enum in traced code."""
import collections
import dataclasses
import enum

import pytest
import torch

import framejit
from check import BACKENDS, check

x = torch.randn(3, 4)
Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Output:
    first: torch.Tensor = None
    second: torch.Tensor = None
    extra: list = dataclasses.field(default_factory=list)


class Kind(enum.Enum):
    RED = 1
    BLUE = 2


def test_deque():
    def f(x):
        q = collections.deque([x], maxlen=3)
        q.append(x + 1)
        q.extend([x + 2, x + 3])
        q.appendleft(x * 2)
        q.rotate(1)
        last = q.pop()
        first = q.popleft()
        q.extendleft([first, last])
        q.reverse()
        return q, len(q), q[0] + q[-1], sum(v.sum() for v in q), q.maxlen, bool(collections.deque())
    check(f, x, breaks=0, compiles=1)


def test_deque_of_the_caller_is_left_to_python():
    def f(q, x):
        q.append(x + 1)
        return q.popleft() * 2
    check(f, collections.deque([x]), x, compiles=2, breaks=2)


def test_empty_deque_raises():
    def f(x):
        q = collections.deque()
        y = x + 1
        q.pop()
        return y
    check(f, x)


def test_ordered_and_default_dicts():
    def f(x):
        d = collections.OrderedDict(a=x, b=x + 1)
        d.move_to_end("a")
        groups = collections.defaultdict(list)
        for i in range(4):
            groups[i % 2].append(x[0] * i)
        counts = collections.Counter("abca")
        return d, list(d), sum(groups[1]), dict(counts)
    check(f, x, breaks=0, compiles=1)


def test_namedtuple_dataclass_and_enum():
    def f(x, kind):
        p = Pair(x, x + 1)._replace(first=x * 2)
        a, b = p
        out = Output(a, extra=[b])
        out = dataclasses.replace(out, second=x.sum())
        if kind is Kind.BLUE and Kind(2) is kind and Kind["RED"].value == 1:
            a = a * kind.value
        return p, out, a, [f.name for f in dataclasses.fields(out)], kind.name
    check(f, x, Kind.BLUE, breaks=0, compiles=1)


def test_classes_made_or_written_break_cleanly():
    def f(x):
        made = type("Made", (), {"k": 3})
        return x * made.k
    check(f, x, compiles=3, breaks=1)

    class Counter:
        n = 0

    def g(x):
        Counter.n = Counter.n + 1
        return x * Counter.n

    def reset_and_call(x):
        Counter.n = 0
        return g(x)
    check(reset_and_call, x)


def test_the_order_of_an_ordered_dict_is_guarded():
    def f(x, d):
        for key, value in d.items():
            x = (x + len(key)) * value
        return x
    compiled = framejit.compile(f)
    d = collections.OrderedDict(a=2.0, bb=3.0, ccc=5.0)
    with torch.no_grad():
        for change in (lambda: None, lambda: d.move_to_end("a"), lambda: d.move_to_end("ccc",
            last=False), lambda: d.popitem(last=False), lambda: d.update(a=d.pop("a"))):
            change()
            assert torch.equal(compiled(torch.ones(2), d), f(torch.ones(2), d)), list(d)


def moved(**items):
    """Its iteration begins with the last item."""
    made = collections.OrderedDict(items)
    made.move_to_end(list(items)[-1], last=False)
    return made


def keywords(**given):
    return list(given)


MOVED = {
    "keys": lambda x, d: (x + 1, list(d), list(d.keys()), [*d]),
    "items": lambda x, d: (x + 2, list(d.items()), list(d.values()), list(reversed(d))),
    "as keyword arguments": lambda x, d: (x + 1, keywords(**d), {**d}, dict(d), d.copy()),
    "equal": lambda x, d: (x + 1, d == collections.OrderedDict(d), d == collections.OrderedDict(a=1, b=2, c=3)),
    "popped at its beginning": lambda x, d: (x + 1, d.popitem(last=False), d),
    "popped at its end": lambda x, d: (x + 1, d.popitem(), d),
    "moved": lambda x, d: (x + 1, d.move_to_end("a"), d),
    "one item written": lambda x, d: (x + 1, d.__setitem__("b", x * 2), d),
    "one item added": lambda x, d: (x + 1, d.update(z=x), d),
    "one item deleted": lambda x, d: (x + 1, d.__delitem__("a"), d),
    "deleted and written": lambda x, d: (x + 1, d.pop("c"), d.__setitem__("c", x), d),
    "an iterator returned": lambda x, d: (x + 1, next(i := iter(d)), list(i)),
}


@pytest.mark.parametrize("name", MOVED)
def test_an_ordered_dict_whose_order_was_changed(name):
    """This includes what is left in the caller's dict."""
    fn = MOVED[name]
    compiled, x = framejit.compile(fn, fullgraph=True), torch.ones(2)
    for _ in range(2):
        ours, plain = moved(a=1, b=2, c=3), moved(a=1, b=2, c=3)
        got, expected = compiled(x, ours), fn(x, plain)
        assert str(got) == str(expected) and str(ours) == str(plain) and list(ours) == list(plain)
    assert list(moved(a=1, b=2, c=3)) == ["c", "a", "b"]
    kept, plain = moved(a=1, b=2, c=3), moved(a=1, b=2, c=3)
    kept.move_to_end("a")
    plain.move_to_end("a")
    assert str(compiled(x, kept)) == str(fn(x, plain)) and list(kept) == list(plain), "a guard of the order"


@pytest.mark.breaks(changed_container=1)
def test_an_ordered_dict_written_as_a_dict():
    """Its own list lacks the new key."""
    def make():
        made = collections.OrderedDict(a=1, b=2)
        dict.__setitem__(made, "c", 3)
        return made
    compiled = framejit.compile(lambda x, d: (x + 1, list(d)))
    assert compiled(x, make())[1] == list(make()) == ["a", "b"]


def test_hooks_put_before_others():
    layer = torch.nn.Linear(2, 2).eval()
    layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    layer.register_forward_hook(lambda m, args, out: out + 1)
    compiled, x = framejit.compile(layer, fullgraph=True), torch.ones(2)
    with torch.no_grad():
        assert torch.allclose(compiled(x), layer(x))
        layer.register_forward_pre_hook(lambda m, args: (args[0] * 3,), prepend=True)
        layer.register_forward_hook(lambda m, args, out: out * 2, prepend=True)
        assert torch.allclose(compiled(x), layer(x))


@dataclasses.dataclass(frozen=True)
class Key:
    a: int


class Everything:
    """Equal to everything: only the hash keeps two of them apart."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return True

    def __hash__(self):
        return self.value

    def __repr__(self):
        return f"Everything({self.value})"


class TestKeysHashedByPython:
    @pytest.mark.breaks(unsupported_key=2)  # an item of a dict that was made outside
    def test_those_made_in_the_trace_leave_in_containers(self):
        def f(x, d):
            d[Key(x.shape[0])] = x
            inner = (Key(1), frozenset([Key(2)]))
            return {Key(1): x + 1, inner: 1}, {Key(3), Key(3), Key(4)}, dict.fromkeys([Key(5), Key(5)]), d
        for backend in BACKENDS:
            framejit.reset()
            compiled, x = framejit.compile(f, backend=backend), torch.ones(2)
            for _ in range(2):
                got, want = compiled(x, {}), f(x, {})
                assert str(got) == str(want) and [type(k) for k in got[0]] == [type(k) for k in want[0]]
            assert framejit.stats()["graphs"] == 1

    def test_a_set_asks_for_equality_where_hashes_are_equal(self):
        def f(x):
            w = Everything
            return x + 1, w(3) in {w(1), w(2)}, w(1) in {w(1)}, len({w(1), w(2), w(1)}), {w(1)} & {w(2)}, {w(1)} == {
                w(2)}, {w(1): 5}.get(w(2)), w(3) in frozenset([w(1)])
        compiled, x = framejit.compile(f, backend="eager"), torch.ones(2)
        for _ in range(2):
            assert str(compiled(x)) == str(f(x))
        assert framejit.stats()["graphs"] == 1


@pytest.mark.breaks(unsupported_key=1)
def test_keys_that_compare_in_python_and_have_one_hash():
    """A look-up in the argument would run the comparison, which clears it, while tracing."""
    class Clears(int):
        held = []

        def __hash__(self):
            return 13

        def __eq__(self, other):
            for d in self.held:
                d.clear()
            return False

    def fn(x, d):
        made = dict.fromkeys(d)
        return x + len(made), len(d)

    def call(f):
        d = {Clears(1): 1, Clears(2): 2}
        Clears.held[:] = [d]
        result = f(torch.ones(2), d)
        Clears.held.clear()
        return result

    with torch.no_grad():
        compiled = framejit.compile(fn)
        for _ in range(3):
            want, got = call(fn), call(compiled)
            assert torch.equal(got[0], want[0]) and got[1] == want[1]
    assert framejit.stats()["fallback_reasons"] == {}
