"""Real models are captured whole (one graph, no break) and equal eager: float32 and bfloat16, SDPA and eager attention."""
import copy

import pytest
import torch

import framejit
from check import same
from models import ATTENTION, MODELS, make

pytest.importorskip("transformers")
NO_ATTENTION = {"resnet", "convnext"}
CASES = [(n, a, d) for n in MODELS for a in ATTENTION for d in (torch.float32, torch.bfloat16) if not (n in NO_ATTENTION and a == "eager")]


def float64_reference(model, inputs):
    reference = copy.deepcopy(model).double()
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    with torch.no_grad():
        return reference(**wide)


@pytest.mark.parametrize("name,attn,dtype", CASES, ids=lambda v: str(v).replace("torch.", ""))
@pytest.mark.parametrize("backend", ("eager", "framejit"))
def test_whole_model(name, attn, dtype, backend):
    model, inputs = make(name, attn, dtype)
    framejit.reset()
    with torch.no_grad():
        eager = model(**inputs)
        compiled = framejit.compile(model, backend=backend)
        for _ in range(2):
            got = compiled(**inputs)
            assert type(got) is type(eager) and list(got) == list(eager)
            for key in eager:
                compare(got[key], eager[key], dtype, key)
    stats = framejit.stats()
    assert stats["graph_breaks"] == 0, stats["break_reasons"]
    assert stats["graphs"] == 1


def compare(got, eager, dtype, key):
    if isinstance(eager, torch.Tensor):
        assert got.shape == eager.shape and got.dtype == eager.dtype and got.stride() == eager.stride(), key
        tolerance = 2e-5 if dtype == torch.float32 else 3e-2
        scale = float(eager.abs().max())
        assert float((got.double() - eager.double()).abs().max()) <= tolerance * max(scale, 1.0), key
    elif isinstance(eager, (tuple, list)):
        assert len(got) == len(eager)
        for a, b in zip(got, eager):
            compare(a, b, dtype, key)
    else:
        assert type(got) is type(eager), key
