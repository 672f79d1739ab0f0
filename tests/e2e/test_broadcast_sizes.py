"""torch.broadcast_shapes: sizes are broadcast in the trace. Its own code would first import torch's symbols, which is a
graph break."""
import pytest
import torch
import torch.nn.functional as F

import framejit
import programs
from check import check, fresh  # noqa: F401

FIRST_CALL = """
import sys
import torch
import framejit

def f(x, target, weight):
    return torch.nn.functional.binary_cross_entropy(x, target, weight=weight) + 1

x, weight = torch.rand(3, 4), torch.rand(4)
got = framejit.compile(f)(x, x, weight)
symbols = "torch.fx.experimental.symbolic_shapes" in sys.modules
print(framejit.stats()["graphs"], framejit.stats()["break_reasons"], symbols,
      torch.allclose(got, f(x, x, weight), rtol=1e-6))
"""


@pytest.mark.cpu_only("the losses of the torch there may take sizes from a function of another name")
@pytest.mark.nothing_captured  # the child compiles
def test_the_first_call_imports_nothing():
    done = programs.run(FIRST_CALL)
    assert done.stdout == "1 {} False True\n", done.stdout + done.stderr


SHAPES = {
    "none": (), "numbers": (3, 1), "a number and a shape": (4, (2, 1)), "a missing one": (None, (2, 3)),
    "lists": ([2, 1, 4], [3, 1]), "of no dimensions": ((), (2,)), "zero": ((0, 3), (1, 3)),
    "a size": (torch.Size([5, 1]), (1, 6)), "bools": ((True, 2), (3, 1)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_they_become(name):
    check(lambda x: (torch.broadcast_shapes(*SHAPES[name]), x + 1), torch.ones(2))


class Pair(tuple):
    def __len__(self):
        return 1


REFUSED = {"no match": ((2, 3), (4,)), "negative": ((-2,), (1,)), "floats": ((2.0,), (1,)), "a string": ("ab", (1,)),
           "a set": ({2}, (1,))}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", REFUSED)
def test_errors(name):
    import torch.fx.experimental.symbolic_shapes  # noqa: F401: what the function itself needs
    breaks = 1 if name == "floats" else None  # its own code asks whether a float is nested
    check(lambda x: (torch.broadcast_shapes(*REFUSED[name]), x + 1), torch.ones(2), breaks=breaks)


def test_a_tuple_with_its_own_length():
    import torch.fx.experimental.symbolic_shapes  # noqa: F401
    check(lambda x: (torch.broadcast_shapes(Pair((2, 3)), (4, 1)), x + 1), torch.ones(2))


@pytest.mark.parametrize("common", [torch.broadcast_shapes, torch._C._infer_size])
def test_sizes_that_vary(common):
    def f(x, y):
        size = common(x.shape, y.shape)
        return x.expand(size) * 2
    compiled = framejit.compile(f, dynamic=True)
    for rows, columns in ((3, 5), (4, 7), (9, 2)):
        x, y = torch.rand(rows, 1), torch.rand(columns)
        assert torch.equal(compiled(x, y), f(x, y))
    assert framejit.stats()["graphs"] == 1


def test_two_sizes():
    """The function that losses of older versions of torch call."""
    def f(x, y):
        size = torch._C._infer_size(x.size(), y.size())
        return size, type(size), x.expand(size) + 1
    for a, b in (((2, 1), (3,)), ((3,), (2, 1)), ((), (2,)), ((0, 1), (1, 4)), ((2, 3), (2, 3))):
        check(f, torch.ones(a).sum() if a == () else torch.ones(a), torch.ones(b), breaks=0)


@pytest.mark.parametrize("given", [((2, 3), (4,)), ((3,), (2,))])
def test_two_sizes_that_do_not_match(given):
    check(lambda x: (x + 1, torch._C._infer_size(*map(torch.Size, given))), torch.ones(2), breaks=1)


def test_a_loss_with_weights():
    x = torch.rand(3, 4)
    check(lambda x, w: F.binary_cross_entropy(x, x, weight=w), x, torch.rand(4))
