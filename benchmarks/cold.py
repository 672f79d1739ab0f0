"""First call to return, imports done, a new process for each figure: "new program" (caches of torch.compile emptied).

    python benchmarks/cold.py [--model NAME ...] [--torch-compile]
"""
import argparse
import json

import fresh

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
start = time.perf_counter()
compiled(**inputs)
first = time.perf_counter() - start
out = {"case": name, "compiler": compiler, "first_call_s": first}
if compiler == "framejit":
    s = framejit.stats()
    assert s["graphs"] == 1 and s["fallbacks"] == s["graph_breaks"] == 0, s
    out.update({k: s[k] for k in ("graphs", "graph_breaks", "ops", "kernels", "compile_seconds", "trace_seconds",
        "traced_instructions") if k in s})
print(json.dumps(out))
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", nargs="*", default=["small", "demo", "BERT-base", "ResNet-50", "ViT-B/16", "GPT-2"])
    parser.add_argument("--torch-compile", action="store_true")
    options = parser.parse_args()
    for name in options.model:
        for compiler in ["framejit"] + (["torch.compile"] if options.torch_compile else []):
            print(json.dumps(fresh.run(CHILD, name, compiler)[0]), flush=True)


if __name__ == "__main__":
    main()
