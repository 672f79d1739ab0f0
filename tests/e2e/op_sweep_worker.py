"""One sample of an op of torch's op_db: compiled as `lambda *a, **k: op(*a, **k)` and compared with eager. See
op_sweep.py."""
import functools
import itertools
import json
import os
import re
import sys
import types
import unittest
import warnings

from stated import RUN_ERRORS

LUCKY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lucky_ops.txt")
# Results that torch leaves undefined: only their metadata is compared.
UNDEFINED_VALUES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
                    "resize_", "resize_as_"}
# Ops whose zeros have another sign than eager's if the input has integers.
OTHER_ZEROS = {"native_dropout_backward"}
# Samples for which eager itself returns uninitialised memory, or crashes: _chunk_cat of 0-dim tensors, the median of a
# broadcast tensor.
READ_OUTSIDE = {("_chunk_cat", "scalar"), ("masked.median", "broadcast"), ("median", "broadcast"),
                ("nanmedian", "broadcast")}


def op_database():
    """torch's op_db. Its module imports expecttest for a base class that no op uses; if that is missing, a bare class
    replaces it."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    import torch.testing._internal.common_methods_invocations as database
    # Many random ops are wrapped so that each call seeds itself and restores the generator. run_one seeds, so that the
    # op itself is compiled.
    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return database.op_db


def label_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def map_tensors(change, value):
    import torch
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        parts = [map_tensors(change, v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if type(value) is dict:
        return {k: map_tensors(change, v) for k, v in value.items()}
    return value


def as_transposed(t):
    """The same values, with the last two dimensions swapped in memory."""
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t.clone()


def as_stepped(t):
    """The same values, in every other element of memory."""
    return t.new_zeros(t.shape + (2,)).select(-1, 1).copy_(t) if t.numel() else t


def as_broadcast(t):
    """The first index of the first dimension that is larger than 1, expanded along it."""
    for d, n in enumerate(t.shape):
        if n > 1:
            return t.narrow(d, 0, 1).clone().expand(t.shape)
    return t


def as_empty(t):
    return t.narrow(0, 0, 0).clone() if t.dim() else t


def as_one(t):
    for d, n in enumerate(t.shape):
        t = t.narrow(d, 0, min(n, 1))
    return t.clone()


def as_scalar(t):
    return t.reshape(-1)[0].clone() if t.numel() else t.new_ones(())


FORMS = {"plain": None, "transposed": as_transposed, "broadcast": as_broadcast, "stepped": as_stepped,
         "empty": as_empty, "scalar": as_scalar, "one": as_one}


def is_strided(t):
    import torch
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided and not t.is_quantized


def copier():
    """A function that copies tensors with their memory: it keeps strides, offsets, overlaps, and sharing between
    arguments."""
    import torch
    storages, tensors = {}, {}

    def copy(t):
        if not is_strided(t) or t.is_conj() or t.is_neg():
            return t.clone()
        if id(t) not in tensors:
            storage = t.untyped_storage()
            if storage.data_ptr() not in storages:
                storages[storage.data_ptr()] = storage.clone()
            tensors[id(t)] = t.new_empty(0).set_(storages[storage.data_ptr()], t.storage_offset(), t.size(),
                                                 t.stride())
        return tensors[id(t)]
    return copy


def samples_of(op, dtype, forms, count):
    """(form, args, kwargs) of the first `count` samples in each form; forms that do not change a sample are skipped."""
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), count))
    except Exception as e:  # the op_db itself cannot make the sample
        print(json.dumps({"op": label_of(op), "note": f"no samples: {type(e).__name__}"}), flush=True)
        return
    for number, sample in enumerate(samples):
        for form in forms:
            if (label_of(op), form) in READ_OUTSIDE:
                continue
            args, kwargs = [sample.input, *sample.args], sample.kwargs
            if FORMS[form]:
                changed = []

                def change(t):
                    if not is_strided(t):
                        return t
                    made = FORMS[form](t)
                    changed.append(made.shape != t.shape or made.stride() != t.stride())
                    return made
                args, kwargs = map_tensors(change, args), map_tensors(change, kwargs)
                if not any(changed):
                    continue
            yield number, form, args, kwargs


def comparable(value, undefined=False):
    """Tensors in a form that `same` can inspect: sparse ones as dense ones with their layout, complex ones as pairs of
    numbers."""
    import torch
    if isinstance(value, torch.Tensor):
        if undefined:
            value = torch.zeros_like(value) if value.layout == torch.strided else value
        if value.layout != torch.strided:
            return [str(value.layout), comparable(value.to_dense())]
        if value.is_complex():
            return ["complex", value.is_conj(), torch.view_as_real(value.resolve_conj())]
        return value
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *[comparable(v, undefined) for v in value]]
    return value


@functools.cache
def lucky_rows():
    with open(LUCKY) as f:
        rows = [line.partition(":")[0].split() for line in f if line.strip() and not line.startswith("#")]
    return {tuple(row[:3]) for row in rows}


def luck_of(kind, op, dtype):
    """What bounds.py allows for the "results" or "gradients" of an op."""
    return "terms" if (kind, op, dtype) in lucky_rows() else None


def difference(got, want, exact, undefined, luck=None):
    """The difference between two outcomes, in words, or None. `exact`: what exactly() makes; it is called only if bits
    differ. luck: "terms" if the op has a row of lucky_ops.txt for this dtype."""
    from check import part, same
    if got[0] != want[0]:
        return (f"{got[0]} {got[1] if got[0] == 'raised' else ''} instead of {want[0]} "
                f"{want[1] if want[0] == 'raised' else ''}")
    if got[0] == "raised":
        return None if got[1] == want[1] else f"raised {got[1]} instead of {want[1]}"
    try:
        same(comparable(got[1], undefined), comparable(want[1], undefined), part(exact, lambda v: comparable(v[0])),
             luck=luck)
        same(comparable(got[2]), comparable(want[2]), part(exact, lambda v: comparable(v[1:])), "arguments", luck=luck)
        same(got[3], want[3], where="generator")
    except AssertionError as e:
        return str(e)[:160]
    return None


def exactly(fn, args, kwargs):
    """A function that makes [result, arguments, keyword arguments afterwards] of one call in float64, or None; with a
    number, those of a disturbed run (wide.py)."""
    from wide import in_float64

    @functools.cache
    def exact(noise=None):
        copy = copier()
        try:
            return in_float64(fn, map_tensors(copy, args), map_tensors(copy, kwargs), 0, noise)
        except Exception:  # not in float64
            return None
    return exact


def call_of(fn, args, kwargs):
    """The outcome of one call on copies: result or exception, arguments afterwards, the generator's state."""
    import torch
    copy = copier()
    a, k = map_tensors(copy, args), map_tensors(copy, kwargs)
    torch.manual_seed(0)
    try:
        result = fn(*a, **k)
    except Exception as e:
        # some of torch's messages continue with a C++ stack
        return "raised", f"{type(e).__name__}: {str(e).splitlines()[:1]}", None, None
    return "returned", result, [a, k], torch.get_rng_state()


