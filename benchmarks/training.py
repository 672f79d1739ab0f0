"""Steps of training (forward, backward, optimizer) in turn: eager, framejit and (with --torch-compile) torch.compile.

    python benchmarks/training.py [--torch-compile] [--only "BERT-base,AdamW"] [--dtypes f32,bf16] [--batch 8]
                                  [--rounds 10] [--optimizer]

Each row is a process. Models have their published sizes, random weights, dropout as published, and AdamW; each compiler
has its own copy. bf16 is autocast, which each step enters. The batch is halved until a step of eager takes less than
SLOWEST seconds, and there are as many rounds as fit into LONGEST seconds, from FEWEST to --rounds; the row names both.
--optimizer: both compilers also compile the optimizer's step. Rows of parts: one op and ten ops (what a call costs),
the cross-entropy of a large vocabulary, and AdamW over the tensors of BERT-base, next to torch's three forms and the
time that copying its bytes takes.

"first s" is the first step, "beyond warm s" is how much longer it takes than the fastest later one. MB is the peak of
one step (memory.py), including what the step leaves. Ratios are medians over rounds. A row in which framejit ran a
backward plainly, or compiled during the measurement, is an error.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F

from memory import compilers, peak_of
from models import DTYPES, ids
from pairs import measure, median, ratio
from rows import run_rows

SLOWEST = 10.0  # seconds of a step of eager
LONGEST, FEWEST = 30.0, 5  # seconds of all rounds of a model; rounds
WARM = 4        # steps before the measurement
DIFFERS = {"f32": 1e-3, "bf16": 3e-2}  # the largest relative difference of losses after one step
TOKENS, VOCABULARY, ROWS_OF_LOGITS = 128, 50_000, 1024
BF16 = ("BERT-base", "GPT-2", "ViT-B/16", "ResNet-50", "Llama-style")


# ---- models with a loss: batch -> (model, keyword arguments)


def masked_lm(config_class, model_class, **settings):
    def make(batch):
        return model_class(config_class(**settings)), dict(
            input_ids=ids_of(batch), attention_mask=torch.ones(batch, TOKENS, dtype=torch.long), labels=ids_of(batch))
    return make


def ids_of(batch, length=TOKENS):
    return torch.cat([ids(length) for _ in range(batch)])


def images(batch):
    return dict(pixel_values=torch.randn(batch, 3, 224, 224), labels=torch.randint(0, 1000, (batch,)))


def bert(batch):
    from transformers import BertConfig, BertForMaskedLM
    return masked_lm(BertConfig, BertForMaskedLM)(batch)


def distilbert(batch):
    from transformers import DistilBertConfig, DistilBertForMaskedLM
    return masked_lm(DistilBertConfig, DistilBertForMaskedLM)(batch)


def gpt2(batch):
    from transformers import GPT2Config, GPT2LMHeadModel
    return masked_lm(GPT2Config, GPT2LMHeadModel, use_cache=False)(batch)


def llama(batch):
    from transformers import LlamaConfig, LlamaForCausalLM
    return masked_lm(LlamaConfig, LlamaForCausalLM, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                     num_attention_heads=16, num_key_value_heads=8, vocab_size=32000, use_cache=False)(batch)


def t5(batch):
    from transformers import T5Config, T5ForConditionalGeneration
    config = T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0,
                      use_cache=False)
    return T5ForConditionalGeneration(config), dict(input_ids=ids_of(batch), labels=ids_of(batch, 32))


def vit(batch):
    from transformers import ViTConfig, ViTForImageClassification
    return ViTForImageClassification(ViTConfig(num_labels=1000)), images(batch)


def resnet(batch):
    from transformers import ResNetConfig, ResNetForImageClassification
    return ResNetForImageClassification(ResNetConfig(num_labels=1000)), images(batch)


def convnext(batch):
    from transformers import ConvNextConfig, ConvNextForImageClassification
    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000)), images(batch)


def whisper(batch):
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    config = WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
                           decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, use_cache=False)
    return WhisperForConditionalGeneration(config), dict(input_features=torch.randn(batch, 80, 3000),
                                                         labels=ids_of(batch, 32))


def clip(batch):
    from transformers import CLIPConfig, CLIPModel
    return CLIPModel(CLIPConfig()), dict(input_ids=ids_of(batch, 77), return_loss=True,
                                         pixel_values=torch.randn(batch, 3, 224, 224))


MODELS = {"BERT-base": bert, "DistilBERT": distilbert, "GPT-2": gpt2, "Llama-style": llama, "T5-small": t5,
          "ViT-B/16": vit, "ResNet-50": resnet, "ConvNeXt-T": convnext, "Whisper-tiny": whisper, "CLIP": clip}


# ---- what is timed


def trainer(name, batch, dtype, compile_, with_optimizer):
    """A step of training that returns its loss."""
    torch.manual_seed(0)
    model, inputs = MODELS[name](batch)
    optimizer = torch.optim.AdamW(model.train().parameters(), 1e-4)
    run, update = compile_(model), compile_(optimizer.step) if with_optimizer else optimizer.step

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = run(**inputs).loss
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss.detach()
    torch.manual_seed(1)
    return step


def seconds_of(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def batch_that_fits(name, dtype, batch):
    while batch > 1:
        step = trainer(name, batch, dtype, lambda f: f, False)
        step()
        if seconds_of(step) < SLOWEST:
            break
        batch //= 2
    return batch


def rounds_that_fit(seconds, most):
    """seconds: those of a warm step of each. A round has two steps of each."""
    return min(most, max(FEWEST, int(LONGEST / (2 * sum(seconds)))))


def settled(stats):
    return {key: stats[key] for key in ("graphs", "fallbacks", "backward_graphs")}


def timed(calls, out, rounds, target=0.001):
    """Measures, and adds times and ratios to `out`. framejit compiles nothing meanwhile, and its backward runs
    compiled."""
    import framejit
    for call in calls.values():  # torch.compile has changed the classes that it compiled; guards see that once
        call()
    before = framejit.stats()
    kept, out["dropped"] = measure(calls, rounds=rounds, target=target, warm=True)
    after = framejit.stats()
    assert settled(before) == settled(after), "something was compiled, or ran plainly, within the clock"
    out.update({f"{key} ms": median(seconds) * 1e3 for key, seconds in kept.items()})
    out.update({f"over {key}": ratio(kept[key], kept["framejit"]) for key in kept if key != "framejit"})
    return kept, after["backward_runs"] - before["backward_runs"]


def model_row(name, dtype, options):
    import framejit
    if "backward_runs" not in framejit.stats():
        raise SystemExit("this build of framejit compiles no backward")
    batch = batch_that_fits(name, dtype, options.batch)
    out, steps, losses, fastest = {"batch": batch}, {}, {}, {}
    for key, compile_ in compilers(options.torch_compile).items():
        step = steps[key] = trainer(name, batch, dtype, compile_, options.optimizer)
        out[f"{key} first s"] = seconds_of(step)
        losses[key] = float(step())
        fastest[key] = min(seconds_of(step) for _ in range(WARM - 1))
        out[f"{key} beyond warm s"] = out[f"{key} first s"] - fastest[key]
        out[f"{key} MB"] = peak_of(step)[0] / 1e6
        if key == "framejit":
            seen = framejit.stats()
            out.update({k: seen[k] for k in ("graphs", "graph_breaks", "fallbacks", "backward_graphs", "kernels")})
    out["differs"] = abs(losses["framejit"] - losses["eager"]) / abs(losses["eager"])
    assert out["differs"] < DIFFERS[dtype], f"the loss differs from eager's by {out['differs']:.2g}"
    out.update({f"of {key}": out["framejit MB"] / out[f"{key} MB"] for key in steps if key != "framejit"})
    out["rounds"] = rounds_that_fit(fastest.values(), options.rounds)
    runs = timed(steps, out, out["rounds"])[1]
    assert runs >= 2 * out["rounds"], f"{runs} backward plans ran in {2 * out['rounds']} steps"
    return out


# ---- parts


def one_op(x):
    return x * 2


def ten_ops(x):
    for _ in range(5):
        x = torch.sin(x) * 2
    return x


def call_row(fn, options):
    """Forward and backward of a small tensor: the cost of a call."""
    torch.set_num_threads(1)
    weight, calls = torch.ones(8), {}
    for key, compile_ in compilers(options.torch_compile).items():
        run, x = compile_(fn), torch.randn(8, requires_grad=True)

        def call(run=run, x=x):
            x.grad = None
            run(x).backward(weight)
        for _ in range(WARM):
            call()
        calls[key] = call
    kept, runs = timed(calls, out := {}, options.rounds * 3, target=0.02)
    assert runs > 0, "no backward plan ran"
    for key in [k for k in out if k.endswith(" ms")]:
        out[key.removesuffix(" ms") + " us"] = out.pop(key) * 1e3
    out["framejit beyond eager us"] = out["framejit us"] - out["eager us"]
    return out


def cross_entropy_row(options):
    labels, calls, out = torch.randint(0, VOCABULARY, (ROWS_OF_LOGITS,)), {}, {}
    for key, compile_ in compilers(options.torch_compile).items():
        run = compile_(lambda logits: F.cross_entropy(logits, labels))
        logits = torch.randn(ROWS_OF_LOGITS, VOCABULARY, requires_grad=True)

        def call(run=run, logits=logits):
            logits.grad = None
            run(logits).backward()
        for _ in range(WARM):
            call()
        calls[key] = call
        out[f"{key} MB"] = peak_of(call)[0] / 1e6
    out.update({f"of {key}": out["framejit MB"] / out[f"{key} MB"] for key in calls if key != "framejit"})
    assert timed(calls, out, options.rounds)[1] > 0, "no backward plan ran"
    return out


def adamw_row(options):
    """The update of all tensors of BERT-base. It reads four numbers for each and writes three; a copy reads one and
    writes one."""
    import framejit
    from transformers import BertConfig, BertModel
    with torch.device("meta"):
        shapes = [p.shape for p in BertModel(BertConfig()).parameters()]

    def optimizer(**form):
        parameters = [torch.nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes]
        for p in parameters:
            p.grad = torch.randn_like(p) * 0.01
        return torch.optim.AdamW(parameters, 1e-4, **form)
    calls = {"eager": optimizer(foreach=True).step, "fused": optimizer(fused=True).step,
             "framejit": framejit.compile(optimizer().step)}
    if options.torch_compile:
        calls["torch.compile"] = torch.compile(optimizer(foreach=True).step)
    elements = sum(shape.numel() for shape in shapes)
    source, target = torch.ones(elements), torch.zeros(elements)
    calls["copy"] = lambda: target.copy_(source)
    for key in calls:
        for _ in range(WARM):
            calls[key]()
    out = {"tensors": len(shapes), "graphs": framejit.stats()["graphs"]}
    assert out["graphs"] > 0, "nothing was compiled"
    kept, _ = timed(calls, out, options.rounds)
    del out["over copy"]
    out["share of copy limit"] = ratio(kept["copy"], kept["framejit"]) * 7 / 2
    return out


PARTS = {"one op": lambda options: call_row(one_op, options), "ten ops": lambda options: call_row(ten_ops, options),
         "cross-entropy": cross_entropy_row, "AdamW": adamw_row}
PART = "part"  # in place of a dtype
ROWS = [(name, dtype) for dtype in DTYPES for name in MODELS if dtype == "f32" or name in BF16] \
    + [(name, PART) for name in PARTS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--optimizer", action="store_true")
    parser.add_argument("--only", default=",".join([*MODELS, *PARTS]))
    parser.add_argument("--dtypes", default=",".join([*DTYPES, PART]))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        name, dtype = options.row
        return print(json.dumps(PARTS[name](options) if dtype == PART else model_row(name, dtype, options)))
    only, dtypes = options.only.split(","), options.dtypes.split(",")
    run_rows("training", __file__, [(name, dtype) for name, dtype in ROWS if name in only and dtype in dtypes],
             ["--rounds", str(options.rounds), "--batch", str(options.batch),
              *["--torch-compile"] * options.torch_compile, *["--optimizer"] * options.optimizer])


if __name__ == "__main__":
    main()
