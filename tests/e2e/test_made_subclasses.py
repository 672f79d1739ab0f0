"""Tensors to which traced code assigns a class of the user: the class is kept, and its __torch_function__ runs in each
call."""
import pytest
import torch

import framejit
from check import backend, fresh  # noqa: F401

ASKED = []


class Named(torch.Tensor):
    pass


class Asked(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        ASKED.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


PROGRAMS = {
    "as_subclass": lambda x: (x * 2).as_subclass(Named) + 1,
    "in a dict": lambda x: {"k": [(x * 2).as_subclass(Named)]},
    "asked": lambda x: (x * 2).as_subclass(Asked) * 3,
    "make": lambda x: torch.Tensor._make_subclass(Named, x * 2) - 1,
    "and back": lambda x: (x * 2).as_subclass(Named).as_subclass(torch.Tensor) + 1,
}


@pytest.mark.breaks(unsupported_tensor={"as_subclass": 1, "asked": 1, "make": 1},
                    unsupported_write={"as_subclass": 1, "in a dict": 1, "asked": 1, "make": 1, "and back": 2})
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_class_is_kept(name, backend):
    fn, x = PROGRAMS[name], torch.randn(3)
    compiled, leaf = framejit.compile(fn, backend=backend), (lambda r: r["k"][0] if isinstance(r, dict) else r)
    for _ in range(3):
        ASKED.clear()
        want, asked = leaf(fn(x)), list(ASKED)
        ASKED.clear()
        got = leaf(compiled(x))
        assert type(got) is type(want) and asked == ASKED
        assert torch.allclose(got.as_subclass(torch.Tensor), want.as_subclass(torch.Tensor))
