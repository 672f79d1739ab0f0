"""Reductions over rows: slabs of rows, columns that do not fill a register, more columns than fit on the stack at once,
on any number of threads."""
import pytest
import torch

import framejit
from check import fresh, same_as, threads  # noqa: F401

PROGRAMS = {
    "sum": lambda x: x.sum(0),
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(0),
    "any": lambda x: (x > 2).any(0),
    # of different widths on the stack, the narrow one first and last
    "any and amax": lambda x: ((x > 2).any(0), x.amax(0)),
    "amax and any": lambda x: (x.amax(0), (x > 2).any(0)),
    "three": lambda x: (x.sum(0), x.amax(0), (x * x).sum(0)),
    "scaled": lambda x: x.sum(0) * 0.5 + x[0],
}
SHAPES = [(32, 32), (33, 129), (40, 4096), (127, 769), (300, 4100), (600, 20000), (5000, 64), (300, 192), (8, 40, 300)]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32, "u8": torch.uint8}


def operand(shape, dtype):
    torch.manual_seed(1)
    x = torch.randn(shape) * 3 if dtype.is_floating_point else torch.randint(0, 100, shape)
    return x.to(dtype).reshape(-1, shape[-1])


def flat(result):
    return result if isinstance(result, tuple) else (result,)


def assert_near(got, wanted, exact, terms):
    """Equal, or not farther from the float64 result than rounding the sum twice and its terms once explains."""
    assert got.dtype == wanted.dtype
    if not got.dtype.is_floating_point:
        assert torch.equal(got, wanted)
        return
    unit = torch.finfo(got.dtype).eps
    assert ((got.double() - exact).abs() <= 2 * unit * exact.abs() + 2 ** -23 * terms).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_columns(name, dtype):
    program, dtype = PROGRAMS[name], DTYPES[dtype]
    for shape in SHAPES:
        x = operand(shape, dtype)
        exact = [r.double() for r in flat(program(x.double() if dtype.is_floating_point else x))]
        framejit.reset()
        compiled = framejit.compile(program, dynamic=False)
        first = flat(compiled(x))
        assert framejit.stats()["fallbacks"] == 0
        for got, wanted, value in zip(first, flat(program(x)), exact):
            assert_near(got, wanted, value, 100 * x.shape[0] ** 0.5)
        for count in (1, 2, 3):
            with threads(count):
                assert all(torch.equal(a, b) for a, b in zip(flat(compiled(x)), first)), f"{shape} on {count} threads"


def test_symbolic_sizes():
    compiled = framejit.compile(lambda x: (x.sum(0), x.argmax(0)), dynamic=True)
    for shape in [(40, 96), (33, 4200), (5, 70), (129, 31), (700, 9000)]:
        x = torch.randn(shape)
        same_as(lambda x: (x.sum(0), x.argmax(0)), compiled(x), x)
    assert framejit.stats()["graphs"] == 1


def test_what_is_not_finite_stays_in_its_column():
    x = torch.randn(600, 300)
    x[17, 3], x[599, 4], x[0, 5], x[1, 5], x[300, 299] = torch.inf, -torch.inf, torch.inf, -torch.inf, torch.nan
    compiled = framejit.compile(lambda x: (x.sum(0), x.amax(0), x.argmax(0)))
    same_as(lambda x: (x.sum(0), x.amax(0), x.argmax(0)), compiled(x), x)
