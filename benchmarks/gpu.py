"""Models on a GPU, random weights, one process for each row and compiler, with fresh caches.

    python benchmarks/gpu.py [ROW ...] [--compilers eager,framejit,...] [--turns N] [--out FILE] [--again]

A line of FILE is one process: row, compiler, milliseconds of a synchronised call (the median of 50; of 200 tokens for
"decode"), seconds of the first call, the error of its result against float32 over eager's own, GPU memory at its peak.
A row that FILE has is not run again, so a stopped run continues; --again repeats it. At the end all rows are printed as
a table: each figure next to eager's of the same FILE.

--turns N: the processes of N rows of models prepare side by side and then measure in turn, three times each, while the
others wait: whatever the machine does hits all compilers of a row. A figure is the median of the three, "in a row" that
of a call if 20 follow each other. First calls would disturb each other and are not reported.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

MODES = {"framejit": {}, "framejit reduce-overhead": {"mode": "reduce-overhead"},
         "framejit max-autotune": {"mode": "max-autotune"},
         "framejit graphs freezing": {"options": {"graphs": True, "freezing": True}},
         "torch.compile": {}, "torch.compile reduce-overhead": {"mode": "reduce-overhead"},
         "torch.compile max-autotune": {"mode": "max-autotune"}}
COMPILERS = ("eager", *MODES)
TURNS, READY = 3, "ready for a turn"
DEFAULT = ("eager", "framejit", "framejit reduce-overhead", "torch.compile", "torch.compile reduce-overhead")


def ids(batch, length, vocabulary=1000):
    import torch
    return torch.randint(0, vocabulary, (batch, length), device="cuda")


def vit(batch):
    import torch
    from transformers import ViTConfig, ViTForImageClassification
    return ViTForImageClassification(ViTConfig(num_labels=1000)), {
        "pixel_values": torch.randn(batch, 3, 224, 224, device="cuda")}


def resnet(batch):
    import torch
    import torchvision
    model = torchvision.models.resnet152()
    for name, buffer in model.named_buffers():  # as after training, so that folding has something to round
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
    return model, {"x": torch.randn(batch, 3, 224, 224, device="cuda")}


def bert(batch):
    import torch
    from transformers import BertConfig, BertModel
    return BertModel(BertConfig()), {"input_ids": ids(batch, 128),
                                     "attention_mask": torch.ones(batch, 128, dtype=torch.long, device="cuda")}


def gpt2(batch):
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(use_cache=False)), {"input_ids": ids(batch, 128)}


def t5(batch):
    from transformers import T5Config, T5Model
    config = T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, use_cache=False)
    return T5Model(config), {"input_ids": ids(batch, 128), "decoder_input_ids": ids(batch, 32)}


def convnext(batch):
    import torch
    from transformers import ConvNextConfig, ConvNextForImageClassification
    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000)), {
        "pixel_values": torch.randn(batch, 3, 224, 224, device="cuda")}


MODELS = {"ViT-B/16": vit, "ResNet-152": resnet, "BERT-base": bert, "GPT-2": gpt2, "T5-small": t5, "ConvNeXt": convnext}
ROWS = [*(f"{name} batch {batch}" for batch in (1, 16) for name in MODELS), "decode 7B", "decode 1B", "decode 7B int8"]


def tensor_of(result):
    import torch
    if isinstance(result, torch.Tensor):
        return result
    return result[0] if isinstance(result, tuple) else next(iter(result.values()))


def compiler_of(name):
    import torch
    if name == "eager":
        return lambda f: f
    if name.startswith("framejit"):
        import framejit
        return lambda f: framejit.compile(f, **MODES[name])
    return lambda f: torch.compile(f, **MODES[name])


def timed(call, count=50):
    import torch
    times = []
    for _ in range(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def in_a_row(call, count=20):
    import torch
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000 / count


def timed_in_turn(call):
    """The median times of a call, synchronised and in a row, over the turns: one for each line of stdin."""
    print(READY, flush=True)
    turns = []
    for _ in sys.stdin:
        for _ in range(5):
            call()
        turns.append((timed(call), in_a_row(call)))
        print(READY, flush=True)
    synchronised, followed = zip(*turns)
    return {"ms": statistics.median(synchronised), "in_a_row_ms": statistics.median(followed), "turns": synchronised}


def error_of(got, exact):
    return ((got.double() - exact.double()).norm() / exact.double().norm()).item()


def run_model(row, compiler, has_turns):
    import torch
    name, _, batch = row.rpartition(" batch ")
    torch.manual_seed(0)
    model, inputs = MODELS[name](int(batch))
    model = model.cuda().eval()
    with torch.no_grad():
        exact = tensor_of(model(**inputs)).clone()
        with torch.autocast("cuda", torch.bfloat16):
            eager = tensor_of(model(**inputs)).clone()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            call = compiler_of(compiler)(model)
            start = time.perf_counter()
            call(**inputs)
            torch.cuda.synchronize()
            first = time.perf_counter() - start
            for _ in range(10):
                result = call(**inputs)
            error = error_of(tensor_of(result), exact) / error_of(eager, exact)
            del result
            def again():
                call(**inputs)
            times = timed_in_turn(again) if has_turns else {"ms": timed(again), "first_s": first}
    return {**times, "error_of_eagers": error}


def run_decode(row, compiler):
    import torch
    import gpu_decode
    torch.manual_seed(0)
    return gpu_decode.run(row.removeprefix("decode "), compiler_of(compiler))


def child(row, compiler, has_turns):
    import torch
    figures = run_decode(row, compiler) if row.startswith("decode") else run_model(row, compiler, has_turns)
    figures |= {"row": row, "compiler": compiler, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                "peak_mb": round(torch.cuda.max_memory_allocated() / 2 ** 20)}
    if compiler.startswith("framejit"):
        import framejit
        stats = framejit.stats()
        figures |= {k: stats[k] for k in ("graphs", "graph_breaks", "fallbacks", "replays", "recordings", "kernels")}
        figures["compile_s"] = stats["compile_seconds"]
    print(json.dumps(figures))


def known_rows(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def start(row, compiler, cache, *flags, **settings):
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_FX_GRAPH_CACHE="0",
                       TRITON_CACHE_DIR=os.path.join(cache, "triton"), HF_HUB_OFFLINE="1")
    return subprocess.Popen([sys.executable, __file__, "--child", row, compiler, *flags], env=environment, text=True,
                            stdout=subprocess.PIPE, **settings)


def figures_of(row, compiler, code, out, errors):
    if code:
        return {"row": row, "compiler": compiler, "failed": errors.strip()[-1500:] or f"exit status {code}"}
    return json.loads(out.strip().splitlines()[-1])


def run_row(row, compiler, timeout):
    with tempfile.TemporaryDirectory() as cache:
        process = start(row, compiler, cache, stderr=subprocess.PIPE)
        try:
            out, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"row": row, "compiler": compiler, "failed": f"took more than {timeout} s"}
    return figures_of(row, compiler, process.returncode, out, errors)


def is_ready(process):
    """Waits until a child is ready for its next turn. False: it has ended."""
    return any(line.strip() == READY for line in process.stdout)


def takes_turn(process):
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write("\n")
        process.stdin.flush()
    return is_ready(process)


def run_in_turns(wanted, timeout):
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for k, (row, compiler) in enumerate(wanted):
            with open(os.path.join(folder, f"{k}.txt"), "w") as errors:
                processes.append(start(row, compiler, os.path.join(folder, str(k)), "--turns", "1",
                                       stdin=subprocess.PIPE, stderr=errors))
        killers = [threading.Timer(timeout, process.kill) for process in processes]
        for killer in killers:
            killer.start()
        ready = [process for process in processes if is_ready(process)]
        for _ in range(TURNS):
            ready = [process for process in ready if takes_turn(process)]
        for k, (process, killer) in enumerate(zip(processes, killers)):
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            out = process.stdout.read()
            process.wait()
            killer.cancel()
            with open(os.path.join(folder, f"{k}.txt")) as errors:
                yield figures_of(*wanted[k], process.returncode, out, errors.read())


def measured(wanted, turns, timeout):
    """The figures of (row, compiler) pairs, one after the other."""
    names = list(dict.fromkeys(row for row, _ in wanted if turns and not row.startswith("decode")))
    for at in range(0, len(names), max(turns, 1)):
        yield from run_in_turns([pair for pair in wanted if pair[0] in names[at:at + turns]], timeout)
    for row, compiler in wanted:
        if row not in names:
            yield run_row(row, compiler, timeout)


def table(rows):
    latest = {(r["row"], r["compiler"]): r for r in rows}
    lines = []
    for row in dict.fromkeys(r["row"] for r in rows):
        eager = latest.get((row, "eager"), {}).get("ms")
        for compiler in COMPILERS:
            r = latest.get((row, compiler))
            if r is None:
                continue
            if "failed" in r:
                lines.append(f"{row:20}  {compiler:32}  failed: {r['failed'].splitlines()[-1][:80]}")
                continue
            over = f"  over eager {eager / r['ms']:.2f}" if eager and compiler != "eager" else ""
            error = f"  error over eager's {r['error_of_eagers']:.2f}" if "error_of_eagers" in r else ""
            tokens = f"  tokens/s {r['tokens_per_s']:.1f}" if "tokens_per_s" in r else ""
            first = f"  first call s {r['first_s']:.2f}" if "first_s" in r else ""
            followed = f"  in a row {r['in_a_row_ms']:.3f}" if "in_a_row_ms" in r else ""
            lines.append(f"{row:20}  {compiler:32}  ms {r['ms']:.3f}{followed}{tokens}{over}{first}{error}"
                         f"  peak MB {r['peak_mb']}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="; ".join(ROWS))
    parser.add_argument("--compilers", default=",".join(DEFAULT), help=", ".join(COMPILERS))
    parser.add_argument("--out", default="build/bench/gpu.jsonl")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--timeout", type=int, default=400, help="seconds for a process")
    parser.add_argument("--turns", type=int, default=0, metavar="N", help="rows that are measured in turn")
    parser.add_argument("--child", nargs=2)
    arguments = parser.parse_args()
    if arguments.child:
        return child(*arguments.child, arguments.turns != 0)
    wanted = [(row, compiler) for row in arguments.rows or ROWS for compiler in arguments.compilers.split(",")]
    for row, compiler in wanted:
        if row not in ROWS or compiler not in COMPILERS:
            parser.error(f"unknown: {row}, {compiler}")
    os.makedirs(os.path.dirname(os.path.abspath(arguments.out)), exist_ok=True)
    rows = known_rows(arguments.out)
    have = {(r["row"], r["compiler"]) for r in rows if "failed" not in r}
    wanted = [pair for pair in wanted if pair not in have or arguments.again]
    for figures in measured(wanted, arguments.turns, arguments.timeout):
        rows.append(figures)
        with open(arguments.out, "a") as file:
            file.write(json.dumps(figures) + "\n")
        print(json.dumps(figures), flush=True)
    print()
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
