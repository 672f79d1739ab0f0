"""The script that picks Hugging Face classes by a seed: what it picks, its rows, and that it notices a difference."""
import sys
from pathlib import Path

import pytest
import torch

import framejit
from check import fresh  # noqa: F401

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
pytest.importorskip("transformers")
import hf_classes  # noqa: E402


@pytest.mark.nothing_captured
def test_the_seed_decides():
    names = hf_classes.picked(3)
    assert names == hf_classes.picked(3) != hf_classes.picked(4) and len(set(names)) == len(names) > 300
    assert not {"BertModel", "LlamaModel", "T5Model", "WhisperModel"} & set(names) and "HeliumModel" in names


@pytest.mark.slow
@pytest.mark.nothing_captured  # in this process
def test_rows_are_counted(monkeypatch, capsys):
    monkeypatch.setattr(hf_classes, "picked", lambda seed: ["GlmImageVisionModel", "HeliumModel", "XGLMModel"])
    monkeypatch.setattr(sys, "argv", ["hf_classes.py", "4", "--count", "1"])
    assert hf_classes.main() == 0
    passed, row = capsys.readouterr().out.splitlines()
    assert passed.startswith("passed over GlmImageVisionModel") and row.startswith("HeliumModel") and row.endswith(
        "equal"), row


@pytest.mark.parametrize("name", ["HeliumModel", "MBartModel", "XGLMModel"])
def test_whole_classes(name):
    line = hf_classes.row(name)
    assert "graphs   1  breaks   0 " in line and "fallbacks 0" in line and line.endswith("equal"), line


def test_breaks_are_said_and_results_equal(monkeypatch):
    from transformers import HeliumModel
    forward = HeliumModel.forward

    def printing(self, *args, **kwargs):
        print(end="")
        return forward(self, *args, **kwargs)
    monkeypatch.setattr(HeliumModel, "forward", printing)
    line = hf_classes.row("HeliumModel")
    assert "(outside_effect 1)" in line and line.endswith("equal"), line


@pytest.mark.nothing_captured
def test_a_difference_is_told(monkeypatch):
    def wrong(model, **options):
        return lambda **inputs: {k: v * 1.001 if isinstance(v, torch.Tensor) else v for k, v in model(**inputs).items()}
    monkeypatch.setattr(framejit, "compile", wrong)
    assert "DIFFERS: " in hf_classes.row("HeliumModel") and "difference 1.0e-03" in hf_classes.row("HeliumModel")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_hidden_states_and_attentions_are_given(attention):
    from transformers import BertConfig, BertModel
    sizes = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37)
    model = BertModel(BertConfig(**sizes)).eval()
    model.set_attn_implementation(attention)
    ids = torch.randint(0, 90, (2, 7))
    for asked in ({"output_hidden_states": True}, {"output_attentions": True},
                  {"output_hidden_states": True, "output_attentions": True}):
        framejit.reset()
        want = model(ids, **asked)  # messages that are given once are given here
        compiled = framejit.compile(model)
        for _ in range(2):
            got = compiled(ids, **asked)
            assert list(got) == list(want)
            for a, b in zip(got.to_tuple(), want.to_tuple()):
                for x, y in zip(a if isinstance(a, tuple) else [a], b if isinstance(b, tuple) else [b]):
                    torch.testing.assert_close(x, y)
        assert framejit.stats()["graph_breaks"] == 0 and framejit.stats()["graphs"] == 1


def test_a_compiled_model_is_saved_and_loaded_as_the_original(tmp_path):
    from transformers import BertConfig, BertModel
    sizes = dict(vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=37)
    model, ids = BertModel(BertConfig(**sizes)).eval(), torch.randint(0, 90, (2, 7))
    compiled = framejit.compile(model)
    torch.testing.assert_close(compiled(ids).last_hidden_state, model(ids).last_hidden_state)
    compiled.save_pretrained(tmp_path)
    loaded = BertModel.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(ids).last_hidden_state, model(ids).last_hidden_state)
    assert framejit.stats()["graphs"] == 1
