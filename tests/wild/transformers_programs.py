"""transformers: classes of its auto mappings, base models and heads, with small configurations and random weights."""
import random
import sys
from pathlib import Path

import torchvision_ops
from wild_program import PassedOver, Program

torchvision_ops.declare()
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import hf_classes  # noqa: E402
import transformers  # noqa: E402
# noqa: E402,F401  imported by all of them, once for all children
from transformers import T5ForConditionalGeneration, ViTModel
from transformers.models.auto import modeling_auto  # noqa: E402

LEFT_OUT = ("FOR_PRETRAINING", "BACKBONE", "TEXT_ENCODING")


def names(seed):
    mappings = [v for k, v in vars(modeling_auto).items() if k.endswith("MAPPING_NAMES")
                and not any(part in k for part in LEFT_OUT)]
    found = {c for m in mappings for v in m.values() for c in (v if isinstance(v, (list, tuple)) else [v])}
    found = sorted(name for name in found if not name.endswith(("Config", "Processor", "Extractor", "Tokenizer")))
    random.Random(seed).shuffle(found)
    return found


def make(name):
    cls, why = getattr(transformers, name), ""
    for wanted in (hf_classes.SMALL, hf_classes.FEWER):
        try:
            model, inputs, _ = hf_classes.make(cls, wanted)
            return Program(model, (), inputs)
        except Exception as e:  # it needs another configuration
            why = why or f"{type(e).__name__}: {str(e).strip().splitlines()[0][:120] if str(e).strip() else ''}"
    raise PassedOver(why)
