"""Sets made in traced code give their items in the order of CPython's own, whatever was done to them; as keys, objects that are hashed
by identity are told apart, not pinned."""
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


@pytest.mark.parametrize("function", [literal, added, from_sets_and_dicts, operators, methods, in_place, removed], ids=lambda f: f.__name__)
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


def test_a_set_that_leaves_the_trace():
    def f(x, words):
        made = set(words) - {"cc"}
        made.add("late")
        return x + 1, list(made), made

    x = torch.randn(3)
    plain, compiled = f(x, WORDS), framejit.compile(f)(x, WORDS)
    assert compiled[1] == plain[1] and list(compiled[2]) == list(plain[2])


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
        # One module in two places is another program: children() gives it once.
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
    assert framejit.stats()["graph_breaks"] >= 1
