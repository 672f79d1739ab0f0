"""Classes of Hugging Face's model mapping that the tests do not name, picked by a seed: what is captured, and whether
it equals eager.

    python benchmarks/hf_classes.py SEED [--count 10] [--seconds 120]

Each class gets a small configuration, random weights and random inputs with padding. The seed shuffles the names. A
class that cannot be made small, or that refuses these inputs in eager, is reported and skipped. One process per class.
A row: class, graphs, graph breaks with their reasons, the largest difference from eager relative to eager's largest
value, and whether the contract's bound holds.
"""
import argparse
import inspect
import os
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
TESTS = Path(__file__).parents[1] / "tests" / "e2e"
sys.path.append(str(TESTS))
sys.path.append(str(Path(__file__).parent))

import torch  # noqa: E402

NOISE = 4  # the bound contains eager's own error, which may be small by chance for results of few elements
MOST_PARAMETERS = 60_000_000
# Settings that make a configuration small, if it has them; an alias is set by the name that the configuration knows.
SMALL = dict(vocab_size=99, hidden_size=32, d_model=32, n_embd=32, dim=32, embed_dim=32, embedding_size=32,
             projection_dim=32, decoder_hidden_size=32, num_hidden_layers=2, num_layers=2, encoder_layers=2,
             decoder_layers=2, num_decoder_layers=2, n_layer=2, n_layers=2, num_attention_heads=4,
             encoder_attention_heads=4, decoder_attention_heads=4, num_heads=4, n_head=4, n_heads=4,
             num_key_value_heads=2, head_dim=8, intermediate_size=37, encoder_ffn_dim=37, decoder_ffn_dim=37, d_ff=37,
             d_kv=8, ffn_dim=37, n_inner=37, image_size=32, patch_size=8, num_experts=4, num_local_experts=4,
             n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
             max_position_embeddings=64, n_positions=64, num_mel_bins=20, max_source_positions=30, kv_lora_rank=8,
             q_lora_rank=8, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, num_channels=3, pad_token_id=0,
             bos_token_id=1, eos_token_id=2)
FEWER = {name: value for name, value in SMALL.items() if name.endswith("layers")
         or name in ("n_layer", "vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}


class PassedOver(Exception):
    """Why a class is skipped."""


def model_classes():
    """Names of the mapping whose configuration tests/e2e/small_models.py does not name."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES
    named = set(re.findall(r"\b(\w+)Config\b", (TESTS / "small_models.py").read_text()))
    found = {c for v in MODEL_MAPPING_NAMES.values() for c in (v if isinstance(v, (list, tuple)) else [v])}
    return sorted(c for c in found if c.removesuffix("Model") not in named)


def picked(seed):
    names = model_classes()
    random.Random(seed).shuffle(names)
    return names


def shrink(config, wanted):
    for name, value in wanted.items():
        if isinstance(getattr(config, name, None), int) and not isinstance(getattr(config, name), bool):
            try:
                setattr(config, name, value)
            except (AttributeError, NotImplementedError, TypeError, ValueError):
                pass
    layers = getattr(config, "num_hidden_layers", None)
    for name, value in list(vars(config).items()):
        if hasattr(value, "model_type"):
            shrink(value, wanted)
        elif name in ("layer_types", "mlp_layer_types", "block_types") and isinstance(value,
            list) and isinstance(layers, int):
            setattr(config, name, value[:layers])
    config.use_cache = False
    return config


def make(cls, wanted):
    """(model in eval mode, keyword inputs, eager's result); the weights are made only if they are few."""
    config = shrink(cls.config_class(), wanted)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in cls(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise PassedOver(f"{parameters / 1e6:.0f}M parameters in its small configuration")
    torch.manual_seed(0)
    model = cls(config).eval()
    inputs = inputs_for(model, config)
    with torch.no_grad():
        return model, inputs, model(**inputs)


def inputs_for(model, config):
    ids = torch.randint(3, 90, (2, 12))
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    size = next((s for s in (getattr(config, "image_size", None),
                             getattr(getattr(config, "vision_config", None), "image_size", None))
                 if isinstance(s, int)), 64)
    taken, image = inspect.signature(model.forward).parameters, torch.randn(2, 3, size, size)
    main = model.main_input_name if model.main_input_name in taken or "pixel_values" not in taken else "pixel_values"
    if main == "input_ids":
        inputs = {main: ids, "attention_mask": mask}
        if "pixel_values" in taken and hasattr(config, "vision_config"):
            inputs["pixel_values"] = image
    elif main.startswith("pixel"):
        inputs = {main: image}
    else:
        inputs = {main: torch.randn(2, getattr(config, "num_mel_bins", 20), 60) if main == "input_features"
                  else torch.randn(2, 4000)}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in taken:
        inputs["decoder_input_ids"] = ids[:, :7]
    return inputs


def largest_difference(got, eager):
    """Over all floats of two equal structures, relative to eager's largest value."""
    from check import tensors_in
    pairs = [(g.double(), e.double()) for g, e in zip(tensors_in(dict(got)), tensors_in(dict(eager)))
             if e.is_floating_point() and e.numel()]
    return max((float((g - e).abs().max() / e.abs().max().clamp_min(1e-30)) for g, e in pairs), default=0.0)


def row(name):
    import framejit
    from check import exactly_as, same
    import transformers
    cls, found, why = getattr(transformers, name), None, ""
    for wanted in (SMALL, FEWER):
        try:
            model, inputs, eager = found = make(cls, wanted)
            break
        except Exception as e:
            why = why or f"{type(e).__name__}: {str(e).strip().splitlines()[0][:120] if str(e).strip() else ''}"
    if found is None:
        return f"passed over {name}: {why}"
    with torch.no_grad():
        compiled = framejit.compile(model)
        compiled(**inputs)
        got = compiled(**inputs)
    try:
        same(dict(got), dict(eager), exactly_as(lambda: dict(model(**inputs))))
        verdict = "equal"
    except AssertionError as e:
        numbers = re.search(r"off by (\S+), allowed (\S+)", str(e))
        beyond = float(numbers[1]) / float(numbers[2]) if numbers else float("inf")
        verdict = f"{beyond:.1f} times the bound" if beyond < NOISE else f"DIFFERS: {e}"
    stats = framejit.stats()
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(stats["break_reasons"].items()))
    return (f"{name:32} graphs {stats['graphs']:3}  breaks {stats['graph_breaks']:3} "
            f"{'(' + reasons + ')' if reasons else ''}  fallbacks {stats['fallbacks']}  "
            f"difference {largest_difference(got, eager):.1e}  {verdict}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=120, help="for one class")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        warnings.simplefilter("ignore")
        return print(row(options.row))
    rows = failed = 0
    for name in picked(options.seed):
        if rows == options.count:
            break
        try:
            done = subprocess.run([sys.executable, __file__, str(options.seed), "--row", name], capture_output=True,
                                  text=True, timeout=options.seconds)
            line = done.stdout.strip().splitlines()[-1:] or [f"{name} died: {done.stderr.strip().splitlines()[-1:]}"]
        except subprocess.TimeoutExpired:
            line = [f"{name} took longer than {options.seconds} s"]
        print(line[0].strip(), flush=True)
        rows += not line[0].strip().startswith("passed over")
        failed += "DIFFERS" in line[0] or " died" in line[0] or "took longer" in line[0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
