"""Sets made in traced code iterate in CPython's own order, whatever was done to them; as keys, objects that are hashed
by identity are distinguished, but not pinned."""
import enum

import pytest
import torch

import framejit
from check import check

WORDS = ["b", "a", "dddd", "cc", "zz", "epsilon", "q", "w", "x1", "y22"]


def fold(x, items):
    """Depends on the order of the items."""
    for item in items:
        x = x * 1.5 + (len(item) if isinstance(item, str) else item)
    return x


def literal(x, words):
    return fold(x, {33, 1, 100, 17, 5})


def added(x, words):
    seen = set()
    for word in words:
        seen.add(word)
    return fold(x, seen), list(seen), tuple(seen), {word: 1 for word in seen}


def from_sets_and_dicts(x, words):
    one = set(words)
    return fold(x, set(one)), fold(x, one.copy()), fold(x, set({w: 1 for w in words})), list(frozenset(one))


def operators(x, words):
    one, two = set(words[:7]), set(words[4:]) | {"another"}
    return [fold(x, made) for made in (one | two, one & two, one - two, one ^ two)], list(one | two)


def methods(x, words):
    one, two = set(words[:7]), words[4:] + ["more"]
    made = [one.union(two, {"u"}), one.intersection(two), one.difference(two), one.symmetric_difference(two)]
    return [fold(x, m) for m in made]


def in_place(x, words):
    out = []
    for number in range(4):
        one, two = set(words[:7]), set(words[4:]) | {str(n) for n in range(20)}
        if number == 0:
            one |= two
        elif number == 1:
            one.update(words[5:], two)
        elif number == 2:
            one -= two
        else:
            one.intersection_update(words[2:6])
        out.append(fold(x, one))
    return out


def removed(x, words):
    one = set(words) | {str(n) for n in range(30)}
    for number in range(25):
        one.discard(str(number))
    one.remove("cc")
    before = fold(x, one)
    one.add("new")
    one.add("0")
    after = fold(x, one)
    one.clear()
    one.add("b")
    one.add("a")
    return before, after, fold(x, one)


NAMES, LETTERS = {"constant", "reflect", "replicate", "circular"}, frozenset("abcdef")


def texts(x, words):
    made = {33, 1, 100, 5}
    made.add(17)
    assert words[0] not in NAMES, f"one of {NAMES}"
    return x + len(f"{NAMES}"), str(NAMES), f"{made}", repr(LETTERS), str([set(words), frozenset(words[:3])])


@pytest.mark.parametrize("function", [literal, added, from_sets_and_dicts, operators, methods, in_place, removed,
                                      texts], ids=lambda f: f.__name__)
def test_order(function):
    check(function, torch.randn(3), list(WORDS), breaks=0)
    check(function, torch.randn(3), list(reversed(WORDS)), breaks=0)


def test_order_of_a_set_that_was_given():
    @framejit.compile
    def f(x, words):
        return fold(x, words)

    one, two = set(), set()
    for word in (8, 0, 16, 24):
        one.add(word)
    for word in (24, 16, 0, 8):
        two.add(word)
    assert one == two and list(one) != list(two)
    x = torch.randn(3)
    for given in (one, two, one, frozenset(one)):
        assert torch.equal(f(x, given), fold(x, given))


def test_the_text_of_a_set_that_was_given():
    @framejit.compile(fullgraph=True)
    def f(x, words):
        return x + 1, f"{words}"

    x = torch.randn(3)
    for given in (numbers(8, 0, 16, 24), numbers(24, 16, 0, 8), numbers(8, 0, 16, 24), {1}, set(),
                  frozenset(numbers(24, 8))):
        assert f(x, given)[1] == f"{given}"


def test_a_set_that_leaves_the_trace():
    def f(x, words):
        made = set(words) - {"cc"}
        made.add("late")
        return x + 1, list(made), made

    x = torch.randn(3)
    plain, compiled = f(x, WORDS), framejit.compile(f)(x, WORDS)
    assert compiled[1] == plain[1] and list(compiled[2]) == list(plain[2])


def numbers(*items):
    made = set()
    for item in items:
        made.add(item)
    return made


def by_operators(given, words):
    one, two = set(words), set(words[4:]) | {"another"}
    return one - {"cc"}, one | two, one & two, one ^ two, {w for w in one if w != "q"}, frozenset(one) | two, one ^ one


def by_methods(given, words):
    one, two = set(words), set(words)
    one.update([str(n) for n in range(40)], {"zz": 1})
    for n in range(38):
        one.discard(str(n))
    two.difference_update(words[:9])
    two.add("late")
    return one, two, one.copy(), set(one), one.union(two)


def written_ones(given, words):
    given.update(words)
    given -= {24, "a"}
    given |= set(words[:3])
    given.discard(8)
    return given - {"w"}, given | {1}, given.copy(), given & given


def unwritten(given, words):
    return given & given, given - {words[0]}, given | given, given | set(words)


def emptied(given, words):
    given.clear()
    given.update(words[2:])
    return (given,)


def initialised(given, words):
    given.__init__(words)
    return (given,)


def popped(given, words):
    first = given.pop()
    one = set(words)
    return given, {first, one.pop(), one.pop()}, one


def of_views(given, words):
    counts, more = dict.fromkeys(words), {"q": 1, "n": 2, "b": 3}
    kept = given
    kept |= more.keys()
    return counts.keys() & more.keys(), counts.keys() - more.keys(), given | counts.keys(), counts.keys() ^ given, \
        kept, given


def later(made):
    """A set's future depends on its table: the order after the same changes, and what pop returns."""
    out = [list(made)]
    if isinstance(made, set):
        made.update(("n", k) for k in range(3))
        out += [list(made), made.pop(), made.pop(), list(made)]
    return out


