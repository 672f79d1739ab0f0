"""The settings of one framejit.compile call, checked and interned: equal settings are one object."""
from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Callable, Literal, Optional, Sequence, Union

from framejit import _framejit

Backend = Union[str, Callable[..., Any]]
Freezing = Union[bool, Literal["auto"]]

# Torch's four modes, and the options that each stands for: autotune decides by time, graphs replays the work of a GPU.
MODE_OPTIONS: dict[str, dict[str, bool]] = {
    "default": {}, "reduce-overhead": {"graphs": True}, "max-autotune": {"autotune": True, "graphs": True},
    "max-autotune-no-cudagraphs": {"autotune": True}}
MODES = tuple(MODE_OPTIONS)
OPTIONS = ("autotune", "freezing", "graphs")
# Options of torch.compile that framejit.compile lacks, and what to do instead.
TORCH_OPTIONS = {"triton.cudagraphs": "'graphs' replays the work of a GPU",
                 "guard_filter_fn": "framejit leaves out no guard"}


# Backends of torch that programs name, and the backend that framejit uses instead.
ALIASES = {"inductor": "framejit", "cudagraphs": "framejit", "aot_eager": "eager"}


@dataclass(frozen=True, eq=False)
class Options:
    """Read by the extension. Callables armed with one Options object share their compiled entries."""
    fullgraph: bool
    dynamic: Optional[bool]
    backend: Backend
    autotune: bool
    freezing: Freezing
    replays: bool = False  # driver graphs replay the work of a GPU
    derives_at_once: bool = False  # by the first call, for explain()


_interned: dict[tuple[Any, ...], Options] = {}


def advice_for(name: object, known: Sequence[str], instead: str = "", quoted: bool = True) -> str:
    """What the error for an unknown name says. instead: what to do in place of this name, if that is known."""
    close = difflib.get_close_matches(str(name).lower(), known, n=1)
    before = f"{instead}; known" if instead else f"did you mean {close[0]!r}? Known" if close else "known"
    return f"{before}: {', '.join(map(repr, known) if quoted else known) or 'none'}"


def require_flag(name: str, value: object, none_allowed: bool) -> None:
    if not (isinstance(value, bool) or (none_allowed and value is None)):
        raise TypeError(f"{name} must be True{', False or None' if none_allowed else ' or False'}, not {value!r}")


def _require(fullgraph: object, dynamic: object, backend: object, mode: object,
             options: Optional[dict[str, Any]]) -> None:
    require_flag("fullgraph", fullgraph, none_allowed=False)
    require_flag("dynamic", dynamic, none_allowed=True)
    if isinstance(backend, str):
        if backend not in ALIASES and backend not in _framejit.backends():
            raise ValueError(f"unknown backend {backend!r}; {advice_for(backend, _framejit.backends())}")
    elif not callable(backend):
        raise TypeError(f"backend must be a name or a callable, not {backend!r}")
    if mode is not None and mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}; {advice_for(mode, MODES)}")
    if mode is not None and options:
        raise ValueError("mode and options cannot be given together")
    if not (options is None or isinstance(options, dict)):
        raise TypeError(f"options must be a dict or None, not {options!r}")
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            raise ValueError(f"unknown option {name!r}; {advice_for(name, OPTIONS, TORCH_OPTIONS.get(name, ''))}")
        if not (isinstance(value, bool) or (name == "freezing" and value == "auto")):
            words = "True, False or 'auto'" if name == "freezing" else "True or False"
            raise ValueError(f"option {name!r} must be {words}, not {value!r}")


def make_options(fullgraph: bool, dynamic: Optional[bool], backend: Backend, mode: Optional[str],
                 options: Optional[dict[str, Any]]) -> Options:
    """Checks every setting. An unknown backend, mode or option is an error that lists the known ones."""
    _require(fullgraph, dynamic, backend, mode, options)
    if isinstance(backend, str) and backend in ALIASES:
        _framejit.warn_once(f"backend {backend!r}", f"framejit has no such backend; using {ALIASES[backend]!r} instead")
        backend = ALIASES[backend]
    chosen = options or MODE_OPTIONS[mode or "default"]
    settings = (fullgraph, dynamic, backend, chosen.get("autotune", False), chosen.get("freezing", "auto"),
                chosen.get("graphs", False))
    if callable(backend):  # interning it would keep the user's object alive
        return Options(*settings)
    return _interned.setdefault(settings, Options(*settings))
