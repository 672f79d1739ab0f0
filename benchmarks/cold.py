"""Time from the end of the imports until the first call returns, in a new process for each figure. "new program": the
caches of torch.compile are empty.

    python benchmarks/cold.py [--model NAME ...] [--torch-compile]

"beyond warm s" is how much longer the first call takes than the fastest of some later ones in the same process. "cache
filled" is a process that finds the kernels that another one has left in FRAMEJIT_CACHE_DIR.
"""
import argparse
import tempfile

import fresh
from rows import show

MODELS = ["small", "demo", "BERT-base", "ResNet-50", "ViT-B/16", "GPT-2"]

CHILD = r"""
import sys, time, json, torch
name, compiler = sys.argv[1:3]
torch.manual_seed(0)
def small(x): return torch.relu(x * 2 + 1).sum(0)
if name == "small":
    fn, inputs = small, dict(x=torch.randn(16, 16))
elif name == "demo":
    import os
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from demo import load_model, batch
    fn, inputs = load_model(), batch()
else:
    from models import load
    fn, inputs = load(name)
""" + fresh.COMPILE + r"""
def seconds():
    start = time.perf_counter()
    compiled(**inputs)
    return time.perf_counter() - start
first = seconds()
out = {"first s": first}
if compiler == "framejit":
    s = framejit.stats()
    assert s["graphs"] == 1 and s["fallbacks"] == s["graph_breaks"] == 0, s
    out.update({"trace s": s["trace_seconds"], "compile s": s["compile_seconds"]},
               **{key: s[key] for key in ("ops", "kernels", "cache_hits")})
out["beyond warm s"] = first - min(seconds() for _ in range(10))
print(json.dumps(out))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", nargs="*", default=MODELS)
    parser.add_argument("--torch-compile", action="store_true")
    options = parser.parse_args()
    for name in options.model:
        show(name, "framejit", **fresh.run(CHILD, name, "framejit")[0])
        with tempfile.TemporaryDirectory() as folder:
            fresh.run(CHILD, name, "framejit", FRAMEJIT_CACHE_DIR=folder)
            row = fresh.run(CHILD, name, "framejit", FRAMEJIT_CACHE_DIR=folder)[0]
            assert row["cache_hits"] > 0, row
            show(name, "framejit, cache filled", **row)
        if options.torch_compile:
            show(name, "torch.compile", **fresh.run(CHILD, name, "torch.compile")[0])


if __name__ == "__main__":
    main()
