"""NumPy numbers and NumPy functions of numbers: constants of a trace, guarded by class and bits; none of them
breaks."""
import math
import warnings

import numpy as np
import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401

NUMBERS = [np.float64(2.5), np.float32(2.5), np.float16(0.5), np.int64(3), np.int32(-2), np.uint8(7), np.bool_(True),
           np.float64("nan"), np.float64(-0.0)]


def same_number(a, b):
    assert type(a) is type(b), (a, b)
    assert np.array(a).tobytes() == np.array(b).tobytes(), (a, b)


@pytest.mark.parametrize("a", NUMBERS, ids=repr)
def test_operators(a):
    def results():
        return [a + 1, 1.5 - a, a * a, -a if not isinstance(a, (np.bool_, np.uint8)) else a, abs(a), a > 2, a == a,
                a != 3, not a, bool(a), f"{a:4}", a < a, divmod(a, a)[1] if 3 >= a >= 2 else a]

    def f(x):
        return x + 1, results()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = results()
        compiled = framejit.compile(f)
        for _ in range(3):
            for got, plain in zip(compiled(torch.ones(1))[1], want):
                assert type(got) is type(plain)
                same_number(got, plain)
    assert framejit.stats()["graph_breaks"] == 0, framejit.stats()


@pytest.mark.breaks(text_formatting=2)
def test_texts_follow_the_print_options():
    compiled = framejit.compile(lambda x, a: (x + 1, str(a), repr(a)))
    a = np.float64(2.5)
    assert compiled(torch.ones(1), a)[1:] == (str(a), "np.float64(2.5)")
    with np.printoptions(legacy="1.25"):
        assert compiled(torch.ones(1), a)[1:] == (str(a), "2.5")


def test_functions_of_plain_numbers():
    scale = np.float64(3.0)
    for f in (lambda x: x * (scale * 2), lambda x: x * np.sqrt(2), lambda x: x.reshape(
        np.prod(x.shape)), lambda x: x.reshape(int(np.prod(x.shape[1:])), -1),
              lambda x: x * np.pi + np.float32(2) + np.log(10) + np.ceil(2.5), lambda x: x * math.sqrt(np.float64(4))
              + max(np.float64(1), 2),
              lambda x: x.sum() / np.power(2, 0.5), lambda x: x[: np.int64(1)], lambda x: x.view(
                  np.prod([2, 3])), lambda x: x + np.mean((1, 2, 4)),
              lambda x: x * scale.item() + int(np.round(2.6)), lambda x: x + 1 if np.maximum(2, scale) > 2
              else x, lambda x: [x, x + 1][np.int64(1)],
              lambda x: scale * x, lambda x: np.float32(2) * x
              + x ** np.float64(2), lambda x: torch.full((np.int64(2), 2), np.float32(3)) + x[:, :2]):
        check(f, torch.randn(2, 3), breaks=0)


def test_arguments_are_guarded():
    compiled = framejit.compile(lambda x, a: x + 1 if a > 2 else x - a)
    x = torch.zeros(1)
    for a in (np.float64(3), np.float64(1), np.float32(1), np.int64(3), 3, 1.0, np.float64(3)):
        want = (x + 1 if a > 2 else x - a)
        got = compiled(x, a)
        assert torch.equal(got, want) and got.dtype == want.dtype
    framejit.reset()
    compiled = framejit.compile(lambda x, a: x * float(np.copysign(1.0, a)))
    for a in (np.float64(0.0), np.float64(-0.0), np.float64(0.0)):
        assert compiled(torch.ones(1), a).item() == np.copysign(1, a)


@pytest.mark.breaks(outside_effect=1)
def test_warnings_come_with_each_call():
    def f(x, a):
        return x + 1, np.log(a)
    compiled = framejit.compile(f)
    for _ in range(3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert compiled(torch.ones(1), np.float64(0))[1] == -np.inf
        assert len(seen) == 1
    with np.errstate(all="raise"):
        for _ in range(2):
            with pytest.raises(FloatingPointError):
                compiled(torch.ones(1), np.float64(0))


@pytest.mark.breaks(unknown_callable=2)
def test_the_programs_own_ufuncs_and_arrays_break():
    calls = []
    own = np.frompyfunc(lambda a: calls.append(a) or a + 1, 1, 1)
    compiled = framejit.compile(lambda x: x * own(2))
    for n in range(1, 4):
        assert compiled(torch.ones(1)) == 3 and len(calls) == n
    compiled = framejit.compile(lambda x: x * float(np.cumsum((1, 2))[1]))
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [3, 3, 3]
    box = np.zeros(2)
    compiled = framejit.compile(lambda x: x + np.sum(box))
    for k in range(3):
        box[0] = k
        assert compiled(torch.ones(1)).item() == 1 + k
