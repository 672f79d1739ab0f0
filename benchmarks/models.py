"""Models at their published sizes, random weights, batch 1, in turn: eager, framejit and (with --torch-compile)
torch.compile, with its defaults and with its option freezing.

    python benchmarks/models.py [--torch-compile] [--only BERT-base,GPT-2] [--dtypes f32,bf16] [--rounds 30]

One process per row. bf16 is autocast on the CPU, entered in each call (inside one long context, eager would keep the
cast weights). Before each call that counts comes one that does not: eager gives hundreds of MB back to the system,
which the next call would have to request. The row also gives the first call of each compiler (not paired; cold.py
measures it in a separate process), the largest difference from eager relative to the largest value, the resident memory
that compiling added, and the megabytes that framejit derived from weights before timing started. Ratios are medians
over rounds.
"""
import argparse
import json
import resource
import time

import torch
import torch._inductor.config

from pairs import measure, median, ratio
from rows import run_rows

DTYPES = ["f32", "bf16"]
COMPILERS = ("torch.compile", "freezing")  # for comparison
WARM = 8  # calls before timing starts: framejit derives from weights after the third
DIFFERS = {"f32": 1e-4, "bf16": 3e-2}  # a larger difference makes the row invalid


def ids(length, vocabulary=1000):
    return torch.randint(0, vocabulary, (1, length))


def bert():
    from transformers import BertConfig, BertModel
    return BertModel(BertConfig()), dict(input_ids=ids(128), attention_mask=torch.ones(1, 128, dtype=torch.long))


def distilbert():
    from transformers import DistilBertConfig, DistilBertModel
    return DistilBertModel(DistilBertConfig()), dict(input_ids=ids(128),
                                                     attention_mask=torch.ones(1, 128, dtype=torch.long))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(use_cache=False)), dict(input_ids=ids(128))


def vit():
    from transformers import ViTConfig, ViTModel
    return ViTModel(ViTConfig()), dict(pixel_values=torch.randn(1, 3, 224, 224))


def resnet():
    from transformers import ResNetConfig, ResNetForImageClassification
    return ResNetForImageClassification(ResNetConfig(num_labels=1000)), dict(pixel_values=torch.randn(1, 3, 224, 224))


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification
    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000)), dict(pixel_values=torch.randn(1, 3, 224,
        224))


def t5():
    from transformers import T5Config, T5Model
    config = T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, use_cache=False)
    return T5Model(config), dict(input_ids=ids(128), decoder_input_ids=ids(32))


def llama():
    from transformers import LlamaConfig, LlamaModel
    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                         num_key_value_heads=8, vocab_size=32000, use_cache=False)
    return LlamaModel(config), dict(input_ids=ids(128))


MODELS = {"BERT-base": bert, "DistilBERT": distilbert, "GPT-2": gpt2, "ViT-B/16": vit, "ResNet-50": resnet,
          "ConvNeXt-T": convnext, "T5-small": t5, "Llama-style": llama}


def load(name):
    """(model in eval mode, keyword arguments), the same numbers each time."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval(), inputs


def first_tensor(result):
    return result if isinstance(result,
                                torch.Tensor) else first_tensor(
                                    next(iter(result.values() if hasattr(result, "values") else result)))


def resident_megabytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 1e6


def compiled_by(compiler, model):
    """Settled by its first call. Freezing is requested in two ways: as an option, so that its backend differs from that
    of plain torch.compile, and as a setting, because the capture of parameters reads that."""
    import framejit
    if compiler == "framejit":
        return framejit.compile(model)
    if compiler == "freezing":
        torch._inductor.config.freezing = True
        return torch.compile(model, options={"freezing": True})
    return torch.compile(model)


def row(name, dtype, rounds, torch_compile):
    import framejit
    model, inputs = load(name)

    def call(f):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            return f(**inputs)

    with torch.no_grad():
        expected = first_tensor(call(model)).float()
        before = resident_megabytes()
        candidates, out = {"eager": model}, {}
        for compiler in ("framejit",) + COMPILERS * torch_compile:
            compiled = candidates[compiler] = compiled_by(compiler, model)
            start = time.perf_counter()
            call(compiled)
            out[f"{compiler} first s"] = time.perf_counter() - start
            for _ in range(WARM):
                call(compiled)
            torch._inductor.config.freezing = False
            if compiler == "framejit":
                out["MB"] = resident_megabytes() - before
                out.update({key: framejit.stats()[key] for key in ("graphs", "graph_breaks", "fallbacks", "ops",
                                                                   "kernels")})
        calls = {key: lambda f=f: call(f) for key, f in candidates.items()}
        for key, timed in calls.items():
            got = first_tensor(timed()).float()
            off = ((got - expected).abs().max() / expected.abs().max()).item()
            assert off < DIFFERS[dtype], f"{name} {dtype}: {key} differs from eager by {off:.2g} of its largest value"
            if key == "framejit":
                out["differs"] = off
        settled = framejit.stats()
        out["derived MB"] = settled["derived_bytes"] / 1e6
        kept, out["dropped"] = measure(calls, rounds=rounds, target=0.001, warm=True)
        now = framejit.stats()
        timed_calls = now["hits"] - settled["hits"]
        assert timed_calls >= 2 * rounds and all(now[key] == settled[key]
                                                 for key in ("graphs", "fallbacks", "derived_made",
                                                             "plain_hits")), "a call that was timed ran plainly"
        out.update({f"{key} ms": median(seconds) * 1e3 for key, seconds in kept.items()})
        for other in kept:
            if other != "framejit":
                out[f"over {other}"] = ratio(kept[other], kept["framejit"])
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--only", default=",".join(MODELS))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        return print(json.dumps(row(*options.row, options.rounds, options.torch_compile)))
    names = [(name, dtype) for dtype in options.dtypes.split(",") for name in options.only.split(",")]
    run_rows("models", __file__, names,
             ["--rounds", str(options.rounds), *["--torch-compile"] * options.torch_compile])


if __name__ == "__main__":
    main()
