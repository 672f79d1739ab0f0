"""transformers' generate() of tiny models with compiled modules: prompts of different lengths, one mode after the
other."""
import pytest
import torch

transformers = pytest.importorskip("transformers")

import framejit  # noqa: E402

SMALL = dict(vocab_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MODES = {"greedy": {}, "beams": {"num_beams": 2}, "three beams": {"num_beams": 3},
         "sampling": {"do_sample": True, "top_k": 10}}
LENGTHS = (5, 9, 7, 12, 3)


def t5():
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0,
                                   **SMALL)
    return transformers.T5ForConditionalGeneration(config)


def bart():
    config = transformers.BartConfig(d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
                                     decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
                                     max_position_embeddings=64, decoder_start_token_id=2, **SMALL)
    return transformers.BartForConditionalGeneration(config)


def llama():
    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                      num_key_value_heads=1, max_position_embeddings=64, **SMALL)
    return transformers.LlamaForCausalLM(config)


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=64,
                                                                **SMALL))


def qwen2moe():
    config = transformers.Qwen2MoeConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                         num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                                         num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                         shared_expert_intermediate_size=16, **SMALL)
    return transformers.Qwen2MoeForCausalLM(config)


def generate(model, prompt, mode):
    torch.manual_seed(0)
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, min_new_tokens=4,
                          **MODES[mode])


def entries():
    """How often something was compiled, by place in the code."""
    counts = {}
    token = framejit._framejit.add_listener(lambda e: e["event"] == "Graph"
                                            and counts.update({e["at"]: counts.get(e["at"], 0) + 1}))
    return counts, token


# A decoder alone has the step of a prompt, a step of one token, and that step with symbols, each for one row and for
# several: six. Encoder-decoders also have a first step that fills the cache of the encoder's keys, and caches of one
# row, of several rows, and of one token.
@pytest.mark.parametrize("make, most", [(t5, 9), (bart, 9), (llama, 6), (gpt2, 6), (qwen2moe, 6)],
                         ids=lambda v: getattr(v, "__name__", ""))
@pytest.mark.parametrize("modes", [("greedy",), ("beams",), ("greedy", "beams"), tuple(MODES)], ids=", ".join)
def test_prompts_of_five_lengths(make, most, modes):
    torch.manual_seed(3)
    model = make().eval()
    prompts = [torch.randint(3, 64, (1, length)) for length in LENGTHS]
    calls = [(prompt, modes[(i + j) % len(modes)]) for j in range(len(modes)) for i, prompt in enumerate(prompts)]
    want = [generate(model, *call) for call in calls]
    framejit.reset()
    counts, token = entries()
    try:
        compiled = framejit.compile(model)
        got = [generate(compiled, *call) for call in calls]
    finally:
        framejit._framejit.remove_listener(token)
    for call, ours, plain in zip(calls, got, want):
        assert torch.equal(ours, plain), call
    stats = framejit.stats()
    assert len(counts) == 1 and stats["graphs"] <= most, counts
    assert stats["recompiles"] == stats["graphs"] - 1 and stats["graph_breaks"] == 0 and stats[
        "fallback_reasons"] == {}, stats
    assert stats["hits"] + stats["graphs"] == stats["frames"], stats


def marks(tensors):
    return [getattr(t, "_dynamo_static_input_type", None) for t in tensors.values()]


def test_a_scan_that_fills_a_cache_is_one_graph():
    """If is_compiling() is true, Mamba calls vmap, which breaks; if it is false, Mamba marks what its cache holds."""
    torch.manual_seed(3)
    model = transformers.MambaForCausalLM(transformers.MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4,
                                                                   **SMALL)).eval()
    framejit.reset()
    compiled = framejit.compile(model)
    with torch.no_grad():
        model(input_ids=torch.randint(3, 64, (2, 5)), use_cache=True)  # warns once about what it lacks
        for _ in range(3):
            prompt = torch.randint(3, 64, (2, 5))
            got, want = compiled(input_ids=prompt, use_cache=True), model(input_ids=prompt, use_cache=True)
            torch.testing.assert_close(got.logits, want.logits)
            for ours, plain in zip(got.cache_params.layers, want.cache_params.layers, strict=True):
                torch.testing.assert_close(ours.recurrent_states, plain.recurrent_states)
                assert marks(ours.recurrent_states) == marks(plain.recurrent_states)
                assert marks(ours.conv_states) == marks(plain.conv_states) != [None]
    stats = framejit.stats()
    assert (stats["graphs"], stats["graph_breaks"], stats["recompiles"]) == (1, 0, 0), stats
