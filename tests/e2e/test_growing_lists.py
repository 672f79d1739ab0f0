"""Lists that outlive the call and only grow: appending does not depend on their contents."""
import pytest
import torch

import framejit
from check import backend, fresh, same  # noqa: F401

LOG = []


class Named(list):
    pass


class Keeper:
    def __init__(self, kind):
        self.history = kind()


def appended(x, keeper):
    keeper.history.append(x * 2)
    return x + 1


def extended(x, keeper):
    keeper.history.extend([x, 1])
    keeper.history += (x + 1,)
    keeper.history.append(None)
    return x + 1


def in_a_callee(x, keeper):
    for step in range(2):
        appended(x + step, keeper)
    return x


def across_a_break(x, keeper):
    keeper.history.append(x - 1)
    print(end="")
    keeper.history.append(x + 1)
    return x * 3


@pytest.mark.breaks(outside_effect={"across_a_break": 1})
@pytest.mark.parametrize("kind", [list, Named])
@pytest.mark.parametrize("program, graphs", [(appended, 1), (extended, 1), (in_a_callee, 1), (across_a_break, 2)])
def test_a_list_that_grows_compiles_once(program, graphs, kind, backend):
    ours, plain, x = Keeper(kind), Keeper(kind), torch.randn(3)
    compiled = framejit.compile(program, backend=backend)
    for _ in range(12):
        same((compiled(x, ours), ours.history), (program(x, plain), plain.history))
    assert framejit.stats()["graphs"] == graphs and not framejit.stats()["fallbacks"]


def test_a_list_of_the_module(backend):
    def f(x):
        LOG.append(x.shape)
        return x - 1
    compiled = framejit.compile(f, backend=backend)
    for _ in range(10):
        compiled(torch.ones(2))
    assert LOG == [torch.Size([2])] * 10 and framejit.stats()["graphs"] == 1
    LOG.clear()


def reads_behind(x, items):
    items.append(x)
    return x + len(items), items[-1], items[0]


def walks_behind(x, items):
    items.append(x)
    return sum(items)


def changes_behind(x, items):
    items.append(x)
    items.insert(0, 5)
    items.append(2)
    items.remove(7)
    return x * 1, items.pop(), items.index(5)


def extends_itself(x, items):
    items.append(x)
    items.extend(items)
    return x + 1


def repeats_itself(x, items):
    items.append(x)
    items *= 2
    return x + 1


@pytest.mark.parametrize("program", [reads_behind, walks_behind, changes_behind, extends_itself, repeats_itself])
def test_reads_behind_an_append_see_all(program, backend):
    x, compiled = torch.randn(3), framejit.compile(program, backend=backend)
    for given in ([7], [7, 8], [7], [8.5, 7, 1]):
        ours, plain = list(given), list(given)
        same((compiled(x, ours), ours), (program(x, plain), plain))


def test_two_names_of_one_list(backend):
    def f(x, a, b):
        a.append(1)
        b.append(x)
        a.append(3)
        return x + 1
    x, compiled = torch.randn(3), framejit.compile(f, backend=backend)
    for is_one in (False, True, False, True):
        ours, plain = [[], []], [[], []]
        if is_one:
            ours[1], plain[1] = ours[0], plain[0]
        same((compiled(x, *ours), ours), (f(x, *plain), plain))
        assert (ours[0] is ours[1]) == is_one


@pytest.mark.breaks(exception_raised=3)
def test_what_was_appended_before_an_error_stays(backend):
    def f(x, items):
        items.append(x + 1)
        if items:
            raise ValueError("told")
        return x
    x, compiled = torch.randn(3), framejit.compile(f, backend=backend)
    ours, plain = [], []
    for items, call in ((ours, compiled), (plain, f)) * 3:
        with pytest.raises(ValueError, match="told"):
            call(x, items)
    same(ours, plain)
