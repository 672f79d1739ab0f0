"""torchvision with a torch that its compiled part was not built for: declares its ops by name, so that its Python part
can be imported.

None of the programs here calls one of them.
"""
import importlib.util
import re
from pathlib import Path

import torch

KEPT = []  # ops go when their library object goes


def declare():
    spec = importlib.util.find_spec("torchvision")
    if spec is None or KEPT:
        return
    text = (Path(spec.submodule_search_locations[0]) / "_meta_registrations.py").read_text()
    names = sorted(set(re.findall(r'register_meta\("(\w+)"|torchvision::(\w+)"', text)))
    KEPT.append(torch.library.Library("torchvision", "FRAGMENT"))
    for name in sorted({"".join(pair) for pair in names}):
        KEPT[0].define(f"{name}(Tensor x) -> Tensor")
