"""The public functions; explain() has its own file."""
from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
import os
import textwrap
import types
from typing import Any, Callable, Optional, Sequence, TypeVar, overload

import torch

from framejit import _framejit
from framejit._framejit import (DISABLED_MARK, DYNAMIC_MARK, STATIC_ADDRESS_MARK, STATIC_MARK,
                                 TORCH_DISABLED_MARK)
from framejit.compiled_module import call_of, compile_module, original_of, wrap_module
from framejit.options import MODE_OPTIONS, Backend, Options, advice_for, make_options, require_flag
from framejit.torch_settings import say_what_is_not_followed

F = TypeVar("F", bound=Callable[..., Any])

SETTINGS = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")
# Arguments of torch.compile that framejit.compile lacks, and what to do instead.
TORCH_SETTINGS = {"name": "framejit has no names for compiled functions",
                  "recompile_limit": "FRAMEJIT_ENTRIES sets the limit for the whole process",
                  "isolate_recompiles": "callables compiled with different settings never share entries",
                  "shapes_spec": "use framejit.mark_dynamic and framejit.mark_static"}


@overload
def compile(model: F, *, fullgraph: bool = ..., dynamic: Optional[bool] = ..., backend: Backend = ...,
            mode: Optional[str] = ..., options: Optional[dict[str, Any]] = ..., disable: bool = ...) -> F: ...
@overload
def compile(model: None = ..., *, fullgraph: bool = ..., dynamic: Optional[bool] = ..., backend: Backend = ...,
            mode: Optional[str] = ..., options: Optional[dict[str, Any]] = ..., disable: bool = ...) -> Callable[[F],
                F]: ...


def compile(model=None, *, fullgraph=False, dynamic=None, backend="framejit", mode=None, options=None, disable=False,
            **unknown):
    """Compiles a function, a method or an nn.Module; with no model, a decorator.

    fullgraph  a graph break is an error that says where, why and what to do.
    dynamic    None: a size that changed becomes a symbol; True: every size at once; False: never.
    backend    "framejit", "eager" (the graph, op by op), another name of list_backends(), or a callable that is
               given the graph and example inputs and returns a callable. In place of "inductor" and "cudagraphs",
               "framejit" is used; in place of "aot_eager", "eager".
    mode       one of torch's modes. "reduce-overhead" records the work of a GPU once and replays it as a driver graph
               (docs/gpu.md). "max-autotune-no-cudagraphs" times alternatives on the inputs of the call that compiles,
               for up to FRAMEJIT_AUTOTUNE_MS per graph, and keeps the fastest. "max-autotune" does both.
    options    a dict of backend options: those of list_mode_options(), and freezing; not together with a mode.
    disable    True returns the model unchanged.

    A compiled function is called, bound, inspected and pickled like the original. Compiling a module returns an
    instance of a generated subclass that shares the original's attributes; the original itself does not change.
    """
    for name in unknown:
        raise unknown_setting("compile", name, SETTINGS)
    require_flag("disable", disable, none_allowed=False)
    wanted = make_options(fullgraph, dynamic, backend, mode, options)
    say_what_is_not_followed()
    if model is None:
        return lambda target: _compile(target, wanted, disable)
    return _compile(model, wanted, disable)


def unknown_setting(function: str, name: str, known: Sequence[str]) -> TypeError:
    """The error for a keyword that `function` does not take."""
    advice = advice_for(name, known, TORCH_SETTINGS.get(name, ""), quoted=False)
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}; {advice}")


def compile_afresh(model: Any, *, fullgraph: bool = False, dynamic: Optional[bool] = None,
                   backend: Backend = "framejit", mode: Optional[str] = None,
                   options: Optional[dict[str, Any]] = None) -> Any:
    """compile() for explain(): with a new settings object, so that no existing entry is shared. The first call makes
    the derived weights."""
    require_callable("explain", model)
    settings = make_options(fullgraph, dynamic, backend, mode, options)
    return _compile(model, dataclasses.replace(settings, derives_at_once=True), False)


MOST_OF_A_REPR = 80  # characters; an optimizer prints ten lines


def require_callable(function: str, model: Any) -> None:
    """TypeError if framejit.`function`() cannot take `model`."""
    if callable(model) and not isinstance(model, type):
        return
    advice = ""
    if isinstance(model, type):
        advice = f"; decorate a method of the class, or call framejit.{function} with an object of it"
    elif isinstance(model, (classmethod, property)) and function != "explain":
        advice = f"; put @framejit.{function} below @{type(model).__name__}"
    elif isinstance(model, torch.optim.Optimizer):
        advice = f"; framejit.{function}(optimizer.step) takes its step"
    raise TypeError(f"framejit.{function} takes a function, a method, a callable object or an nn.Module, not "
                    f"{_shown(model)}{advice}")


