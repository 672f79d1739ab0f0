"""The backend "framejit" of torch.compile: torch traces the program, and each graph that it hands over is compiled
here.

torch finds it by the entry point `torch_dynamo_backends` of this package. Nothing in framejit needs it:
framejit.compile traces programs itself. If gradients are recorded, the backward of each graph is compiled too.
"""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

from framejit import api


def compile_graph(graph: Any, inputs: Sequence[Any], *, mode: Optional[str] = None,
                  options: Optional[dict[str, Any]] = None) -> Callable[..., Any]:
    """`graph` is a module whose forward() torch generates only when its code is read. Later calls may pass inputs of
    other sizes."""
    assert graph.code
    return api.compile(graph.forward, mode=mode, options=options)


# torch.compiler.reset() asks its backends to forget what they have compiled.
compile_graph.reset = api.reset  # type: ignore[attr-defined]
