"""Guards + lookup on a hit: the whole call of a compiled callable whose graph computes nothing.

    python benchmarks/guards.py [--no-torch-compile] [--rounds 30] [--case TEXT]

Both compilers use a backend that keeps the outputs of its first run, so that a call consists only of arming, lookup,
guards, returning the outputs, and one Python call. The time of eager, which computes, is printed next to it.
"""
import argparse

import torch

import framejit
from calls import ManyParameters
from pairs import measure, median, ratio
from rows import show


def frozen(graph, examples):
    """A backend: runs the graph once and returns those outputs from then on."""
    outputs = []

    def run(*inputs):
        if not outputs:
            outputs.append(graph(*inputs))
        return outputs[0]
    return run


def many_ints(count):
    values = list(range(2, count + 2))  # one guard each: they are summed

    def total(x):
        return x + sum(values)
    return total


def bert():
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(hidden_size=24, intermediate_size=96)).eval()
    ids = torch.randint(0, 1000, (1, 8))
    return lambda x: model(input_ids=ids, attention_mask=x).last_hidden_state, torch.ones(1, 8, dtype=torch.long)


def cases():
    yield "BERT-base (12 layers)", bert
    yield "1000 guarded parameters", lambda: (ManyParameters(1000), torch.randn(2))
    yield "1000 guarded ints", lambda: (many_ints(1000), torch.randn(2))


def row(name, fn, x, options):
    ours = framejit.compile(fn, backend=frozen)
    candidates = {"eager": lambda: fn(x), "framejit": lambda: ours(x)}
    if not options.no_torch_compile:
        theirs = torch.compile(fn, backend=frozen)
        candidates["torch.compile"] = lambda: theirs(x)
    for call in candidates.values():
        for _ in range(5):
            call()
    ours(x)  # torch.compile has written to the module's class: one recompile, then each call is one hit
    before = framejit.stats()
    ours(x)
    assert framejit.stats()["hits"] - before["hits"] == 1 and framejit.stats()["graphs"] == before["graphs"]
    kept, dropped = measure(candidates, rounds=options.rounds)
    over = {"over torch.compile": ratio(kept["torch.compile"], kept["framejit"])} if "torch.compile" in kept else {}
    show(name, **{f"{key} us": median(values) * 1e6 for key, values in kept.items()}, **over,
         breaks=before["graph_breaks"], dropped=dropped)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-torch-compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--case", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        for name, make in cases():
            if options.case in name:
                framejit.reset()
                row(name, *make(), options)


if __name__ == "__main__":
    main()