def _shown(model: Any) -> str:
    if isinstance(model, type):
        return f"the class {model.__qualname__}"
    text = repr(model)
    return text if len(text) <= MOST_OF_A_REPR else f"an object of {type(model).__qualname__}"


def _compile(model: Any, options: Options, disabled: bool) -> Any:
    if disabled or is_disabled(model):
        return model
    if isinstance(model, torch.nn.Module):
        return compile_module(original_of(model), options)
    require_callable("compile", model)
    if isinstance(model, types.MethodType):
        return types.MethodType(_compile(model.__func__, options, False), model.__self__)
    if isinstance(model, ArmedCall):
        return _compile(model.__wrapped__, options, False)
    if isinstance(model, types.FunctionType):
        # If torch compiled it, compile the original function here.
        wrapped = getattr(model, "_torchdynamo_orig_callable", None)
        return compile_function(model, options) if wrapped is None else _compile(wrapped, options, False)
    call = getattr(type(model), "__call__", None)
    if isinstance(call, types.FunctionType):
        return types.MethodType(compile_function(call, options), model)
    return compile_function(_python_caller(model), options)


GraphBreakError = _framejit.GraphBreakError

ArmedCall = _framejit.ArmedCall  # the type of compiled callables
# Pickle and deepcopy refer to a compiled function by its qualified name, as to a plain function.
copyreg.pickle(ArmedCall, lambda compiled: compiled.__qualname__)


def compile_function(function: types.FunctionType, options: Options) -> Callable[..., Any]:
    """An armed callable that looks like `function`. Generators and coroutines run plainly, and the log says why."""
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if function.__code__.co_flags & flags:
        code = function.__code__
        at = f"{_short_name(code.co_filename)}:{code.co_firstlineno} {function.__qualname__}"
        if options.fullgraph:
            raise GraphBreakError(f"{at}: {function.__qualname__} is a generator or coroutine and cannot be one graph; "
                                  "compile the function that consumes it")
        _framejit.emit_break("generator_frame", function.__qualname__, at)
        return function
    compiled = _framejit.arm(function, options)
    functools.update_wrapper(compiled, function)
    return compiled


def _short_name(path: str) -> str:
    """A file as the log names it: without its folder, except "logging/__init__.py"."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.basename(folder), name) if name == "__init__.py" else name


def _python_caller(target: Callable[..., Any]) -> types.FunctionType:
    """A Python function that calls a C callable or a partial, so that there is a frame to compile. Each has its own
    code object, because entries are kept per code object."""
    def call(*args, **kwargs):
        return target(*args, **kwargs)
    call.__code__ = call.__code__.replace(co_name=getattr(target, "__name__", "call"))
    for name in functools.WRAPPER_ASSIGNMENTS:
        value = getattr(target, name, None)
        if isinstance(value, str):
            setattr(call, name, value)
    call.__wrapped__ = target
    return call


def is_disabled(target: Any) -> bool:
    """Whether `target` came from disable(), or from torch's function of the same name."""
    call = call_of(target) if isinstance(target, torch.nn.Module) else target
    return getattr(call, DISABLED_MARK, None) is not None or getattr(call, TORCH_DISABLED_MARK, False) is True


def disable(function: Any = None, recursive: bool = True, *, reason: Optional[str] = None) -> Any:
    """Keeps a function out of compiled code: traced callers break before it, and it runs plainly.

    recursive  True: what it calls runs plainly, too; False: compiled functions that it calls still run compiled.
    """
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(function, torch.nn.Module):
        original = original_of(function)
        call = disable(type(original).__call__, recursive, reason=reason)
        return wrap_module(original, call, functools.partial(disable, recursive=recursive, reason=reason))
    require_callable("disable", function)
    if isinstance(function, ArmedCall):
        function = function.__wrapped__

    def disabled(*args, **kwargs):
        before = _framejit.set_thread_enabled(False) if recursive else None
        try:
            return function(*args, **kwargs)
        finally:
            if before is not None:
                _framejit.set_thread_enabled(before)
    functools.update_wrapper(disabled, function)
    setattr(disabled, DISABLED_MARK, reason or "framejit.disable")
    return disabled


def is_compiling() -> bool:
    """True in code that is being traced, False in code that Python runs."""
    return torch.compiler.is_compiling()


def reset() -> None:
    """Forgets everything compiled and sets the totals of stats() to zero. Compiled callables stay valid and compile
    anew."""
    _framejit.reset()


