"""kornia: its public functions and modules on small images; arguments without a default are made by their names."""
import inspect
import random

import kornia
import torch

from wild_program import PassedOver, Program

FOLDERS = ("color", "enhance", "filters", "geometry.transform", "geometry.conversions", "geometry.linalg",
           # the others fetch weights
           "geometry.homography", "geometry.subpix", "morphology", "losses", "metrics", "augmentation")


def image(channels=3):
    return torch.rand(2, channels, 16, 20)


GIVEN = {
    "kernel_size": lambda: (3, 3), "sigma": lambda: (1.5, 1.5), "sigma_color": lambda: 0.2,
    "sigma_space": lambda: (1.5, 1.5), "kernel": lambda: torch.ones(3, 3), "factor": lambda: 0.5,
    "angle": lambda: torch.tensor([10.0, 20.0]), "size": lambda: (8, 10), "dsize": lambda: (8, 10),
    "gamma": lambda: 0.7, "gain": lambda: 1.5, "mean": lambda: torch.tensor([0.5, 0.4, 0.3]),
    "std": lambda: torch.tensor([0.2, 0.3, 0.2]), "window_size": lambda: 3, "max_val": lambda: 1.0,
    "M": lambda: torch.eye(3)[None, :2].repeat(2, 1, 1), "translation": lambda: torch.tensor([[1.0, 2.0]] * 2),
    "scale_factor": lambda: torch.tensor([[0.9, 1.1]] * 2), "shear": lambda: torch.tensor([[0.1, 0.2]] * 2),
    "bits": lambda: 4, "thresholds": lambda: 0.4, "bins": lambda: torch.linspace(0, 1, 8),
    "bandwidth": lambda: torch.tensor(0.1), "low_threshold": lambda: 0.1, "high_threshold": lambda: 0.3,
    "center": lambda: torch.tensor([[8.0, 8.0]] * 2), "factor_h": lambda: 0.3, "height": lambda: 16,
    "width": lambda: 20, "num_classes": lambda: 3, "axis_angle": lambda: torch.rand(2, 3),
    "points": lambda: torch.rand(2, 5, 2), "dim": lambda: 2, "angle_rad": lambda: 0.3,
    "boxes": lambda: torch.tensor([[[2.0, 2.0], [9.0, 2.0], [9.0, 9.0], [2.0, 9.0]]] * 2),
    "homography": lambda: torch.eye(3).repeat(2, 1, 1),
}
TELLS_COMPILING = "is_compiling"  # its answer is meant to differ
MATRIX = ("matrix", "homography", "transform", "_T_", "rot")


def programs():
    found = {}
    for folder in FOLDERS:
        module = kornia
        for part in folder.split("."):
            module = getattr(module, part, None)
        for name in sorted(set(dir(module)) - {TELLS_COMPILING}) if module else ():
            value = getattr(module, name)
            if getattr(value, "__module__", "").startswith("kornia") and (inspect.isfunction(value)
                or (inspect.isclass(value) and issubclass(value, torch.nn.Module))):
                found[f"{folder}.{name}"] = value
    return found


def names(seed):
    found = list(programs())
    random.Random(seed).shuffle(found)
    return found


def value_for(parameter):
    if parameter.name in GIVEN:
        return GIVEN[parameter.name]()
    if any(part in parameter.name for part in MATRIX):
        return torch.eye(3).repeat(2, 1, 1)
    return image()


def arguments(signature):
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return tuple(value_for(p) for p in signature.parameters.values() if p.default is p.empty and p.kind in kinds
                 and p.name != "self")


def make(name):
    torch.manual_seed(0)
    value = programs()[name]
    if not inspect.isclass(value):
        return Program(value, arguments(inspect.signature(value)))
    try:
        module = value(*arguments(inspect.signature(value.__init__))).eval()
    except Exception as e:
        raise PassedOver(f"{type(e).__name__} {str(e)[:100]}") from e
    return Program(module, arguments(inspect.signature(type(module).forward)) or (image(),))