LEAVE = [by_operators, by_methods, written_ones, unwritten, emptied, initialised, popped, of_views]


@pytest.mark.parametrize("function", LEAVE, ids=lambda f: f.__name__)
def test_sets_that_leave_the_trace_are_those_of_plain_python(function):
    compiled = framejit.compile(lambda x, given, words: (x + 1, function(given, words)))
    x = torch.randn(3)
    for start in ((8, 0, 16, 24), (24, 16, 0, 8), (8, 0, 16, 24), tuple(range(40))):
        given, ours = numbers(*start), numbers(*start)
        want, got = function(given, WORDS), compiled(x, ours, WORDS)[1]
        assert [later(made) for made in got] == [later(made) for made in want], function.__name__
        assert later(ours) == later(given)
    assert framejit.stats()["graph_breaks"] == 0


def test_equal_sets_with_other_tables_are_told_apart():
    small, large = numbers("a", "b"), numbers("a", "b")
    large.update(str(n) for n in range(100))
    for n in range(100):
        large.discard(str(n))
    assert small == large

    def f(x, given):
        given.add("c")
        return x + 1, given | {"d", "e"}

    compiled = framejit.compile(f)
    for made in (small, large, small):
        given, ours = made.copy() if made is small else made, made.copy() if made is small else set(made)
        want, got = f(torch.ones(2), given), compiled(torch.ones(2), ours)
        assert sorted(got[1]) == sorted(want[1])
        if made is small:
            assert later(got[1]) == later(want[1]) and later(ours) == later(given)
    assert framejit.stats()["graphs"] in (1, 2), "one if the hashes of this process give both sets the same order"


class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.act = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.ReLU()

    def forward(self, x):
        for part in self.children():
            x = part(x)
        return x + sum(1 for part in self.modules() if isinstance(part, torch.nn.Linear))


class Shared(Parts):
    def __init__(self):
        super().__init__()
        self.second = self.first


def test_modules_in_a_set_are_told_apart_not_pinned():
    x = torch.randn(3, 2)
    with torch.no_grad():
        models = [Parts().eval() for _ in range(5)]
        for model in models:
            assert torch.equal(framejit.compile(model)(x), model(x))
        assert framejit.stats()["graphs"] == 1
        # One module in two places is another program: children() returns it only once.
        models[0].second = models[0].first
        for model in (models[0], Shared().eval(), models[1]):
            assert torch.equal(framejit.compile(model)(x), model(x))


def test_objects_as_keys_of_a_real_dict():
    class Key:
        pass

    one, two = Key(), Key()
    table = {one: 2.0}

    @framejit.compile
    def f(x, key):
        return x * table.get(key, 5.0)

    x = torch.randn(3)
    for key in (one, two, one, Key()):
        assert torch.equal(f(x, key), x * table.get(key, 5.0))


def test_a_loop_over_a_set_of_modules_is_a_break():
    def f(x, parts):
        for part in set(parts):
            x = x + part.weight.sum()
        return x

    parts = [torch.nn.Linear(2, 2) for _ in range(3)]
    with torch.no_grad():
        x = torch.randn(2)
        torch.testing.assert_close(framejit.compile(f)(x, parts), f(x, parts))
    assert framejit.stats()["break_reasons"] == {"set_order": 1}


class Kind(enum.Enum):
    A, B, C = 1, 2, 3


class Name(str, enum.Enum):
    A = "a"


def test_a_set_of_the_program_that_holds_dtypes_devices_and_enum_members():
    halves, devices, kinds, names = {torch.float16, torch.bfloat16}, {torch.device("cpu")}, {Kind.A}, {Name.A}
    frozen = frozenset({Kind.B, torch.float32})

    def f(x, kind):
        found = (x.dtype in halves, x.device in devices, kind in kinds, kind in frozen, "a" in names, Name.A in names)
        return x * sum(found), found, len(kinds), Kind.C in kinds | {Kind.C}, kinds == {Kind.A}, kinds - {Kind.A}

    compiled = framejit.compile(f)

    def compare():
        for x, kind in ((torch.ones(2), Kind.A), (torch.ones(2), Kind.B), (torch.ones(2).half(), Kind.A)):
            want, got = f(x, kind), compiled(x, kind)
            assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    for change in (lambda: kinds.add(Kind.B), lambda: (halves.discard(torch.float16), halves.add(torch.float32)),
                   names.clear, devices.clear):
        framejit.reset()
        compare()
        change()
        compare()
    assert framejit.stats()["graph_breaks"] == 0 and framejit.stats()["fallbacks"] == 0


def test_a_set_of_dtypes_that_traced_code_writes():
    seen = set()

    @framejit.compile
    def f(x):
        seen.add(x.dtype)
        return x + len(seen)

    dtypes = torch.float32, torch.float16, torch.float32
    assert [f(torch.ones(1, dtype=dtype)).item() for dtype in dtypes] == [2, 3, 3]
    assert seen == {torch.float32, torch.float16} and framejit.stats()["graph_breaks"] == 0


class Loose(enum.Enum):
    A, B = 1, 2

    def __eq__(self, other):
        return isinstance(other, Loose)

    def __hash__(self):
        return 1


@pytest.mark.breaks(unsupported_key=2)
def test_enum_members_with_an_equality_of_the_program():
    held, table = {Loose.A}, {Loose.A: 2.0}
    of_set = framejit.compile(lambda x, key: (x + 1) * (key in held))
    of_dict = framejit.compile(lambda x, key: (x + 1) * table.get(key, 5.0))
    for key in Loose:
        assert of_set(torch.ones(1), key) == 2 and of_dict(torch.ones(1), key) == 4
