"""A compiled nn.Module: an object of a generated subclass that shares the original's __dict__.

Everything in the __dict__ (parameters, hooks, training flag, attributes) is the original's own, so state_dict(),
train(), to() and hooks act on both. Only the call differs: it reaches the original through another callable. So traced
code sees the same object and class as plain code, and all instances of a class share their compiled entries.
"""
from __future__ import annotations

import copy
import inspect
import operator
import types
import weakref
from typing import Any, Callable

import torch

from framejit import _framejit
from framejit.options import Options


class WrappedModule:
    """Mixed in before the original's class. Its own state lies in slots, because the __dict__ is shared."""
    __slots__ = ()

    def __call__(self, *args, **kwargs):
        original = self._framejit_original
        if type(original).__call__ is not self._framejit_plain:  # the class has got another __call__ since
            rewrapped = self._framejit_wrap(original)
            _fill_slots(self, *(getattr(rewrapped, slot) for slot in SLOTS))
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
    "_framejit_plain",     # the __call__ of the original's class that _framejit_call was made from
)


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
    bases = (WrappedModule, original)
    for known in original.__subclasses__():
        if known.__bases__ == bases:
            return known
    body = {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(original)(original.__name__, bases, {"__slots__": SLOTS, **body})


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
    object.__setattr__(wrapped, "__dict__", original.__dict__)
    _fill_slots(wrapped, original, call, wrap, type(original).__call__)
    return wrapped


def _fill_slots(wrapped: WrappedModule, *values: object) -> None:
    for slot, value in zip(SLOTS, values, strict=True):
        object.__setattr__(wrapped, slot, value)


def compile_module(original: torch.nn.Module, options: Options) -> torch.nn.Module:
    """A module that shares `original`'s attributes and runs compiled when it is called."""
    _framejit.count_request()  # arming alone would count once for all modules of a class
    call = _armed_call(type(original), options)
    return wrap_module(original, call, lambda copied: compile_module(copied, options))
