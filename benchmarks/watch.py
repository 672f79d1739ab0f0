"""What a call pays to ask whether weights were written. The weights have the number and sizes of those in BERT-base's
linear layers.

    python benchmarks/watch.py [--only "small pages"]

Each weight's sum is derived, so a call does little else. The same model under options={"freezing": True} only checks
identity and version; `watch us` is the difference, round by round.
"""
import argparse
import ctypes
import mmap
import statistics

import torch

import framejit
from framejit import _framejit
from pairs import assert_hits, measure, median
from rows import show

LAYERS, WIDE, INNER = 12, 768, 3072
HUGE_PAGES = 14  # MADV_HUGEPAGE
PAGES = ("small pages", "huge pages")


def weights_of(pages):
    sizes = [(WIDE, WIDE)] * 4 + [(INNER, WIDE), (WIDE, INNER)]
    if pages == "small pages":
        return [torch.randn(size) for _ in range(LAYERS) for size in sizes]
    kept = []
    memory = mmap.mmap(-1, sum(a * b for a, b in sizes) * 4 * LAYERS + (4 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(HUGE_PAGES)
    at = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % (2 << 20)
    for a, b in sizes * LAYERS:
        kept.append(torch.frombuffer(memory, dtype=torch.float32, count=a * b, offset=at).view(a, b).fill_(1))
        at += a * b * 4
    return kept


class Sums(torch.nn.Module):
    def __init__(self, pages):
        super().__init__()
        self.items = torch.nn.ParameterList(torch.nn.Parameter(w, requires_grad=False) for w in weights_of(pages))

    def forward(self, x):
        for weight in self.items:
            x = x + weight.sum()
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=PAGES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    _framejit.replace_costs("derived_bytes=1")
    with torch.no_grad():
        for pages in [options.only] if options.only else PAGES:
            model, x = Sums(pages), torch.randn(8)
            watched, trusted = framejit.compile(model), framejit.compile(model, options={"freezing": True})
            for call in (watched, trusted) * 6:
                call(x)
            assert framejit.stats()["derived_values"] == 2 * len(model.items), framejit.stats()
            for call in (watched, trusted):
                assert_hits(lambda: call(x), hits=1, breaks=0)
            kept, dropped = measure({"watched": lambda: watched(x), "trusted": lambda: trusted(x)})
            asks = statistics.median(a - b for a, b in zip(kept["watched"], kept["trusted"]))
            show("BERT-base", pages, **{f"{k} us": median(v) * 1e6 for k, v in kept.items()},
                 **{"watch us": asks * 1e6}, dropped=dropped)


if __name__ == "__main__":
    main()