def run_one(op, args, kwargs, backend, luck=None):
    """The row of one sample: whole | raises (eager raises, and tracing or plain Python says so) | late (eager raises,
    and only the compiled graph found out) | break | differs | fallback (our own failure) | recompiles | not traced."""
    import torch
    import framejit
    from wide import is_float
    fn = op.op
    framejit.reset()
    compiled = framejit.compile(lambda *a, **k: fn(*a, **k), backend=backend, dynamic=False)
    with torch.no_grad():
        want, first, second = (call_of(f, args, kwargs) for f in (fn, compiled, compiled))
        seen = verdict(framejit.stats(), want[0])
        exact, undefined = exactly(fn, args, kwargs), op.name in UNDEFINED_VALUES
        why = next(filter(None, (difference(got, want, exact, undefined, luck) for got in (first, second))), None)
    if why and why.endswith("zeros differ") and op.name in OTHER_ZEROS and not is_float(args[0]):
        return seen
    if want[0] == "returned" and makes_nothing(want[1]):
        seen["empty"] = True
    return {"status": "differs", "why": why} if why else seen


def makes_nothing(result):
    """Whether all tensors of a result have no elements."""
    sizes = []
    map_tensors(lambda t: sizes.append(t.numel()), result)
    return bool(sizes) and not any(sizes)


