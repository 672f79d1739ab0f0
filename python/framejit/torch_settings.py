"""Settings of torch's own compiler that a program may have changed and that framejit does not follow. The log names
each once.

They are read from torch's own modules, if the program has loaded these.
"""
from __future__ import annotations

import sys

from framejit import _framejit

# (module, setting, its default value, what to do instead)
SETTINGS = (
    ("torch.compiler.config", "dynamic_sources", "", "mark tensors with framejit.mark_dynamic"),
    ("torch.compiler.config", "dynamic_values", "", "mark tensors with framejit.mark_dynamic"),
    ("torch.compiler.config", "unbacked_sources", "", "mark tensors with framejit.mark_dynamic"),
    ("torch._dynamo.config", "recompile_limit", 8, "FRAMEJIT_ENTRIES says how many compiled forms a segment keeps"),
    ("torch._dynamo.config", "fail_on_recompile_limit_hit", False, "with fullgraph=True framejit raises there"),
    ("torch._dynamo.config", "error_on_recompile", False, 'torch.compiler.set_stance("fail_on_recompile") is followed'),
    ("torch._dynamo.config", "assume_static_by_default", True, "pass dynamic=True"),
    ("torch._dynamo.config", "automatic_dynamic_shapes", True, "pass dynamic=False"),
    ("torch._dynamo.config", "capture_scalar_outputs", False, "a tensor that becomes a Python number is a graph break"),
    ("torch._dynamo.config", "capture_dynamic_output_shape_ops", False,
     "an op whose result size depends on data is a graph break"),
    ("torch._dynamo.config", "disable", False, 'torch.compiler.set_stance("force_eager") is followed'),
    ("torch._inductor.config", "max_autotune", False, 'pass mode="max-autotune"'),
    ("torch._inductor.config", "freezing", False, "weights are packed and folded without it"),
)


def say_what_is_not_followed() -> None:
    """Looks at each setting whose module is loaded."""
    for module, name, usual, instead in SETTINGS:
        holder = sys.modules.get(module)
        if holder is not None and getattr(holder, name, usual) != usual:
            _framejit.warn_once(f"{module}.{name} is not followed", instead)
