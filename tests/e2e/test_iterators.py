"""Breaks inside loops over CPython's own iterators: traced on both sides, and the real iterator ends where eager's
does."""
import pytest
import torch

import framejit
from check import check

x = torch.randn(4)


def sequence(items):
    total = torch.zeros(4)
    for v in items:
        print(end="")
        total = total + v
    return total


def enumerated(items):
    total = torch.zeros(4)
    for i, v in enumerate(items, 2):
        print(end="")
        total = total + v * i
    return total


def zipped(items):
    total = torch.zeros(4)
    for a, b, k in zip(items, list(items)[::-1], range(9, 0, -2)):
        print(end="")
        total = total + a * b + k
    return total


def mapped(items):
    total = torch.zeros(4)
    for v in map(lambda a, b: a * b, items, reversed(list(items))):
        print(end="")
        total = total + v
    return total


def filtered(items):
    total = torch.zeros(4)
    for v in filter(lambda a: a.shape[0] == 4, items):
        print(end="")
        total = total + v
    return total


@pytest.mark.parametrize("loop", [sequence, enumerated, zipped, mapped, filtered])
@pytest.mark.parametrize("kind", [list, tuple])
def test_only_the_print_breaks(loop, kind):
    breaks = 3 if loop in (enumerated, zipped) else 2
    stats = check(loop, kind(x + i for i in range(6)), calls=2, compiles=breaks + 1, breaks=breaks)
    assert set(stats["break_reasons"]) == {"outside_effect"}, stats["break_reasons"]


@pytest.mark.parametrize("view", ["values", "items", "keys"])
def test_views_of_dicts(view):
    def f(d):
        total = torch.zeros(4)
        for item in getattr(d, view)():
            print(end="")
            total = total + (item if view == "values" else item[1] if view == "items" else d[item])
        return total
    breaks = 5 if view == "keys" else 2  # each key is another constant
    stats = check(f, {f"k{i}": x + i for i in range(5)}, calls=2, compiles=breaks + 1, breaks=breaks)
    assert set(stats["break_reasons"]) == {"outside_effect"}


def test_ranges_sets_and_reversed():
    def f(x, n):
        total = torch.zeros(4)
        for i in range(n):
            print(end="")
            total = total + x * i
        for i in reversed([x, x + 1, x + 2]):
            print(end="")
            total = total * 2 + i
        for i in {3, 4}:
            print(end="")
            total = total + i
        return total
    stats = check(f, x, 5, calls=2, compiles=7, breaks=6)
    assert set(stats["break_reasons"]) == {"outside_effect"}


@pytest.mark.breaks(outside_effect=3)
def test_a_long_loop_compiles_once_per_shape_of_the_loop():
    framejit.reset()
    compiled = framejit.compile(enumerated)
    items = [torch.randn(4) for _ in range(40)]
    with torch.no_grad():
        assert torch.equal(compiled(items), enumerated(items))
    assert framejit.stats()["graphs"] == 4 and framejit.stats()["recompiles"] <= 3


@pytest.mark.breaks(outside_effect=5)
def test_an_iterator_that_lives_on():
    """Anyone else who holds the iterator finds it where eager would have left it."""
    def f(it, x):
        first = next(it)
        print(end="")
        x = x + next(it)
        for v in it:
            x = x + v
            if v > first + 2:
                break
        return x, first

    made = [lambda: iter([1, 2, 3, 4, 5, 6, 7]), lambda: iter((1, 2, 3, 4, 5, 6, 7)), lambda: iter(
        range(1, 9)), lambda: iter({1: 1, 2: 2, 3: 3, 4: 4, 5: 5}.values()),
            lambda: map(abs, [1, 2, 3, 4, 5, 6])]
    for make in made:
        framejit.reset()
        compiled = framejit.compile(f)
        with torch.no_grad():
            for _ in range(3):
                ours, plain = make(), make()
                (got, a), (want, b) = compiled(ours, x), f(plain, x)
                assert torch.equal(got, want) and a == b
                assert list(ours) == list(plain)


def test_enumerate_and_zip_that_live_on():
    def f(pairs, numbered, x):
        for (a, b), (i, c) in zip(pairs, numbered):
            x = x + a * b + i * c
            if i == 2:
                break
        return x
    framejit.reset()
    compiled = framejit.compile(f)
    with torch.no_grad():
        for _ in range(3):
            make = lambda: (zip([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]), enumerate([3, 4, 5, 6, 7]))
            ours, plain = make(), make()
            assert torch.equal(compiled(*ours, x), f(*plain, x))
            assert list(ours[0]) == list(plain[0]) and list(ours[1]) == list(plain[1])
    assert framejit.stats()["graph_breaks"] == 0


