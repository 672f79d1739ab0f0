"""What the Python package needs from the C++ extension."""
from typing import Any, Callable, Mapping

from torch import Tensor

from framejit.options import Options

# Attributes of tensors and functions (frame_hook/trace/values/marks.h).
DYNAMIC_MARK: str
STATIC_MARK: str
STATIC_ADDRESS_MARK: str
DISABLED_MARK: str
TORCH_DISABLED_MARK: str

def configure() -> None:
    """Reads every FRAMEJIT_* variable. A bad value raises ValueError, which says what is accepted."""

class ArmedCall:
    """Calls a Python function with its frame compiled. It has a __dict__, binds as a method, and takes no argument
    tuple. Its __code__, __defaults__ and __kwdefaults__ are those of the function."""
    function: Callable[..., Any]
    options: Options
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def arm(function: Callable[..., Any], options: Options | None) -> ArmedCall:
    """TypeError unless `function` is a Python function or a bound method of one."""

def count_request() -> None:
    """Counts a module that an existing armed call compiles."""

class GraphBreakError(RuntimeError):
    """A graph break under fullgraph=True: file, line, the expression, the cause and what to do."""

def set_thread_enabled(enabled: bool) -> bool:
    """Whether armed calls of this thread compile; returns the previous value. If not, they run as plain Python."""

def enable_global() -> None:
    """Installs the standing hook of FRAMEJIT=1, with the filters of the environment."""

def report_vain_filter() -> None:
    """At exit: logs that FRAMEJIT_FILTER left out everything that FRAMEJIT=1 could have compiled."""

def treatment_of(op: str) -> str:
    """How an ATen op ("add.Tensor") is treated: decomposed, view, lowered or extern."""

def is_original(object: object, module: str, path: str) -> bool:
    """Whether a row that names a member of a module believes an object. For tests."""

def costs() -> tuple[str, dict[str, int]]:
    """The class of this machine, and its costs by name: rows of inductor/target/costs.def."""

def replace_costs(rows: str) -> None:
    """Replaces costs for later compiles; for benchmarks/costs.py."""

def set_kernel_cache(folder: str, megabytes: int) -> None:
    """Keeps compiled kernels in this folder; "" keeps none. ValueError says why a folder is refused."""

def refresh(tensors: list[Tensor]) -> None:
    """Stops trusting these weights to be unchanged (freezing=True)."""

def backends() -> list[str]:
    """Names that Options.backend may have."""

def stats() -> dict[str, Any]:
    """Totals since import or reset."""

def totals() -> list[tuple[str, str]]:
    """Name and description of each total."""

def reset() -> None:
    """Drops every compiled entry and zeroes the totals. Running calls finish with the entries that they hold."""

def add_listener(listener: Callable[[Mapping[str, Any]], None]) -> int:
    """Calls `listener` with each event: id, channel, event, at, text, json, artefact, fields (a dict)."""

def remove_listener(token: int) -> None: ...
def warn_once(asked: str, instead: str) -> None:
    """Logs, once until reset(), that a request is done differently or not at all."""
def emit_break(reason: str, detail: str, at: str) -> None:
    """Logs and counts a break that is known before any frame runs. `reason` is a row of reasons.def."""


def with_short_lists(text: str) -> str: ...
