"""A compiled nn.Module: an object of a generated subclass that shares the original's __dict__.

Everything in the __dict__ (parameters, hooks, training flag, attributes) is the original's own, so state_dict(),
train(), to() and hooks act on both. Only the call differs: it reaches the original through another callable. So traced
code sees the same object and class as plain code, and all instances of a class share their compiled entries.

The rest of a module's state is the original's too: its class (`__class__`, which parametrizations assign), its __dict__
if another is assigned, and the slots that its class declares. The two are equal, so a table of modules finds either.
"""
from __future__ import annotations

import abc
import copy
import inspect
import operator
import types
import weakref
from typing import Any, Callable

import torch

from framejit import _framejit
from framejit.options import Options


class WrapperClass(type):
    """The metaclass of generated subclasses. What a program makes of one, an object or a subclass, is of the original's
    class."""
    def __new__(cls, name, bases, body, /, **keywords):
        return types.new_class(name, tuple(map(_original_class, bases)), keywords, lambda made: made.update(body))

    def __call__(cls, *args, **kwargs):
        return _original_class(cls)(*args, **kwargs)


def _original_class(kind: type) -> type:
    """The class that `kind` was generated for, or `kind` itself."""
    return kind.__bases__[1] if isinstance(kind, WrapperClass) else kind


class WrappedModule:
    """Mixed in before the original's class. Its own state lies in slots, because the __dict__ is shared."""
    __slots__ = ()

    def __new__(cls, *args, **kwargs):
        original = _original_class(cls)
        return original.__new__(original, *args, **kwargs)

    def __init_subclass__(cls):
        pass  # the program did not declare this subclass, so its own __init_subclass__ must not run

    def __call__(self, *args, **kwargs):
        original = self._framejit_original
        if type(original) is not self._framejit_class or type(original).__call__ is not self._framejit_plain:
            _follow(self)
        return self._framejit_call(original, *args, **kwargs)

    def __deepcopy__(self, memo):
        copied = self._framejit_wrap(copy.deepcopy(self._framejit_original, memo))
        memo[id(self)] = copied
        return copied

    def __copy__(self):
        return self._framejit_wrap(copy.copy(self._framejit_original))

    def __reduce_ex__(self, protocol):
        # The pickle holds the original, so reading it does not need framejit.
        return operator.getitem, ([self._framejit_original], 0)


SLOTS = (
    "_framejit_original",  # the module that was wrapped; kept alive
    "_framejit_call",      # called with the original first
    "_framejit_wrap",      # makes the same kind of wrapper for a copy
    "_framejit_class",     # the original's class and that class's __call__, from which _framejit_call was made
    "_framejit_plain",
    "_framejit_hash",      # the original's, unless its class has a __hash__ of its own; traced code knows a number
)


class _WithSlots(WrappedModule):
    """Has the slots in a class that all generated ones share, so that Python lets an object change from one generated
    class to another."""
    __slots__ = SLOTS


def original_of(module: torch.nn.Module) -> torch.nn.Module:
    """The module that was wrapped, or `module` itself."""
    return module._framejit_original if isinstance(module, WrappedModule) else module


def call_of(module: torch.nn.Module) -> Callable[..., Any]:
    """What calling the module runs."""
    return module._framejit_call if isinstance(module, WrappedModule) else type(module).__call__


