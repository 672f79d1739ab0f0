"""Ops whose points have an order, as kernels of our own: running results along a dimension."""
import pytest
import torch

from check import check, fresh, threads  # noqa: F401
from test_own_kernels import steps_of

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SPECIAL = [0.0, -0.0, 1.5, 1.5, float("inf"), 2.0, float("-inf"), 3.0, float("nan"), 4.0, float("nan"), -5.0]


def make(dtype, *size, seed=0):
    x = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return (x * 3).to(dtype) if dtype.is_floating_point else (x * 40).to(torch.int64).to(dtype)


def own(fn, *args):
    """As eager, and without an extern call."""
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
    @pytest.mark.parametrize("size", [(), (1,), (0,), (3, 0), (0, 3), (1, 1), (130,), (2, 67), (67, 2), (2, 3, 4, 5)], ids=str)
    def test_sizes(self, name, size):
        for dim in {0, -1, len(size) // 2}:
            own(SCANS[name], make(torch.float32, *size), dim)

    @pytest.mark.parametrize("name", SCANS)
    @pytest.mark.parametrize("layout", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[:, :1].expand(-1, 9), lambda x: x.flip(1)], ids=["transposed", "stepped", "expanded", "flipped"])
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
        """Cheap work goes in, costly work stays beside, results are read by what follows."""
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
        check(lambda x: x.cumsum(2), make(torch.float32, 3, 4), breaks=None)
        check(lambda x: x.cumsum(0, dtype=torch.bool), make(torch.float32, 3), breaks=None)

    def test_in_place(self):
        check(lambda x: (x.cumsum_(0), x.cumprod_(1)), make(torch.float32, 5, 6))

    def test_sizes_that_vary(self):
        def run(x):
            return x.cumsum(0), x.cummax(1)

        for rows, columns in ((4, 5), (7, 5), (7, 40), (1, 1)):
            check(run, make(torch.float32, rows, columns))
