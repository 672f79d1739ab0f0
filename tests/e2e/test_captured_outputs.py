"""output_hidden_states and output_attentions of transformers: the first call installs hooks, later calls run them."""
import pytest
import torch

transformers = pytest.importorskip("transformers")

import framejit  # noqa: E402
from check import exactly_as, same  # noqa: E402
from small_models import parts  # noqa: E402

TEXT = dict(vocab_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LAYERS = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
CODERS = dict(d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
              encoder_ffn_dim=32, decoder_ffn_dim=32, decoder_start_token_id=2)
HEADS = dict(num_key_value_heads=1, max_position_embeddings=64)


def text():
    return {"input_ids": torch.arange(3, 9)[None]}


def texts():
    return {"input_ids": torch.arange(3, 9)[None], "decoder_input_ids": torch.arange(3, 6)[None]}


def bert():
    return transformers.BertModel(transformers.BertConfig(**LAYERS, **TEXT)), text()


def gpt2():
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64, **TEXT)
    return transformers.GPT2LMHeadModel(config), text()


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**HEADS, **LAYERS, **TEXT)), text()


def gemma2():
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(head_dim=8, **HEADS, **LAYERS, **TEXT)), text()


def bart():
    config = transformers.BartConfig(max_position_embeddings=64, **CODERS, **TEXT)
    return transformers.BartForConditionalGeneration(config), texts()


def t5():
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0,
                                   **TEXT)
    return transformers.T5ForConditionalGeneration(config), texts()


def vit():
    config = transformers.ViTConfig(image_size=32, patch_size=8, **LAYERS)
    return transformers.ViTModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


def whisper():
    config = transformers.WhisperConfig(num_mel_bins=8, max_source_positions=10, max_target_positions=32,
                                        suppress_tokens=None, begin_suppress_tokens=None, **CODERS, **TEXT)
    model = transformers.WhisperForConditionalGeneration(config)
    return model, {"input_features": torch.randn(1, 8, 20), "decoder_input_ids": texts()["decoder_input_ids"]}


def hooks(model):
    return [len(m._forward_hooks) for m in model.modules()]


@pytest.mark.parametrize("what", ["output_hidden_states", "output_attentions"])
@pytest.mark.parametrize("make", [bert, gpt2, llama, gemma2, bart, t5, vit, whisper], ids=lambda f: f.__name__)
def test_whole_from_the_first_call_on(make, what):
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        model, inputs = make()
        if what == "output_attentions":
            model.set_attn_implementation("eager")
        made.append(model.eval())
    ours, plain = made
    compiled = framejit.compile(ours)
    with torch.no_grad():
        for _ in range(4):
            got, want = compiled(**inputs, **{what: True}), plain(**inputs, **{what: True})
            same(parts(got), parts(want), exactly_as(lambda: parts(plain(**inputs, **{what: True}))))
            assert hooks(ours) == hooks(plain)
    stats = framejit.stats()
    assert stats["graph_breaks"] == 0 and stats["graphs"] <= 2 and stats["fallback_reasons"] == {}, stats
    assert stats["hits"] >= 2
