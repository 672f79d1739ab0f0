"""One sample of an op of torch's op_db, forward and backward: compiled as `lambda *a, **k: op(*a, **k)`, and the
gradients of every input that can have one compared with eager's. See op_sweep.py --gradients."""
import functools
import itertools
import json

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


def runner(sample):
    """A function that gives an op a backward, so that it returns [what the op returns, the gradients]; and a list that
    says of each run whether it had one."""
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
            else g.clone(memory_format=torch.contiguous_format).add_(0) for g in grads]]  # without signs of zeros

    return lambda fn: functools.partial(with_gradients, fn), plans


def run_one(op, sample, backend, luck=None):
    """The row of one sample, in the form of op_sweep_worker.run_one; None if eager has no gradient."""
    import framejit
    fn, (backward_of, plans) = op.op, runner(sample)
    args, kwargs = worker.map_tensors(lambda t: t.detach(), [[sample.input, *sample.args], sample.kwargs])
    framejit.reset()
    compiled = framejit.compile(lambda *a, **k: fn(*a, **k), backend=backend, dynamic=False)
    want = worker.call_of(backward_of(fn), args, kwargs)
    if want[0] == "returned" and want[1][1] == "no gradient":
        return None
    plans.clear()
    first, second = (worker.call_of(backward_of(compiled), args, kwargs) for _ in range(2))
    seen = verdict(framejit.stats(), want[0], sum(plans))
    exact, undefined = worker.exactly(backward_of(fn), args, kwargs), op.name in worker.UNDEFINED_VALUES
    why = next(filter(None, (worker.difference(got, want, exact, undefined, luck) for got in (first, second))), None)
    return {"status": "differs", "why": why} if why else seen


def verdict(stats, outcome, expected=2):
    """As op_sweep_worker.verdict(). For `whole`, this many backwards must have run as compiled plans."""
    seen = worker.verdict(stats, outcome)
    if seen["status"] == "whole" and stats["backward_runs"] < expected:
        return {"status": "not traced", "why": f"{stats['backward_runs']} backward runs in place of {expected}"}
    return seen


def work(options, torch):
    """Prints rows to standard output, as op_sweep_worker.work() does."""
    dtype, wanted = getattr(torch, options.worker), set(options.names)
    for op in worker.op_database():
        label = worker.label_of(op)
        if label not in wanted:
            continue
        if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu"):
            for number, sample in enumerate(samples_of(op, dtype, options.samples)):
                key = {"op": label, "sample": number, "form": "plain"}
                print(json.dumps({**key, "begin": True}), flush=True)
                try:
                    luck = worker.luck_of("gradients", label, options.worker)
                    row = run_one(op, sample, options.backend, luck)
                except Exception as e:
                    row = {"status": "differs", "why": f"{type(e).__name__}: {e}"[:160]}
                if row is not None:
                    print(json.dumps({**key, **row}), flush=True)
        print(json.dumps({"op": label, "done": True}), flush=True)
