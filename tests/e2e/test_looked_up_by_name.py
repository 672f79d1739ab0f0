"""builtins.__import__ and copyreg.__newobj__ are looked up by name each time, so a program may replace them."""
import builtins
import copy
import copyreg

import pytest
import torch

import framejit
from check import backend, fresh  # noqa: F401


def whole(x):
    import math
    return x * math.pi


def of_names(x):
    from math import e, pi
    return x * pi + e


def dotted(x):
    import os.path
    return x * len(os.path.sep)


@pytest.mark.breaks(outside_effect=1)
@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize("program", [whole, of_names, dotted], ids=lambda program: program.__name__)
def test_an_import_of_the_program(program, compiled_before, backend, monkeypatch):
    compiled, x, own, seen = framejit.compile(program, backend=backend), torch.ones(3), builtins.__import__, []
    if compiled_before:
        torch.testing.assert_close(compiled(x), program(x))

    def noting(name, *args):
        seen.append((name, args[2:]))
        return own(name, *args)
    with monkeypatch.context() as changed:
        changed.setattr(builtins, "__import__", noting)
        for _ in range(3):
            want, names = program(x), list(seen)
            seen.clear()
            got = compiled(x)
            assert torch.allclose(got, want) and seen == names and len(names) == 1
            seen.clear()
    torch.testing.assert_close(compiled(x), program(x))
    assert not seen and framejit.stats()["graphs"] in (1, 2)


class Held:
    def __init__(self):
        self.number = 3


@pytest.mark.breaks(unknown_callable=range(6), memory_address=range(6))
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_what_a_copy_is_made_with(copied, backend, monkeypatch):
    """object.__reduce_ex__ looks copyreg.__newobj__ up by its name."""
    held, seen, own, x = Held(), [], copyreg.__newobj__, torch.ones(3)

    def program(x):
        return x * copied(held).number

    def noting(kind, *args):
        seen.append(kind)
        return own(kind, *args)
    compiled = framejit.compile(program, backend=backend)
    for replaced in (False, True, False):
        with monkeypatch.context() as changed:
            if replaced:
                changed.setattr(copyreg, "__newobj__", noting)
            for _ in range(3):
                seen.clear()
                torch.testing.assert_close(compiled(x), x * 3)
                assert seen == [Held] * replaced
    assert framejit.stats()["graphs"] in range(1, 9)
