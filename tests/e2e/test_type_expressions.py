"""Types subscripted at run time (Callable[..., X], Optional[X], Sequence[X]) do not break, and equal what typing
makes."""
import collections.abc
import typing

import torch
from torch import nn

import framejit
from check import check, fresh  # noqa: F401

T = typing.TypeVar("T")
WANTED = int


class Box(typing.Generic[T]):
    pass


def test_subscripts():
    def f(x):
        made = (typing.Callable[..., int], collections.abc.Callable[[int, str], torch.Tensor],
                typing.Optional[nn.Module], list[int], dict[str, "Box"], typing.Union[int, str],
                typing.Dict[str, torch.Tensor], typing.Tuple[int, ...], collections.abc.Sequence[int], Box[int],
                typing.List[T][int], typing.Literal["a", 3], typing.Annotated[int, "x"],
                typing.Callable[[typing.Optional[int]], Box[str]], type[int])
        return x + len(made), made

    want = f(torch.ones(1))[1]
    compiled = framejit.compile(f)
    for _ in range(3):
        got = compiled(torch.ones(1))[1]
        assert got == want and [type(g) for g in got] == [type(w) for w in want]
    assert framejit.stats()["graph_breaks"] == 0, framejit.stats()


def test_casts_and_annotations():
    def f(x):
        def inner(a: typing.Callable[..., int]) -> collections.abc.Sequence[int]:
            return a + 1
        return typing.cast(typing.Callable[..., torch.Tensor], torch.sin)(inner(x))
    check(f, torch.randn(3), breaks=0, compiles=1)


def test_operands_are_guarded():
    global WANTED
    compiled = framejit.compile(lambda x: (x + 1, typing.Optional[WANTED]))
    for kind in (int, str, int):
        WANTED = kind
        assert compiled(torch.ones(1))[1] == typing.Optional[kind]
    assert framejit.stats()["graph_breaks"] == 0


def test_errors_and_subscripts_of_the_programs_own():
    check(lambda x: (x + 1, typing.Optional[1, 2]), torch.ones(1), breaks=1)
    check(lambda x: (x + 1, int[3]), torch.ones(1))
    calls = []

    class Own:
        def __class_getitem__(cls, item):
            calls.append(item)
            return item

    compiled = framejit.compile(lambda x: x * Own[3])
    for n in range(1, 4):
        assert compiled(torch.ones(1)) == 3 and len(calls) == n


def test_arguments_of_unions_and_aliases():
    annotations = {"a": torch.Tensor | None, "b": tuple[torch.Tensor, ...] | int, "c": list[int],
                   "d": typing.Optional[int], "e": typing.Callable[[int], str], "f": int, "g": typing.List[Box[int]]}

    def f(x):
        return x + 1, {name: (typing.get_args(v), typing.get_origin(v)) for name, v in annotations.items()}

    check(f, torch.ones(2), breaks=0, compiles=1)
