"""Refuses, in one sentence, a build that was made for another Python or another torch."""
import importlib.util
import sys

import torch

# The versions of CPython that framejit can be built for, as in tools/setup.
SUPPORTED = ((3, 11), (3, 12), (3, 13))


def require_matching_build() -> None:
    """Raises ImportError if the extension is missing or does not fit the running Python and torch."""
    if sys.version_info[:2] not in SUPPORTED:
        *names, last = (f"{major}.{minor}" for major, minor in SUPPORTED)
        raise ImportError(f"framejit needs CPython {', '.join(names)} or {last}; "
                          f"this is Python {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})")
    rebuild = f"make build PYTHON={sys.executable}"
    try:
        from framejit import _built_for
    except ImportError:
        raise ImportError(f"framejit's extension is not built; run: {rebuild}") from None
    running_torch = torch.__version__.split("+")[0]
    running = f"Python {sys.version_info[0]}.{sys.version_info[1]} with torch {running_torch}"
    built = f"Python {_built_for.python[0]}.{_built_for.python[1]} with torch {_built_for.torch}"
    same_torch = running_torch.split(".")[:2] == _built_for.torch.split(".")[:2]
    if sys.version_info[:2] != _built_for.python:
        raise ImportError(f"framejit was built for {built}, this is {running}; rebuild it with: {rebuild}")
    if not same_torch:
        wanted = ".".join(_built_for.torch.split(".")[:2])
        raise ImportError(f"framejit was built for {built}, this is {running}; install that torch with: "
                          f"{sys.executable} -m pip install 'torch=={wanted}.*', "
                          f"or rebuild framejit for this one with: {rebuild}")
    if importlib.util.find_spec("framejit._framejit") is None:
        raise ImportError(f"framejit's extension is not built; run: {rebuild}")