def verdict(stats, outcome):
    """The verdict from the totals of two equal calls. `whole` needs a traced segment that the second call hit, and
    nothing else."""
    reasons = set(stats["break_reasons"])
    if stats["fallbacks"]:
        at_run = stats["fallback_reasons"].keys() <= RUN_ERRORS
        is_late = outcome == "raised" and stats["graphs"] and at_run
        return {"status": "late" if is_late else "fallback"}
    if outcome == "raised" and reasons <= {"exception_raised"}:
        return {"status": "raises"}
    if outcome == "raised":
        reasons.discard("exception_raised")  # the last break is the exception itself
    if reasons or stats["graph_breaks"]:
        return {"status": "break", "why": ",".join(sorted(reasons))}
    if stats["recompiles"]:
        return {"status": "recompiles"}
    # Ops that return their argument, or that only compute shapes, have a segment without a graph.
    traced = (stats["graphs"] or stats["traced_instructions"]) and stats["hits"] + stats["plain_hits"] == 1
    return {"status": "whole" if traced else "not traced"}


def class_of(op, args, kwargs):
    """How the default backend runs a sample that it captures whole: views (no step at all), kernels (only our own),
    mixed, or extern (only PyTorch's own ops). And which ops it leaves to PyTorch."""
    import torch
    import framejit
    fn = op.op
    framejit.reset()
    with torch.no_grad():
        copy = copier()
        report = framejit.explain(lambda *a, **k: fn(*a, **k))(*map_tensors(copy, args), **map_tensors(copy, kwargs))
    steps = [line.strip() for event in report.events if event.event == "Steps" for line in event.artefact.split("\n")]
    kernels = any(s.startswith("kernel ") for s in steps)
    left = sorted({call[1] for s in steps if (call := re.match(r"(?:b\d+(?:, b\d+)* = )?([\w.:]+)\(", s))})
    return ("mixed" if kernels else "extern") if left else "kernels" if kernels else "views", left


def start(options, rows, errors):
    """In a process of its own: what work() prints goes into one pipe, errors into the other."""
    os.dup2(rows.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    work(options)


def work(options):
    """Prints rows to standard output, one JSON line each; "begin" before a sample, so that a crash is seen, "done"
    after an op."""
    warnings.simplefilter("ignore")
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, os.path.join(here, "training")]
    import torch
    if options.gradients:
        import gradient_sweep_worker
        return gradient_sweep_worker.work(options, torch)
    dtype = getattr(torch, options.worker)
    wanted = set(options.names)
    for op in op_database():
        label = label_of(op)
        if label not in wanted:
            continue
        if dtype in op.supported_dtypes("cpu"):
            for number, form, args, kwargs in samples_of(op, dtype, options.forms, options.samples):
                key = {"op": label, "sample": number, "form": form}
                print(json.dumps({**key, "begin": True}), flush=True)
                try:
                    row = run_one(op, args, kwargs, options.backend, luck_of("results", label, options.worker))
                    if options.classes and row["status"] == "whole":
                        row["class"], row["left"] = class_of(op, args, kwargs)
                except Exception as e:
                    row = {"status": "differs", "why": f"{type(e).__name__}: {e}"[:160]}
                print(json.dumps({**key, **row}), flush=True)
        print(json.dumps({"op": label, "done": True}), flush=True)
