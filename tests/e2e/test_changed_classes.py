"""A class changes between two calls, and what a program asks of its object, or of the class, is answered anew."""
import collections
import functools

import pytest
import torch

import framejit
from check import backend, fresh, raised  # noqa: F401


def classes():
    class Base:
        pass

    class Own(Base):
        pass

    class Another(Base):
        pass
    return Own, Another


def is_callable_partial(o, another):
    return functools.partial(o).func is o


# What a program asks, of an object of Own and the class Another -> how Own changes.
QUESTIONS = {
    "isinstance": (lambda o, another: isinstance(o, another),
                   lambda own, another: setattr(own, "__bases__", (another,))),
    "isinstance of several": (lambda o, another: isinstance(o, (int, another)),
                              lambda own, another: setattr(own, "__bases__", (another,))),
    "isinstance, asked in Python": (lambda o, another: isinstance(o, collections.abc.Sized),
                                    lambda own, another: setattr(own, "__getattribute__", lambda self, name: name)),
    "issubclass": (lambda o, another: issubclass(type(o), another),
                   lambda own, another: setattr(own, "__bases__", (another,))),
    "callable": (lambda o, another: callable(o), lambda own, another: setattr(own, "__call__", lambda self: 1)),
    "partial": (is_callable_partial, lambda own, another: setattr(own, "__call__", lambda self: 1)),
    "iter": (lambda o, another: [*iter(o, 1)], lambda own, another: setattr(own, "__call__", lambda self: 1)),
    "hash": (lambda o, another: len({o: 1}), lambda own, another: setattr(own, "__hash__", None)),
    "key": (lambda o, another: o in {type(o)(): 1},
            lambda own, another: (setattr(own, "__eq__", lambda self, other: True),
                                  setattr(own, "__hash__", lambda self: 1))),
    "super": (lambda o, another: hasattr(super(another, o), "m"),
              lambda own, another: setattr(own, "__bases__", (another,))),
    "name": (lambda o, another: type(o).__name__, lambda own, another: setattr(own, "__name__", "Renamed")),
    "qualified name": (lambda o, another: o.__class__.__qualname__,
                       lambda own, another: setattr(own, "__qualname__", "a.Renamed")),
    "name in a text": (lambda o, another: f"{type(o).__name__}()",
                       lambda own, another: setattr(own, "__name__", "Renamed")),
}


@pytest.mark.breaks(exception_raised={"partial": 1, "iter": 1, "hash": 1, "super": 1},
                    real_iterator={"iter": 1}, unknown_attribute={"super": 1},
                    made_in_trace={"isinstance, asked in Python": 1})
@pytest.mark.parametrize("name", QUESTIONS)
def test_what_a_class_answers_is_asked_again_if_it_changed(name, backend):
    question, change = QUESTIONS[name]
    own, another = classes()
    o = own()

    def f(x):
        return question(o, another), x + 1
    compiled = framejit.compile(f, backend=backend)

    def answers():
        return [raised(lambda: call(torch.ones(2))[0]) for call in (f, compiled)]
    plain, ours = answers()
    assert plain == ours == raised(lambda: compiled(torch.ones(2))[0])
    change(own, another)
    changed, ours = answers()
    assert changed == ours != plain


def takes_one(v, *, k):
    return v


def test_an_error_of_a_call_names_the_function_and_not_its_code(backend):
    def stand_in(v, *, other):
        return v

    def f(x):
        try:
            return takes_one(x)
        except TypeError as error:
            return str(error), x + 1
    compiled, code = framejit.compile(f, backend=backend), takes_one.__code__
    try:
        takes_one.__code__ = stand_in.__code__
        assert compiled(torch.ones(2))[0] == f(torch.ones(2))[0]
    finally:
        takes_one.__code__ = code
