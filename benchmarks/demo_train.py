"""The demo of training: the sentence model learns which answer belongs to which question, plain and compiled.

    python benchmarks/demo_train.py [--steps 20] [--compare] [FILE]

Each line of FILE is a pair: two sentences, separated by a tab. The model is the demo's (demo.py), with its own weights
and dropout; its loss is the cross-entropy of choosing the right partner for each first sentence among all second ones.
Each way of running starts from the same weights and the same state of the generator. --compare adds torch.compile, in
its own process.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler, which counts the memory, prints a line when it
                                                # begins

from demo import batch, clipped, load_model, read_lines, seconds_of, sentence_vectors  # noqa: E402

SHIPPED = Path(__file__).parent / "data" / "pairs.txt"
SHARPNESS = 20.0  # of the softmax over similarities
LEARNING_RATE = 2e-5
SHOWN = 4


def read_pairs(source: str) -> list[tuple[str, str]]:
    pairs = [line.split("\t") for line in read_lines(source)]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(part.strip() for part in pair):
            sys.exit(f"{source}: line {number} is no pair: two sentences with a tab between them")
    return [(first.strip(), second.strip()) for first, second in pairs]


def loss_of(model, inputs):
    """Of a batch whose first half are the first sentences."""
    import torch
    vectors = sentence_vectors(model(**inputs).last_hidden_state, inputs["attention_mask"])
    first, second = vectors.chunk(2)
    return torch.nn.functional.cross_entropy(first @ second.T * SHARPNESS, torch.arange(len(first)))


class Training:
    """A copy of the model that is trained step by step."""

    def __init__(self, inputs: dict[str, Any], compile_: Callable[[Any], Any]):
        import torch
        self.model, self.inputs = load_model().train(), inputs
        self.optimizer = torch.optim.AdamW(self.model.parameters(), LEARNING_RATE)
        self.loss_of = compile_(loss_of)
        torch.manual_seed(0)

    def step(self) -> float:
        loss = self.loss_of(self.model, self.inputs)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def figures(self, steps: int) -> dict[str, Any]:
        from memory import peak_of
        losses: list[float] = []
        seconds = [seconds_of(lambda: losses.append(self.step())) for _ in range(steps)]
        return {"first": seconds[0], "step": statistics.median(seconds[1:]), "losses": losses,
                "peak": peak_of(self.step)[0] / 1e6}


def similarities(model, inputs) -> Any:
    import torch
    with torch.no_grad():
        first, second = sentence_vectors(model.eval()(**inputs).last_hidden_state, inputs["attention_mask"]).chunk(2)
    return first @ second.T


def row(name: str, figures: dict[str, Any]) -> str:
    return (f"  {name:<16}{figures['first']:>9.2f} s{1 / figures['step']:>11.2f}{figures['losses'][0]:>12.4f}"
            f"{figures['losses'][-1]:>11.4f}{figures['peak']:>9.0f} MB")


def print_similarities(pairs: list[tuple[str, str]], before, after) -> None:
    import torch
    own = torch.eye(len(pairs), dtype=torch.bool)
    print("similarity of                      before   after")
    for name, chosen in (("a question and its answer", own), ("a question and another answer", ~own)):
        print(f"  {name:<31}{float(before[chosen].mean()):>8.2f}{float(after[chosen].mean()):>8.2f}")
    moved = (after - before).diagonal().argsort(descending=True)[:SHOWN]
    for i in moved.tolist():
        print(f"  {float(before[i, i]):.2f} -> {float(after[i, i]):.2f}  {clipped(pairs[i][0], 90)}\n"
              f"                {clipped(pairs[i][1], 90)}")


def child_figures(source: str, steps: int) -> dict[str, Any]:
    import torch
    pairs = read_pairs(source)
    return Training(batch([a for a, _ in pairs] + [b for _, b in pairs]), torch.compile).figures(steps)


def compare_row(source: str, steps: int) -> str:
    command = [sys.executable, "-P", __file__, "--child", "--steps", str(steps), source]
    out = subprocess.run(command, capture_output=True, text=True,
                         env=dict(os.environ, PYTHONPATH=str(Path(__file__).parent)))
    if out.returncode:
        return f"  torch.compile   failed: {(out.stderr.strip().splitlines() or ['no message'])[-1]}"
    return row("torch.compile", json.loads(out.stdout.strip().splitlines()[-1]))


def run(source: str, steps: int, compare: bool) -> None:
    pairs = read_pairs(source)
    print(f"framejit demo of training: {len(pairs)} pairs of {source}", flush=True)
    print("loading the model ...", flush=True)
    import torch

    import framejit
    inputs = batch([a for a, _ in pairs] + [b for _, b in pairs])
    print(f"  batch of {inputs['input_ids'].shape[0]} x {inputs['input_ids'].shape[1]} tokens, AdamW, "
          f"{torch.get_num_threads()} threads, {steps} steps", flush=True)
    before = similarities(load_model(), inputs)
    plain = Training(inputs, lambda f: f).figures(steps)
    print("compiling ...", flush=True)
    ours = Training(inputs, framejit.compile)
    figures = ours.figures(steps)
    counts = framejit.stats()
    print(f"\n{'':<18}{'first step':>11}{'steps a s':>11}{'first loss':>12}{'last loss':>11}{'peak':>12}")
    print(row("plain PyTorch", plain))
    print(row("framejit", figures))
    if compare:
        print(compare_row(source, steps))
    apart = max(abs(a - b) for a, b in zip(plain["losses"], figures["losses"]))
    print(f"\n  largest difference of a loss from plain PyTorch: {apart:.1e}")
    print(f"  graphs {counts['graphs']} and {counts.get('backward_graphs', 0)} backward, graph breaks "
          f"{counts['graph_breaks']}, backward runs {counts.get('backward_runs', 0)}")
    for reason, count in sorted(counts["break_reasons"].items()):
        print(f"    {count} x {reason}")
    print()
    print_similarities(pairs, before, similarities(ours.model, inputs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo_train.py", description="A sentence model learns, plain and compiled.")
    parser.add_argument("file", nargs="?", default=str(SHIPPED), help="a text file with a pair a line")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compare", action="store_true", help="add torch.compile, in a process of its own")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 2:
        parser.error("at least two steps are needed")
    try:
        if arguments.child:
            print(json.dumps(child_figures(arguments.file, arguments.steps)))
        else:
            run(arguments.file, arguments.steps, arguments.compare)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
