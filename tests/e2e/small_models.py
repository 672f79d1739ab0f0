"""Small configurations of real models, with random weights, and inputs with padding; and the demo's model."""
import sys
from pathlib import Path

import torch


def _ids(vocabulary=99, batch=2, length=12):
    ids = torch.randint(3, vocabulary, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[1, length - 4:] = 0
    return ids, mask


def _small(**extra):
    return dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
                **extra)


def bert(attn):
    from transformers import BertConfig, BertModel
    ids, mask = _ids()
    return BertModel(BertConfig(**_small(attn_implementation=attn))), dict(input_ids=ids, attention_mask=mask)


def roberta(attn):
    from transformers import RobertaConfig, RobertaModel
    ids, mask = _ids()
    return RobertaModel(RobertaConfig(**_small(attn_implementation=attn))), dict(input_ids=ids, attention_mask=mask)


def distilbert(attn):
    from transformers import DistilBertConfig, DistilBertModel
    ids, mask = _ids()
    config = DistilBertConfig(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37, attn_implementation=attn)
    return DistilBertModel(config), dict(input_ids=ids, attention_mask=mask)


def gpt2(attn):
    from transformers import GPT2Config, GPT2LMHeadModel
    ids, mask = _ids()
    config = GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_implementation=attn)
    return GPT2LMHeadModel(config), dict(input_ids=ids, attention_mask=mask)


def llama(attn):
    from transformers import LlamaConfig, LlamaForCausalLM
    ids, mask = _ids()
    config = LlamaConfig(**_small(num_key_value_heads=2, max_position_embeddings=64, attn_implementation=attn))
    return LlamaForCausalLM(config), dict(input_ids=ids, attention_mask=mask)


def t5(attn):
    from transformers import T5Config, T5ForConditionalGeneration
    ids, mask = _ids()
    config = T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0,
                      attn_implementation=attn)
    return T5ForConditionalGeneration(config), dict(input_ids=ids, attention_mask=mask, decoder_input_ids=ids[:, :7])


def vit(attn):
    from transformers import ViTConfig, ViTModel
    config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=32,
                       patch_size=8, attn_implementation=attn)
    return ViTModel(config), dict(pixel_values=torch.randn(2, 3, 32, 32))


def resnet(attn):
    from transformers import ResNetConfig, ResNetModel
    return ResNetModel(ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 32, 64], depths=[2, 2, 2, 2])), dict(
        pixel_values=torch.randn(2, 3, 64, 64))


def convnext(attn):
    from transformers import ConvNextConfig, ConvNextModel
    return ConvNextModel(ConvNextConfig(hidden_sizes=[16, 32, 32, 64], depths=[2, 2, 2, 2])), dict(
        pixel_values=torch.randn(2, 3, 64, 64))


def whisper(attn):
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder
    config = WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=37, num_mel_bins=20,
                           max_source_positions=30, decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=37,
                           vocab_size=99, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                           attn_implementation=attn)
    return WhisperEncoder(config), dict(input_features=torch.randn(2, 20, 60))


ATTENTION = ("sdpa", "eager")
NO_ATTENTION = {"resnet", "convnext"}
DTYPES = (torch.float32, torch.bfloat16)
MODELS = {f.__name__: f for f in (bert, roberta, distilbert, gpt2, llama, t5, vit, resnet, convnext, whisper)}
CASES = [(n, a, d) for n in MODELS for a in ATTENTION for d in DTYPES if not (n in NO_ATTENTION and a != ATTENTION[0])]


def make(name, attn="sdpa", dtype=torch.float32, seed=0):
    """(model in eval mode, keyword inputs); floating inputs and weights in dtype."""
    torch.manual_seed(seed)
    model, inputs = MODELS[name](attn)
    inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
    return model.eval().to(dtype), inputs


def sentence_model(attn="sdpa", dtype=torch.float32):
    """The demo's model with its own weights, and its tokenized lines with their padding mask."""
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
    import demo
    model = demo.load_model()
    model.set_attn_implementation(attn)
    return model.to(dtype), demo.batch()


def parts(output):
    """What a model returns as lists and dicts, with the names of its classes."""
    name = type(output).__qualname__
    if isinstance(output, dict):
        return [name, {key: parts(v) for key, v in output.items()}]
    if isinstance(output, (tuple, list)):
        return [name, *map(parts, output)]
    if hasattr(output, "layers"):  # a cache of keys and values
        return [name, *(parts((layer.keys, layer.values)) for layer in output.layers)]
    if hasattr(output, "self_attention_cache"):
        return [name, parts(output.self_attention_cache), parts(output.cross_attention_cache)]
    return output


def decode_steps(model, step, ids, tokens):
    """Decoding with a static cache: the model itself takes the prompt, then `step` takes each of `tokens`."""
    from transformers import StaticCache
    cache = StaticCache(config=model.config, max_cache_len=24)
    logits = [model(input_ids=ids, past_key_values=cache, cache_position=torch.arange(ids.shape[1])).logits]
    for i, token in enumerate(tokens):
        logits.append(step(input_ids=token, past_key_values=cache,
                           cache_position=torch.tensor([ids.shape[1] + i])).logits)
    return logits, cache
