"""timm: the smallest model of each family (each module of timm.models), random weights, a small image."""
import random

import torch

import torchvision_ops
from wild_program import PassedOver, Program

torchvision_ops.declare()
import timm  # noqa: E402

SMALL = ("test_", "atto", "femto", "pico", "nano", "xxs", "_xs", "tiny", "mini", "micro", "_s", "small", "_b0", "18",
         "050", "035", "_lite")
MOST_PARAMETERS = 40_000_000
SIDES = (64, 96, 128, 160, 224, 256)


def rank(name):
    """Names that suggest a small model come first."""
    return min((i for i, s in enumerate(SMALL) if s in name), default=len(SMALL)), len(name), name


def names(seed):
    found = timm.list_modules()
    random.Random(seed).shuffle(found)
    return found


def parameters(name):
    with torch.device("meta"):
        return sum(p.numel() for p in timm.create_model(name).parameters())


def make(family):
    candidates = sorted(timm.list_models(module=family), key=rank)[:3]
    if not candidates:
        raise PassedOver("no model")
    counts = {}
    for name in candidates:
        try:
            counts[name] = parameters(name)
        except Exception:  # a meta device cannot make it
            continue
    name = min(counts, key=counts.get, default=candidates[0])
    if counts.get(name, 0) > MOST_PARAMETERS:
        raise PassedOver(f"{name} has {counts[name] / 1e6:.0f}M parameters")
    why = None
    for side in SIDES:
        for options in ({"img_size": side}, {}):
            try:
                torch.manual_seed(0)
                model = timm.create_model(name, num_classes=10, **options).eval()
                x = torch.randn(1, model.default_cfg.get("input_size", (3,))[0], side, side)
                with torch.no_grad():
                    model(x)
                return Program(model, (x,))
            except Exception as e:  # another size
                why = e
    raise PassedOver(f"{name}: {type(why).__name__} {str(why)[:100]}")
