"""What a compile costs: per captured op, per distinct kernel, per stage. Each row is a new process, and the caches of
torch.compile are empty.

    python benchmarks/compile.py [--case BERT-base,ResNet-50,chain] [--torch-compile]

"chain" is 1,000 pointwise ops and 100 row sums of one function. The time is that of the first call minus that of a
second one. "ms an op" divides it by the calls of torch functions that return tensors ("ops": those that the program
makes, counted in an eager call, whichever compiler is used). "us an ATen op" divides the time of a stage by the ops of
the lowered graph. Kernels: framejit's time is code generation only, on two threads; torch.compile's is the time in
which it runs the C++ compiler, divided by the files that it compiled.
"""
import argparse
import re

import fresh
from rows import show

CASES = ["chain", "BERT-base", "ResNet-50"]
CHILD = r"""
import json, sys, time, torch
name, compiler = sys.argv[1:3]
torch.manual_seed(0)
def chain(x):
    for i in range(100):
        for _ in range(5):
            x = torch.tanh(x) * 1.5 + 0.1 * i if _ % 2 else (x - 0.5).abs()
        x = x - x.sum(-1, keepdim=True) * 1e-3
    return x
if name == "chain":
    fn, inputs = chain, dict(x=torch.randn(64, 256))
else:
    from models import load
    fn, inputs = load(name)
class Counted(torch.overrides.TorchFunctionMode):
    calls = 0
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls += any(isinstance(r, torch.Tensor) for r in (result if isinstance(result, (tuple,
            list)) else [result])) and function.__name__ != "__get__"
        return result
with torch.no_grad(), Counted() as counted:
    fn(**inputs)
def timed():
    start = time.perf_counter()
    compiled(**inputs)
    return time.perf_counter() - start
""" + fresh.COMPILE + r"""
seconds = timed() - timed()
out = {"s": seconds, "ops": counted.calls}
if compiler == "framejit":
    s = framejit.stats()
    assert s["graphs"] == 1 and s["fallbacks"] == s["graph_breaks"] == 0 and s["hits"] == 1, s
    out["ATen ops"] = s["ops"]
else:
    from torch._dynamo.utils import compilation_time_metrics
    runs = compilation_time_metrics.get("compile_file", [])
    out["kernels"], out["kernel_s"] = len(runs), sum(runs)
print(json.dumps(out))
"""
STAGE = re.compile(r"(kernel of \S+|lower|schedule|assemble) took ([0-9.e-]+) ms")


def run(name, compiler):
    row, log = fresh.run(CHILD, name, compiler, HF_HUB_OFFLINE="1", FRAMEJIT_LOGS="timing")
    if compiler == "framejit":
        stages = [(stage, float(ms)) for stage, ms in STAGE.findall(log)]
        kernels = [ms for stage, ms in stages if stage.startswith("kernel of ")]
        row["kernels"], row["kernel_s"] = len(kernels), sum(kernels) / 1e3
        row.update({f"{stage} us an ATen op": ms * 1e3 / row["ATen ops"] for stage, ms in stages
                    if stage in ("lower", "schedule")})
    row["ms an op"] = row["s"] * 1e3 / row["ops"]
    row["ms a kernel"] = row.pop("kernel_s") * 1e3 / max(row["kernels"], 1)
    show(name, compiler, **row)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--torch-compile", action="store_true")
    options = parser.parse_args()
    for name in options.case.split(","):
        for compiler in ["framejit"] + ["torch.compile"] * options.torch_compile:
            run(name, compiler)


if __name__ == "__main__":
    main()
