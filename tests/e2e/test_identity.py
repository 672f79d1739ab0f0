"""`is`, id() and identity keys: which objects are the same is a fact of the call, whatever else is known about them."""
import pytest
import torch

import framejit
from check import backend, check, fresh, same  # noqa: F401  (fixtures)

TEXT, SAME_TEXT = "abc def", "".join(["abc", " def"])
LARGE, SAME_LARGE = 10**6, int("1000000")
FLOAT, SAME_FLOAT = 1.5, float("1.5")
PAIR, SAME_PAIR = (1, TEXT), tuple([1, SAME_TEXT])


def once_compared(x, a, b):
    if a == b:
        x = x + 10
    return x + 1 if a is b else x - 1


def never_compared(x, a, b):
    return x + 1 if a is b else x - 1


def formatted(x, a, b):
    x = x + len(f"{a}{b}")
    return x + 1 if a is b else x - 1


def in_containers(x, a, b):
    table = {"k": a}
    x = x + (1 if table["k"] == b else 2)
    return x + 1 if any(value is b for value in [table["k"]]) else x - 1


def by_id(x, a, b):
    if a == b:
        x = x + 1
    return x + 1 if id(a) == id(b) else x - 1


@pytest.mark.parametrize("twins", [(TEXT, SAME_TEXT), (LARGE, SAME_LARGE), (FLOAT, SAME_FLOAT), (PAIR, SAME_PAIR)],
                         ids=["str", "int", "float", "tuple"])
@pytest.mark.parametrize("fn", [once_compared, never_compared, formatted, in_containers, by_id])
def test_equal_objects_are_not_the_same_object(fn, twins, backend):
    one, other = twins
    x = torch.zeros(2)
    for order in (((one, other), (one, one)), ((one, one), (one, other))):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for pair in order * 2:
            assert torch.equal(compiled(x, *pair), fn(x, *pair)), (fn.__name__, pair[0] is pair[1])
        assert framejit.stats()["fallbacks"] == 0


def blend(q, kv):
    s = (q * kv).sum()
    return s / 2 if q is kv else s


def as_key(q, kv):
    known = {q: 1}
    return q * 2 if kv in known else q + kv


def in_a_set(q, kv):
    return (q + kv) * len({q, kv, q})


@pytest.mark.parametrize("fn", [blend, as_key, in_a_set])
def test_tensors(fn, backend):
    a, b = torch.ones(3), torch.full((3,), 2.0)
    with torch.no_grad():
        for order in (((a, b), (a, a)), ((a, a), (a, b))):
            framejit.reset()
            compiled = framejit.compile(fn, backend=backend)
            for pair in order + ((b, a), (b, b)):
                assert torch.equal(compiled(*pair), fn(*pair)), (fn.__name__, pair[0] is pair[1])
            assert framejit.stats()["graphs"] == 2, framejit.stats()


def test_attention_of_a_query_with_itself_and_with_another():
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    a, b = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    compiled = framejit.compile(lambda q, k, v: layer(q, k, v, need_weights=False)[0])
    with torch.no_grad():
        for q, k, v in ((a, b, b), (a, a, a), (a, b, a), (b, b, b)):
            torch.testing.assert_close(compiled(q, k, v), layer(q, k, v, need_weights=False)[0])


def test_a_real_dict_by_tensors(backend):
    a, b = torch.ones(2), torch.zeros(2)

    def f(x, d, k):
        return x + 1, d.get(k), x is k
    compiled = framejit.compile(f, backend=backend)
    with torch.no_grad():
        for x, d, k in ((a, {b: 1}, b), (b, {a: 1, b: 2}, a), (a, {a: 3}, a), (b, {a: 3}, b)):
            same(compiled(x, d, k), f(x, d, k))


def test_not_a_number_is_itself_alone(backend):
    n, m = float("nan"), float("nan")
    for fn in (lambda x, l, k: (x + 1, l.get(k)), lambda x, l, k: (x + 1, k in l)):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for held, asked in ((n, m), (n, n), (m, n), (m, m)):
            same(compiled(torch.ones(2), {held: 1}, asked), fn(torch.ones(2), {held: 1}, asked))


@pytest.mark.breaks(unknown_attribute=3)
def test_base_of_an_input():
    """The base of an input is a fact of the input: a guard requires that the input is not a view, and a view is a graph
    break."""
    def f(x):
        return (x + 1 if x._base is None else x + 2), x._is_view()
    whole = torch.arange(6.0).reshape(2, 3).clone()
    compiled = framejit.compile(f)
    for x in (whole, whole[1], whole.clone(), whole[:1]):
        got, want = compiled(x), f(x)
        assert torch.equal(got[0], want[0]) and got[1] is want[1]
    assert framejit.stats()["graphs"] == 4


def test_views_of_the_trace_know_that_they_are_views():
    def f(x):
        y = x.clone()
        return y + 1, y._is_view(), x[0]._is_view(), y[0].detach()._is_view()
    check(f, torch.ones(2, 3), breaks=0)


def test_a_size_that_varies_and_one_that_does_not():
    """Small ints are one object, whichever of them is a symbol."""
    def f(x, number):
        n, m = x.shape
        return x + 1, n is m, n is 300 - 297, number is n, n is None  # noqa: F632

    compiled = framejit.compile(f)
    for shape, number in (((2, 3), 5), ((3, 3), 3), ((4, 5), 4), ((300, 300), 300), ((7, 7), 8), ((6, 5), 5)):
        x = torch.ones(shape)
        same(compiled(x, number), f(x, number))
    stats = framejit.stats()
    assert (stats["graphs"], stats["break_reasons"], stats["fallbacks"]) == (3, {"memory_address": 2}, 0), stats
