"""One sample of an op of torch's op_db, forward and backward: compiled as `lambda *a, **k: op(*a, **k)`, and the
gradients of every input that can have one compared with eager's. See op_sweep.py --gradients."""
import itertools
import json
import re
import sys

import op_sweep_worker as worker
from steps import cotangent, leaves_of


def samples_of(op, dtype, count):
    """The first `count` samples that ask for gradients."""
    try:
        return list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), count))
    except Exception as e:  # the op_db itself cannot make the sample
        print(json.dumps({"op": worker.label_of(op), "note": f"no samples: {type(e).__name__}"}), flush=True)
        return []


def asking(value):
    """Whether each of its tensors asks for a gradient, in order."""
    found = []
    worker.map_tensors(lambda t: found.append(t.requires_grad) or t, value)
    return found


def caller(sample):
    """call_of() of op_sweep_worker.py, with a backward: the result is [what the op returns, the gradients]."""
    import torch
    plans, asked = [], asking([sample.input, *sample.args, sample.kwargs])

    def with_gradients(fn, *args, **kwargs):
        flags = iter(asked)

        def leaf(t):
            return t.requires_grad_() if next(flags) and t.is_leaf else t
        args, kwargs = worker.map_tensors(leaf, list(args)), worker.map_tensors(leaf, kwargs)
        leaves = [t for _, t in leaves_of([args, kwargs]) if isinstance(t, torch.Tensor) and t.requires_grad]
        result = fn(*[worker.map_tensors(lambda t: t, a) for a in args], **kwargs)
        taken = sample.output_process_fn_grad(result)
        outputs = [t for _, t in leaves_of(taken) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not outputs:
            return [worker.map_tensors(lambda t: t.detach(), result), "no gradient"]
        plans.append(any(t._base is None and all(t is not leaf for leaf in leaves) for t in outputs))
        grads = torch.autograd.grad(outputs, leaves, [cotangent(t) for t in outputs], allow_unused=True)
        return [worker.map_tensors(lambda t: t.detach(), result), [g if g is None or g.layout != torch.strided
            else g.clone(memory_format=torch.contiguous_format) for g in grads]]

    def call(fn, args, kwargs, widen=False):
        return worker.call_of(lambda *a, **k: with_gradients(fn, *a, **k), args, kwargs, widen)
    return call, plans


def run_one(op, sample, backend):
    """The row of one sample, in the form of op_sweep_worker.run_one; None if eager has no gradient."""
    import framejit
    fn, (call, plans) = op.op, caller(sample)
    args, kwargs = worker.map_tensors(lambda t: t.detach(), [[sample.input, *sample.args], sample.kwargs])
    framejit.reset()
    compiled = framejit.compile(lambda *a, **k: fn(*a, **k), backend=backend, dynamic=False)
    want = call(fn, args, kwargs)
    if want[0] == "returned" and want[1][1] == "no gradient":
        return None
    plans.clear()
    first, second = call(compiled, args, kwargs), call(compiled, args, kwargs)
    expected = sum(plans)
    exact = []

    def in_double():
        if not exact:
            exact.append(call(fn, args, kwargs, widen=True)[1])
        return exact[0]
    undefined = op.name in worker.UNDEFINED_VALUES
    why = worker.difference(first, want, in_double, undefined) or worker.difference(second, want, in_double, undefined)
    seen = verdict(framejit.stats(), want[0], expected)
    if why and "off by" in why and seen["status"] == "whole" and (is_cancelled(why, sample) or all(
        worker.ill_conditioned(fn, args, kwargs, want, got, call) for got in (first, second))):
        return {**seen, "luck": why}
    return {"status": "differs", "why": why} if why else seen


def is_cancelled(why, sample):
    """Whether a gradient is off by less than an ulp of the gradients that came in, which are up to 1: terms that cancel
    exactly in eager may leave a rounding."""
    import torch
    floats = [t for _, t in leaves_of([sample.input, *sample.args]) if isinstance(t, torch.Tensor) and t.requires_grad]
    return bool(floats) and float(re.search(r"off by (\S+),", why)[1]) <= max(torch.finfo(t.dtype).eps for t in floats)


def verdict(stats, outcome, expected=2):
    """As op_sweep_worker.verdict(). For `whole`, so many backwards must have run as compiled plans."""
    seen = worker.verdict(stats, outcome)
    if seen["status"] == "whole" and stats["backward_runs"] < expected:
        return {"status": "not traced", "why": f"{stats['backward_runs']} backward runs in place of {expected}"}
    return seen


def work(options, torch):
    """Prints rows to standard output, as op_sweep_worker.work() does."""
    dtype, wanted = getattr(torch, options.worker), set(sys.stdin.read().split("\n"))
    for op in worker.op_database():
        label = worker.label_of(op)
        if label not in wanted:
            continue
        if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
            for number, sample in enumerate(samples_of(op, dtype, options.samples)):
                key = {"op": label, "sample": number, "form": "plain"}
                print(json.dumps({**key, "begin": True}), flush=True)
                try:
                    row = run_one(op, sample, options.backend)
                except Exception as e:
                    row = {"status": "differs", "why": f"{type(e).__name__}: {e}"[:160]}
                if row is not None:
                    print(json.dumps({**key, **row}), flush=True)
        print(json.dumps({"op": label, "done": True}), flush=True)
