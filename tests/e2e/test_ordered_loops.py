"""Ops whose points have an order, as kernels of our own: running results along a dimension, stores at indices from
data."""
import pytest
import torch

from check import check, fresh, threads  # noqa: F401
from test_own_kernels import steps_of

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
HALVES = (torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SPECIAL = [0.0, -0.0, 1.5, 1.5, float("inf"), 2.0, float("-inf"), 3.0, float("nan"), 4.0, float("nan"), -5.0]


def make(dtype, *size, seed=0):
    x = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return (x * 3).to(dtype) if dtype.is_floating_point else (x * 40).to(torch.int64).to(dtype)


def own(fn, *args):
    """Asserts that the result is eager's, without an extern call."""
    check(fn, *args)
    kernels, extern = steps_of(fn, *args)
    assert kernels and not extern, (kernels, extern)


SCANS = {
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: (x.abs().clamp(0, 1) if x.is_floating_point() else x).cumprod(d),
    "cummax": lambda x, d: tuple(x.cummax(d)),
    "cummin": lambda x, d: tuple(x.cummin(d)),
}


class TestScans:
    @pytest.mark.parametrize("dtype", FLOATS + INTEGERS + (torch.bool,), ids=str)
    @pytest.mark.parametrize("name", SCANS)
    def test_dtypes(self, name, dtype):
        x = make(dtype, 5, 21, 3)
        for dim in (0, 1, 2, -1):
            own(SCANS[name], x, dim)

    @pytest.mark.parametrize("name", SCANS)
    @pytest.mark.parametrize("size", [(), (1,), (0,), (3, 0), (0, 3), (1, 1), (130,), (2, 67), (67, 2), (2, 3, 4, 5)],
                             ids=str)
    def test_sizes(self, name, size):
        for dim in {0, -1, len(size) // 2}:
            own(SCANS[name], make(torch.float32, *size), dim)

    @pytest.mark.parametrize("name", SCANS)
    @pytest.mark.parametrize("layout",
                             [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[:, :1].expand(-1,
                                 9), lambda x: x.flip(1)], ids=["transposed", "stepped", "expanded", "flipped"])
    def test_layouts(self, name, layout):
        for dim in (0, 1):
            check(lambda x, d: SCANS[name](layout(x), d), make(torch.float32, 19, 40), dim)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("name", SCANS)
    def test_special_values(self, name, dtype):
        x = torch.tensor(SPECIAL, dtype=dtype)
        own(SCANS[name], x, 0)
        own(SCANS[name], x[:, None].repeat(1, 20), 0)
        own(SCANS[name], x.flip(0), 0)

    @pytest.mark.parametrize("name", SCANS)
    def test_ties(self, name):
        for dtype in (torch.int64, torch.float32, torch.bool):
            own(SCANS[name], (make(torch.float32, 6, 50) > 0).to(dtype), 1)

    @pytest.mark.parametrize("given", FLOATS + (torch.int64, torch.uint8, torch.bool), ids=str)
    @pytest.mark.parametrize("wanted", FLOATS + INTEGERS, ids=str)
    def test_results_of_another_dtype(self, given, wanted):
        x = make(given, 4, 9) % 3 if given == torch.bool else make(given, 4, 9).abs().clamp(max=3)
        own(lambda x: (x.cumsum(1, dtype=wanted), x.cumprod(0, dtype=wanted)), x)

    def test_integers_wrap(self):
        own(lambda x: (x.cumsum(0), x.cumprod(0), x.cumsum(0, dtype=torch.int8)), torch.full((40,), 2**60 + 3))

    def test_threads_change_nothing(self):
        x = make(torch.float32, 300, 700)
        results = []
        for count in (1, 2):
            with threads(count):
                results.append([SCANS[name](x, d) for name in SCANS for d in (0, 1)])
                own(lambda x: (x.cumsum(0), x.cumsum(1), x.t().cumprod(0)), x)

    @pytest.mark.parametrize("dim", [0, 1])
    def test_among_others(self, dim):
        """Cheap work is fused, costly work stays separate, and the results are read by later nests."""
        x = make(torch.float32, 37, 50)
        own(lambda x: (x * 2 + 1).cumsum(dim) - x, x)
        own(lambda x: x.softmax(dim).cumsum(dim) <= 0.9, x)
        own(lambda x: (x.exp().cumsum(dim) / x.exp().sum(dim, keepdim=True), x.sum(dim), x.cummax(dim).indices), x)
        own(lambda x: x.cumsum(dim).cumsum(1 - dim).sum(), x)

    def test_idioms(self):
        mask = (make(torch.float32, 3, 17) > 0).long()
        own(lambda m: (m.cumsum(-1) - 1).masked_fill(m == 0, 1), mask)
        own(lambda m: (m.cumsum(1).type_as(m) * m).long() + 1, mask.int())
        own(lambda x: (x >= 0).cumsum(-1).argmax(-1), make(torch.float32, 4, 30))

    def test_errors(self):
        check(lambda x: x.cumsum(2), make(torch.float32, 3, 4))
        check(lambda x: x.cumsum(0, dtype=torch.bool), make(torch.float32, 3))

    def test_in_place(self):
        check(lambda x: (x.cumsum_(0), x.cumprod_(1)), make(torch.float32, 5, 6))

    def test_sizes_that_vary(self):
        def run(x):
            return x.cumsum(0), x.cummax(1)

        for rows, columns in ((4, 5), (7, 5), (7, 40), (1, 1)):
            check(run, make(torch.float32, rows, columns))


def rows(*values):
    return torch.tensor(values)


NONE = torch.zeros(0, dtype=torch.int64)
MANY = rows(3, 0, 3, 2, 3, 0, 6)  # with duplicates
PLACES = torch.randint(0, 5, (7, 9), generator=torch.Generator().manual_seed(1))
STORES = {
    "scatter": lambda x, y: (x.scatter(0, PLACES, y[:7, :9]), x.scatter(1, PLACES[:5], y),
                             x.scatter(0, PLACES[:2, :3], y)),
    "scatter a number": lambda x, y: (x.scatter(0, PLACES, 2), x.scatter(-1, PLACES[:5, :2], 1)),
    "scatter_add": lambda x, y: (x.scatter_add(0, PLACES, y), x.scatter_add(1, PLACES[:6], y),
                                 x.scatter_add(0, MANY[:, None].expand(7, 9), y),
                                 x[:, 0].scatter_add(0, MANY, y[:7, 1])),
    "scatter_reduce": lambda x, y: [x.scatter_reduce(d, PLACES[:6], y.sign() if o == "prod" else y, o) for d in (0, 1)
                                    for o in ("sum", "prod", "amax", "amin")],
    "scatter_reduce without self": lambda x, y: [x.scatter_reduce(0, PLACES, y.sign() if o == "prod" else y, o,
                                                                  include_self=False) for o in ("sum", "prod")],
    "index_add": lambda x, y: (x.index_add(0, MANY, y[:7, :9]), x.index_add(1, MANY, y[:7, :7]),
                               x[:, 2].index_add(0, MANY, y[:7, 2]), x.index_add(0, MANY.int(), y[:7])),
    "index_copy": lambda x, y: (x.index_copy(0, MANY, y[:7, :9]), x.index_copy(-1, MANY, y[:7, :7]),
                                x[:, 2].index_copy(0, MANY, y[:7, 2])),
    "index_fill": lambda x, y: (x.index_fill(0, rows(-1, 2, -7), 1), x.index_fill(1, MANY, y[0, 0]),
                                x.index_fill(1, NONE, 3)),
    "index_put": lambda x, y: (x.index_put((MANY,), y[:7]), x.index_put((MANY,), y[0, 0]),
                               torch.ops.aten.index_put(x, [None, MANY], y[:7, :7]),
                               x.index_put((MANY, MANY), y[0, :7]), x.index_put((rows(-1, -7),), y[:2]),
                               x.index_put((PLACES, MANY[:1]), y), x.index_put((rows(1)[0],), y[3])),
    "index_put adds": lambda x, y: (x.index_put((MANY,), y[:7], accumulate=True),
                                    x.index_put((MANY, -MANY), y[0, :7], accumulate=True),
                                    x.index_put((PLACES,), y[0], accumulate=True)),
    "assignments": lambda x, y: assigned(x, y),
    "embedding backward": lambda x, y: (torch.ops.aten.embedding_dense_backward(y[:7], MANY, 7, 3, False),
                                        torch.ops.aten.embedding_dense_backward(y[:7], MANY, 5, -1, False),
                                        torch.ops.aten.embedding_dense_backward(y[None, :7], MANY[None], 9, -1, False)),
    "backward of parts": lambda x, y: (torch.ops.aten.select_backward(y[0], [4, 9], 0, -1),
                                       torch.ops.aten.slice_backward(y[:2], [7, 9], 0, 1, 5, 2),
                                       torch.ops.aten.slice_backward(y[:, :3], [7, 9], 1, -3, 99, 1)),
}


def assigned(x, y):
    x = x.clone()
    x[MANY] = y[:7]
    x[:, MANY] += 1
    x[MANY, 2] = 0
    return x


def source(dtype, seed):
    return make(dtype, 7, 9, seed=seed)


# On a GPU, which of several values an element gets is chance.
OF_MANY = {name: pytest.param(name, marks=pytest.mark.cpu_only("it sets one element to several values"))
           for name in ("index_put", "assignments")}
NAMES = [OF_MANY.get(name, name) for name in STORES]


class TestStores:
    @pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
    @pytest.mark.parametrize("name", NAMES)
    def test_dtypes(self, name, dtype):
        own(STORES[name], source(dtype, 0), source(dtype, 1)) if dtype not in HALVES else check(STORES[name],
            source(dtype, 0), source(dtype, 1))

    @pytest.mark.parametrize("name", ["scatter", "scatter a number", "index_copy", "index_fill", OF_MANY["index_put"]])
    def test_bools(self, name):
        own(STORES[name], source(torch.float32, 0) > 0, source(torch.float32, 1) > 0)

    @pytest.mark.parametrize("name", NAMES)
    def test_layouts(self, name):
        x, y = source(torch.float32, 0), source(torch.float32, 1)
        for layout in (lambda t: t.t().contiguous().t(), lambda t: torch.stack((t, t), -1)[..., 0], lambda t: t[:,
            :1].expand(-1, 9)):
            check(STORES[name], layout(x), layout(y))
        check(STORES[name], x, x)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("name", NAMES)
    def test_special_values(self, name, dtype):
        special = torch.tensor((SPECIAL * 6)[:63], dtype=dtype).view(7, 9)
        check(STORES[name], source(dtype, 0), special)
        check(STORES[name], special, special.flip(0))

    @pytest.mark.parametrize("name", NAMES)
    def test_threads_change_nothing(self, name):
        for count in (1, 2):
            with threads(count):
                own(STORES[name], source(torch.float32, 0), source(torch.float32, 1))

    def test_large(self):
        """Enough columns for all threads, and many writes to one row."""
        where = torch.randint(0, 50, (400,), generator=torch.Generator().manual_seed(3))
        # eager's threads race for an element that is set twice
        x, y, once = make(torch.float32, 50, 700), make(torch.float32, 400, 700, seed=1), torch.arange(50).flip(0)
        for count in (1, 2):
            with threads(count):
                own(lambda x, y: (x.index_add(0, where, y), x.index_copy(0, once, y[:50]),
                                  x.scatter(0, where[:, None].expand_as(y), y),
                                  torch.ops.aten.embedding_dense_backward(y, where, 60, 4, False)), x, y)

    @pytest.mark.parametrize("size", [(0, 9), (7, 0)], ids=str)
    def test_nothing_to_write(self, size):
        x, none = make(torch.float32, *size), NONE
        check(lambda x: (x.index_add(0, none, x[:0]), x.index_copy(0, none, x[:0]), x.index_fill(1, none, 2),
                         x.scatter(0, none[:, None], 1.0), x.index_put((none,), x[:0])), x)

    def test_numbers(self):
        at = torch.tensor(0)
        check(lambda x: (x.scatter(0, at, 2.0), x.scatter_add(0, at, x), x.scatter(0, at, x + 1)), torch.tensor(1.5))

    @pytest.mark.parametrize("dtype", HALVES, ids=str)
    def test_halves_are_added_up_in_float32(self, dtype):
        x, y, where = make(dtype, 3, 20), make(dtype, 90, 20, seed=1), torch.arange(90) % 3
        own(lambda x, y: (x.index_add(0, where, y), x.scatter_add(0, where[:, None].expand_as(y), y),
                          x.scatter_reduce(0, where[:, None].repeat(1, 20), y, "sum")), x, y)
        own(lambda x, y: (x.index_put((where,), y, accumulate=True),
                          torch.ops.aten.embedding_dense_backward(y, where, 3, -1, False)), x, y)

    def test_one_index_for_many(self):
        """Every element of an expanded index is a separate write."""
        own(lambda x: (x.scatter_add(0, torch.tensor([2]).expand(6), x),
                       x.index_put((torch.tensor([1]).expand(5),), torch.ones(()), accumulate=True)),
            make(torch.float32, 6))

    def test_what_is_written_is_read_and_written_again(self):
        def run(x, y):
            a = (x * 2).index_add(0, MANY, y)
            b = a.index_copy(0, MANY[:3], a[1:4])
            b[MANY] = b[0] * 2
            return a + 1, b.scatter_add(1, PLACES, a), b.cumsum(0)

        own(run, source(torch.float32, 0), source(torch.float32, 1))

    def test_arguments_that_are_written(self):
        def run(x, y):
            x.index_add_(0, MANY, y)
            x[MANY] = y
            return x.scatter_(0, PLACES, 1.0), y.index_put_((MANY,), x, accumulate=True)

        check(run, source(torch.float32, 0), source(torch.float32, 1))

    @pytest.mark.cpu_only("an index that is out of range ends the process")
    @pytest.mark.parametrize("place", [-1, -7, -8, 7, 100])
    @pytest.mark.parametrize("name", ["scatter", "scatter_add", "index_add", "index_copy", "index_fill", "index_put",
                                      "embedding"])
    def test_places_outside(self, name, place):
        """Eager's error, or eager's answer; no write is left that would have come before the error."""
        ops = {
            "scatter": lambda x, at: x.scatter_(0, at[:, None].expand(2, 9), 1.0),
            "scatter_add": lambda x, at: x.scatter_add_(0, at[:, None].expand(2, 9), x + 1),
            "index_add": lambda x, at: x.index_add_(0, at, x[:2] + 1),
            "index_copy": lambda x, at: x.index_copy_(0, at, x[:2] + 1),
            "index_fill": lambda x, at: x.index_fill_(0, at, 5.0),
            "index_put": lambda x, at: x.index_put_((at,), x[:2] + 1),
            "embedding": lambda x, at: torch.ops.aten.embedding_dense_backward(x[:2] + 1, at, 7, -1, False),
        }
        check(ops[name], source(torch.float32, 0), rows(1, place))

    def test_shapes_that_do_not_fit(self):
        x = source(torch.float32, 0)
        for fn in (lambda x: x.scatter(0, PLACES, x[:3]), lambda x: x.index_add(0, MANY,
            x[:3]), lambda x: x.index_copy(0, MANY, x[:, :3]), lambda x: x.index_put((MANY,), x[:3]),
                   lambda x: x.scatter(0, MANY, x), lambda x: x.scatter(0, PLACES, x.double())):
            check(fn, x)

    def test_idioms(self):
        def experts(scores):
            weights, chosen = scores.softmax(-1).topk(2)
            return torch.zeros_like(scores).scatter_add_(-1, chosen, weights), torch.zeros(scores.shape).scatter_(1,
                chosen, 1.0)

        def penalty(logits, seen):
            score = logits.gather(-1, seen)
            return logits.scatter(-1, seen, torch.where(score < 0, score * 1.2, score / 1.2))

        def cache(keys, at, new):
            keys.index_copy_(2, at, new)
            return keys.sum(), keys

        check(experts, make(torch.float32, 6, 8))
        own(penalty, make(torch.float32, 2, 50),
            torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(2)))
        check(cache, make(torch.float32, 1, 2, 16, 4), rows(5), make(torch.float32, 1, 2, 1, 4, seed=1))

    def test_sizes_that_vary(self):
        def run(x, at, y):
            return x.index_add(0, at, y), x.scatter(0, at[:, None].expand(-1, x.shape[1]), y), x.index_put((at,), y)

        for count, columns in ((4, 5), (7, 5), (3, 20), (9, 33)):
            check(run, make(torch.float32, 6, columns), torch.arange(count) % 6,
                  make(torch.float32, count, columns, seed=1))
