"""torch.overrides.has_torch_function() and its forms: Python functions of torch ask it first, and what a mode or a
class sees depends on the answer."""
import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode, has_torch_function, has_torch_function_unary, has_torch_function_variadic

import framejit
from check import backend, fresh  # noqa: F401

SEEN = []


def noting(function):
    SEEN.append(getattr(function, "__name__", str(function)))


class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        noting(function)
        result = function(*args, **(kwargs or {}))
        return result * 10 if function is F.softmax else result


class Plain(torch.Tensor):
    pass


class Notes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        noting(function)
        return super().__torch_function__(function, types, args, kwargs or {})


PROGRAMS = {
    "sequence": lambda x: has_torch_function((x,)), "list": lambda x: has_torch_function([1, x]),
    "unary": lambda x: has_torch_function_unary(x), "variadic": lambda x: has_torch_function_variadic(None, x),
    "softmax": lambda x: F.softmax(x, -1), "relu": lambda x: F.relu(x) + 1, "norm": lambda x: torch.norm(x),
    "unique": lambda x: torch.unique(x), "layer_norm": lambda x: F.layer_norm(x, (4,)), "plain": lambda x: x + 1,
    "einsum": lambda x: torch.einsum("ij->ji", x),
}
# Inputs and modes, each after each other.
CALLS = [(kind, mode) for kind in (torch.Tensor, torch.nn.Parameter, Plain, Notes)
         for mode in (contextlib.nullcontext, Mode, lambda: torch.device("cpu"), torch._C.DisableTorchFunction,
                      torch._C.DisableTorchFunctionSubclass)]


@pytest.mark.breaks(**dict.fromkeys(["custom_dispatch", "data_dependent_size", "modes_unsupported", "text_formatting",
                                     "unknown_callable", "unsupported_key", "unsupported_tensor",
                                     "unsupported_write"], range(99)))
@pytest.mark.fallbacks(entry_limit=range(99))
@pytest.mark.parametrize("first", range(0, len(CALLS), 3))
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.nothing_captured
def test_answers_follow_the_mode_and_the_class(name, first, backend):
    program = PROGRAMS[name]
    compiled, x = framejit.compile(lambda x: program(x), backend=backend), torch.randn(3, 4)
    for kind, mode in CALLS[first:] + CALLS[:first]:
        outcomes = []
        for call in (program, compiled, compiled):
            given = x.as_subclass(kind) if kind is not torch.nn.Parameter else kind(x, requires_grad=False)
            SEEN.clear()
            with mode():
                result = call(given)
            outcomes.append((type(result), SEEN[:]))
            with torch._C.DisableTorchFunctionSubclass():
                outcomes[-1] += (result,) if type(result) is bool else (result.tolist(),)
        for outcome in outcomes[1:]:
            assert outcome[:2] == outcomes[0][:2]
            torch.testing.assert_close(torch.tensor(outcome[2]), torch.tensor(outcomes[0][2]))