def refresh(model: torch.nn.Module) -> None:
    """Tells framejit that weights of `model` have changed without a new version. Only code that was compiled with
    options={"freezing": True} needs this.

    Values derived from its parameters and buffers (packed, folded and cast copies) are made again in a later call.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"refresh() takes the nn.Module whose weights have changed, not {type(model).__name__}")
    _framejit.refresh([*model.parameters(), *model.buffers()])


def list_backends() -> list[str]:
    """The names that compile(backend=...) takes."""
    return sorted(_framejit.backends())


def list_mode_options(mode: Optional[str] = None, dynamic: Optional[bool] = None) -> dict[str, Any]:
    """The options that each mode of compile() stands for, or those of one mode.

    autotune   alternatives are timed, and the fastest is kept
    graphs     the work of a GPU is recorded once and replayed as a driver graph
    """
    require_flag("dynamic", dynamic, none_allowed=True)
    if mode is None:
        return {name: dict(options) for name, options in MODE_OPTIONS.items()}
    if mode not in MODE_OPTIONS:
        raise ValueError(f"unknown mode {mode!r}; {advice_for(mode, list(MODE_OPTIONS))}")
    return dict(MODE_OPTIONS[mode])


def stats() -> dict[str, Any]:
    return _framejit.stats()


stats.__doc__ = "Totals since import or reset.\n\n" + "\n".join(
    textwrap.fill(f"{name:22} {text}", 120, initial_indent=" " * 4, subsequent_indent=" " * 27)
    for name, text in _framejit.totals())


def cache(folder: str | os.PathLike[str] | None, *, max_mb: int = 256) -> None:
    """Keeps the machine code of compiled kernels in `folder`, for this process and later ones. None, the default,
    keeps none.

    The folder is made if it does not exist. It must belong to this user and be writable by nobody else. It holds at
    most `max_mb` megabytes; the least recently used kernels are dropped. Any number of processes may share it. A kernel
    is found again by what it computes, the CPU or GPU, and the build of framejit; a damaged file costs a compile. The
    same as FRAMEJIT_CACHE_DIR and FRAMEJIT_CACHE_MB. ValueError says why a folder is refused.
    """
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"framejit.cache() takes a folder (a str or an os.PathLike) or None, not {folder!r}")
    if not _is_int(max_mb):
        raise TypeError(f"max_mb must be an int, not {max_mb!r}")
    if max_mb < 1:
        raise ValueError(f"max_mb must be at least 1, not {max_mb}")
    _framejit.set_kernel_cache("" if folder is None else os.path.abspath(os.fspath(folder)), max_mb)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def mark_dynamic(tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...], *, min: Optional[int] = None,
                 max: Optional[int] = None) -> None:
    """Makes a size of `tensor` a symbol the first time that the tensor is traced, so that other sizes need no second
    compile.

    If the program needs the number after all (for a branch, or for a list of that length), there is a guard on it, as
    for any other size.
    """
    dims = _dims_of("mark_dynamic", tensor, dim)
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and not _is_int(bound):
            raise TypeError(f"{name} must be an int or None, not {bound!r}")
        if bound is not None and bound < 0:
            raise ValueError(f"{name} must be 0 or more, not {bound}")
    if min is not None and max is not None and min > max:
        raise ValueError(f"min must not be greater than max: min={min}, max={max}")
    marked = getattr(tensor, DYNAMIC_MARK, frozenset())
    setattr(tensor, DYNAMIC_MARK, marked | {(d, min, max) for d in dims})
    setattr(tensor, STATIC_MARK, getattr(tensor, STATIC_MARK, frozenset()) - dims)


def mark_static(tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Keeps a size of `tensor`, or all sizes, constant: any other size compiles anew, even with dynamic=True.

    The mark belongs to the tensor. It is read when the tensor is traced.
    """
    dims = _dims_of("mark_static", tensor, dim)
    setattr(tensor, STATIC_MARK, getattr(tensor, STATIC_MARK, frozenset()) | dims)
    marked = getattr(tensor, DYNAMIC_MARK, frozenset())
    setattr(tensor, DYNAMIC_MARK, frozenset(mark for mark in marked if mark[0] not in dims))


def mark_static_address(tensor: torch.Tensor) -> None:
    """Promises that the memory of `tensor` stays where it is, whatever is written to it: a replayed graph reads it
    there.

    Without the mark, an input whose address has changed is copied into the graph from then on. Parameters and buffers
    of a module need no mark. Calls with another marked tensor, or after this one has moved, record their own graph.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"mark_static_address takes a tensor, not {type(tensor).__name__} {tensor!r}")
    setattr(tensor, STATIC_ADDRESS_MARK, True)


def _dims_of(function: str, tensor: torch.Tensor, dim: int | list[int] | tuple[int, ...] | None) -> frozenset[int]:
    """Dims counted from the front. None: all of them, if the function accepts that."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function} takes a tensor and a dim, not {type(tensor).__name__} {tensor!r}")
    if dim is None and function == "mark_static":
        return frozenset(range(tensor.dim()))
    dims = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    if not all(isinstance(d, int) for d in dims):
        raise TypeError(f"{function} takes an int or a list of ints as dim, not {dim!r}")
    for d in dims:
        if not -tensor.dim() <= d < tensor.dim():
            raise IndexError(f"dim {d} is out of range for a tensor with {tensor.dim()} dims")
    return frozenset(d % tensor.dim() for d in dims)
