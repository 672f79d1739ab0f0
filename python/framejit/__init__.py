"""framejit: a bytecode-tracing just-in-time compiler for PyTorch.

    import torch, framejit

    @framejit.compile
    def f(x):
        return torch.relu(x * 2 + 1)

The C++ extension framejit._framejit does the work; this package has the public names, checks their arguments and
documents them.
"""
import atexit
import sys

import torch  # noqa: F401  first: the extension resolves torch's libraries from the process

from framejit._required_build import require_matching_build

require_matching_build()

from framejit import _framejit  # noqa: E402
from framejit.api import (  # noqa: E402
    GraphBreakError,
    cache,
    compile,
    disable,
    is_compiling,
    list_backends,
    list_mode_options,
    mark_dynamic,
    mark_static,
    mark_static_address,
    refresh,
    reset,
    stats,
)
from framejit.explain import Explanation, explain  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "Explanation", "GraphBreakError", "cache", "compile", "disable", "explain", "is_compiling", "list_backends",
    "list_mode_options", "mark_dynamic", "mark_static", "mark_static_address", "refresh", "reset", "stats",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _report_vain_filter() -> None:
    """Worker processes have functions of their own, in which no filter need be found."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        _framejit.report_vain_filter()


_framejit.configure()
atexit.register(_report_vain_filter)
# With FRAMEJIT=1, if the program imported framejit before torch: see _framejit_startup.py
if globals().pop("enable_global_mode_at_the_end", False):
    _framejit.enable_global()
