"""Results of operands of several dtypes, where one of them has no dimension or the result goes to an out=."""
import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401

ZERO_DIM = torch.tensor(0.75, dtype=torch.float64)


@pytest.mark.parametrize("x", [torch.tensor(0.5), torch.arange(3), torch.ones(2), torch.tensor(2)],
                         ids=["a number of float32", "integers", "float32", "an integer"])
@pytest.mark.parametrize("f", [lambda x, z: torch.clamp(x, min=z), lambda x, z: x.clamp(max=z),
                               lambda x, z: torch.clip(x, min=z, max=z + 1), lambda x, z: torch.clamp_min(x, min=z),
                               lambda x, z: torch.pow(x, exponent=z), lambda x, z: torch.remainder(x, other=z),
                               lambda x, z: torch.fmod(x, other=z)],
                         ids=["clamp", "clamp max", "clip", "clamp_min", "pow", "remainder", "fmod"])
def test_tensors_given_by_name_take_part_in_the_dtype(f, x):
    """Not as the number that they hold: that would leave the result in float32."""
    check(f, x, ZERO_DIM, breaks=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_out_of_another_dtype_and_size_keeps_its_dtype(dtype):
    def f(n):
        out = torch.zeros(2, 4, dtype=dtype)
        torch.mul(n, 100, out=out)
        return out, out + 1
    check(f, torch.arange(3), breaks=0)


@pytest.mark.parametrize("a, b", [(torch.tensor(3, dtype=torch.int8), torch.ones(4, dtype=torch.uint8)),
                                  (torch.ones(2), torch.tensor(2.0, dtype=torch.float64))], ids=["integers", "floats"])
def test_blocks_of_a_number_and_a_row(a, b):
    check(lambda a, b: (torch.block_diag(a, b), torch.block_diag(b, a)), a, b, breaks=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("power", [torch.int64, torch.uint8, torch.float32], ids=str)
def test_powers_of_two_in_the_dtype_of_what_they_scale(dtype, power):
    check(torch.ldexp, torch.tensor([[1, 3], [5, 7]]).to(dtype), torch.tensor([0, 3]).to(power), breaks=0)


@pytest.mark.parametrize("dynamic", [None, True])
def test_indices_along_a_dimension_count_from_the_end(dynamic):
    f = framejit.compile(lambda x, i: torch.take_along_dim(x, i, 0), dynamic=dynamic)
    for rows in (3, 4, 5):
        x, i = torch.arange(12.0).view(3, 4), torch.tensor([-1, 0, -3, 2, 1])[:rows].view(-1, 1)
        assert torch.equal(f(x, i), torch.take_along_dim(x, i, 0))
    assert framejit.stats()["fallbacks"] == 0 and framejit.stats()["break_reasons"] == {}


@pytest.mark.parametrize("end", [True, False, 3, 2.5], ids=str)
def test_the_dtype_of_a_range_is_that_of_its_numbers(end):
    """A flag counts as an integer."""
    check(lambda x, n: (x * n, torch.arange(n), torch.arange(0, n), torch.arange(False, 4)), torch.ones(2), end,
          breaks=0, fallbacks=0)


def test_infinities_that_are_resampled_to_the_same_size():
    x = torch.tensor([float("inf"), -2.0, 1.0, -float("inf")])
    check(lambda x: torch.nn.functional.interpolate(x[None, None], size=4, mode="linear"), x, breaks=0)
    check(lambda x: torch.nn.functional.interpolate(x.view(1, 1, 2, 2), size=(2, 3), mode="bilinear"), x, breaks=0)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_out_that_is_resized_keeps_its_memory():
    """Tensors that share it see what is written."""
    def of_an_argument(n, m):
        t = n.T
        torch.mul(m, -100, out=t)
        return t

    def with_a_view(n, m):
        t = n + 1
        first = t[:1]
        torch.mul(m, 3, out=t)
        return t, first * 2
    for f, graphs in ((of_an_argument, 1), (with_a_view, 2)):
        check(f, torch.tensor([0, 1, 1]), torch.arange(9).view(1, 9), breaks=1, compiles=graphs)