@pytest.mark.breaks(exception_raised=1)
def test_lengths_of_zip_and_strictness_are_guarded():
    def f(it, x):
        for parts in it:
            x = x + sum(parts)
        return x
    framejit.reset()
    compiled = framejit.compile(f)
    with torch.no_grad():
        for make in (lambda: zip([1, 2]), lambda: zip([1, 2], [3, 4]), lambda: zip([1, 2], [3],
            strict=False), lambda: zip([1, 2], [3, 4], strict=True)):
            assert torch.equal(compiled(make(), x), f(make(), x))
        for _ in range(2):
            with pytest.raises(ValueError, match="shorter"):
                compiled(zip([1, 2], [3], strict=True), x)


def test_the_container_changes_under_the_iterator():
    def values(d, x):
        for k in d:
            print(end="")
            d[k] = d[k] + x
        return sum(d.values())
    check(values, {"a": x, "b": x + 1, "c": x + 2}, x, compiles=4, breaks=5)

    def grows(items, x):
        total = x
        for v in items:
            print(end="")
            if len(items) < 6:
                items.append(v + 1)
            total = total + v
        return total
    check(grows, [x, x + 1], x, compiles=6, breaks=8)

    def resized(d, x):
        for k in d:
            print(end="")
            d[k + "'"] = x
        return x
    check(resized, {"a": x}, x, compiles=0, breaks=2)

    def attributes(m, x):
        for k, v in vars(m).items():
            print(end="")
            m.a = x
            x = x + v
        return x
    holder = type("Holder", (), {})()
    holder.a, holder.b = 1, 2
    check(attributes, holder, x, compiles=2, breaks=4)


def test_generator_arguments_behind_a_break():
    def f(x):
        def g(a, b, *rest, k=2, **more):
            for i in rest:
                yield a * k + b * i + sum(more.values())
        it = g(x, 1, 2, 3, k=3, z=4, y=5)
        print(end="")
        for v in it:
            x = x + v
        return x
    check(f, x, breaks=4)


class TestExchangedKeys:
    """A key is removed and another added while the container is iterated: the next item depends on the table."""

    def test_of_a_dict(self):
        def f(x, d):
            seen = []
            try:
                for k in d:
                    seen.append(k)
                    if k == "a":
                        del d["a"]
                        d["a"] = 1
                    if len(seen) > 6:
                        break
            except RuntimeError as e:
                seen.append(str(e))
            return x + len(seen), seen
        check(f, torch.ones(2), {"a": 1, "b": 2, "c": 3}, breaks=4)
        check(lambda x: f(x, {"a": 1, "b": 2, "c": 3}), torch.ones(2), compiles=0, breaks=1)

    def test_of_a_dict_at_its_end(self):
        def f(x, d):
            seen = []
            for k in d:
                seen.append(k)
                if k == "c":
                    del d["b"]
                    d["z"] = 1
                    x = x + 1
            return x, seen
        with pytest.raises(RuntimeError, match="keys changed"):
            f(torch.ones(2), {"a": 1, "b": 2, "c": 3})
        check(f, torch.ones(2), {"a": 1, "b": 2, "c": 3}, breaks=2)

    def test_of_a_set(self):
        def f(x, s):
            seen = []
            for k in s:
                seen.append(k)
                if len(seen) == 1:
                    s.discard(5)
                    s.add(6)
                if len(seen) > 8:
                    break
            return x + len(seen), seen
        check(f, torch.ones(2), {4, 5}, breaks=2)


def over_sizes(x):
    y = x * 2
    for i, size in enumerate(y.size()):
        print(end="")
        y = y + i * size
    return y


def over_reversed_sizes(x):
    y = x * 2
    for size in reversed(y.size()):
        print(end="")
        y = y + size
    return y


@pytest.mark.parametrize("loop", [over_sizes, over_reversed_sizes])
def test_the_size_of_a_tensor_that_the_trace_made(loop):
    stats = check(loop, torch.randn(3, 4), calls=2, compiles=3, breaks=2)
    assert set(stats["break_reasons"]) == {"outside_effect"}