def _subclass_of(original: type) -> type:
    """The generated subclass of a module class: same name and module, so that printed models look alike.

    The class's own list of subclasses is the registry. It is weak, and nothing is written to the user's class.
    """
    for known in type.__subclasses__(original):
        if isinstance(known, WrapperClass):
            return known
    body = {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
    body |= {name: _slot_of_original(name) for kind in original.__mro__ for name, value in vars(kind).items()
             if isinstance(value, types.MemberDescriptorType)}
    body |= {"__class__": property(_get_class, _set_class), "__dict__": property(_get_dict, _set_dict)}
    if original.__eq__ is object.__eq__ and original.__hash__ is object.__hash__:
        body |= {"__eq__": _is_same_module, "__hash__": _hash_of_original}
    if hasattr(original, "__del__"):
        body["__del__"] = lambda wrapped: None  # runs once, for the original
    # Two classes with slots of their own cannot be bases of one class.
    has_slots = original.__basicsize__ != torch.nn.Module.__basicsize__
    mixed_in, body["__slots__"] = (WrappedModule, SLOTS) if has_slots else (_WithSlots, ())
    # Not through the metaclass of the original, which may register each class. ABCMeta keeps a cache for each class.
    made_by = abc.ABCMeta if isinstance(original, abc.ABCMeta) else type
    return made_by.__new__(_metaclass_of(type(original)), original.__name__, (mixed_in, original), body)


def _metaclass_of(original: type) -> type:
    if original is type:
        return WrapperClass
    bases = (WrapperClass, original)
    for known in type.__subclasses__(original):
        if known.__bases__ == bases:
            return known
    return type(original.__name__, bases, {})


def _get_class(wrapped):
    return wrapped._framejit_original.__class__


def _set_class(wrapped, kind):
    original = wrapped._framejit_original
    before = type(original)
    original.__class__ = kind
    try:
        _follow(wrapped)
    except TypeError:
        original.__class__ = before
        raise


def _get_dict(wrapped):
    return wrapped._framejit_original.__dict__


def _set_dict(wrapped, attributes):
    wrapped._framejit_original.__dict__ = attributes
    _own_dict.__set__(wrapped, attributes)


# What the properties of generated classes hide.
_own_class = vars(object)["__class__"]
_own_dict = vars(torch.nn.Module)["__dict__"]


def _slot_of_original(name: str) -> property:
    """The attribute is in a slot of the original. The program's __setattr__ has run when this is reached."""
    return property(lambda wrapped: getattr(wrapped._framejit_original, name),
                    lambda wrapped, value: object.__setattr__(wrapped._framejit_original, name, value),
                    lambda wrapped: object.__delattr__(wrapped._framejit_original, name))


def _is_same_module(wrapped, other):
    given = wrapped.__class__.__eq__  # the program may have given its class one since
    return original_of(wrapped) is original_of(other) if given is object.__eq__ else given(wrapped, other)


def _hash_of_original(wrapped):
    given = wrapped.__class__.__hash__
    if given is object.__hash__:
        return wrapped._framejit_hash
    if given is None:
        raise TypeError(f"unhashable type: {wrapped.__class__.__name__!r}")
    return given(wrapped)


# The armed calls of a class live as long as the class, even when none of its compiled modules is left.
_ArmedCalls = dict[tuple[Options, Callable[..., Any]], Callable[..., Any]]
_armed_calls: "weakref.WeakKeyDictionary[type, _ArmedCalls]" = weakref.WeakKeyDictionary()


def _armed_call(kind: type, options: Options) -> Callable[..., Any]:
    """An armed copy of the class's __call__, one per class, __call__ and settings. The code object is a copy, because
    entries are kept per code object and nn.Module's own is shared by every model of the process."""
    armed = _armed_calls.setdefault(kind, {})
    call = kind.__call__
    key = (options, inspect.getattr_static(kind, "__call__"))  # a descriptor may return a new object each time
    if key not in armed:
        if isinstance(call, types.FunctionType):
            copied = types.FunctionType(call.__code__.replace(), call.__globals__, call.__name__, call.__defaults__,
                                        call.__closure__)
            copied.__kwdefaults__ = call.__kwdefaults__
            copied.__qualname__ = call.__qualname__
            call = copied
        armed[key] = _framejit.arm(call, options)
    return armed[key]


def wrap_module(original: torch.nn.Module, call: Callable[..., Any],
                wrap: Callable[[torch.nn.Module], torch.nn.Module]) -> torch.nn.Module:
    """A module that shares `original`'s attributes. Calling it runs call(original, ...)."""
    wrapped = object.__new__(_subclass_of(type(original)))
    _own_dict.__set__(wrapped, original.__dict__)
    _fill_slots(wrapped, original, call, wrap, type(original), type(original).__call__,
                object.__hash__(original))
    return wrapped


def _fill_slots(wrapped: WrappedModule, *values: object) -> None:
    for slot, value in zip(SLOTS, values, strict=True):
        object.__setattr__(wrapped, slot, value)


def _follow(wrapped: WrappedModule) -> None:
    """The original has another class or its class another __call__ since it was wrapped."""
    original = wrapped._framejit_original
    _own_class.__set__(wrapped, _subclass_of(type(original)))
    rewrapped = wrapped._framejit_wrap(original)
    _fill_slots(wrapped, *(getattr(rewrapped, slot) for slot in SLOTS))


def compile_module(original: torch.nn.Module, options: Options) -> torch.nn.Module:
    """A module that shares `original`'s attributes and runs compiled when it is called."""
    _framejit.count_request()  # arming alone would count once for all modules of a class
    call = _armed_call(type(original), options)
    return wrap_module(original, call, lambda copied: compile_module(copied, options))
