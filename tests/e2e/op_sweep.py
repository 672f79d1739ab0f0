"""Every op of torch's op_db, compiled as `lambda *a, **k: op(*a, **k)`: equal to eager, or a clean break for a known reason.

    python tests/e2e/op_sweep.py [--backend framejit] [--first] [--jobs 2] [--dtype float32 ...] [--only REGEX]

Runs in worker processes, so that one crash is one row. Exit status 1 when a sample differs or crashes, or breaks for a reason that
op_sweep_reasons.txt does not list for its op, or when fewer ops than --at-least are captured whole.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import types
import unittest
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
REASONS = os.path.join(HERE, "op_sweep_reasons.txt")


# Results that torch leaves undefined: only their metadata is compared.
UNDEFINED_VALUES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def op_database():
    """torch's op_db. Its module imports expecttest for a base class that no op uses; a bare class stands in where that is missing."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    import torch.testing._internal.common_methods_invocations as database
    # Many random ops are wrapped so that each call seeds itself and restores the generator. run_one seeds: the op itself is compiled.
    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return database.op_db


def label_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def known_reasons():
    """Lines "op reason": the breaks that are accepted; op may be * for all."""
    table = set()
    if os.path.exists(REASONS):
        with open(REASONS) as f:
            for line in f:
                words = line.split("#")[0].split()
                if len(words) >= 2:
                    table.add((words[0], words[1]))
    return table


def samples_of(op, dtype, first):
    import torch
    try:
        for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
            yield sample
            if first:
                return
    except Exception as e:  # the op_db itself cannot make the sample
        print(json.dumps({"op": op.name, "note": f"no samples: {type(e).__name__}"}), flush=True)


def comparable(value, undefined=False):
    """Tensors in a form that `same` can look into: sparse ones dense beside their layout, complex ones as pairs of numbers."""
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


def compare(op, got, want):
    """The difference of two outcomes in words, or None."""
    from check import same
    if got[0] != want[0]:
        return f"{got[0]} {got[1] if got[0] == 'raised' else ''} instead of {want[0]} {want[1] if want[0] == 'raised' else ''}"
    if got[0] == "raised":
        return None if got[1] == want[1] else f"raised {got[1]} instead of {want[1]}"
    try:
        same(comparable(got[1], op.name in UNDEFINED_VALUES), comparable(want[1], op.name in UNDEFINED_VALUES))
        same(comparable(got[2]), comparable(want[2]), where="arguments")
    except AssertionError as e:
        return str(e)[:160]
    return None


def run_one(op, sample, backend):
    import torch
    import framejit
    from check import deep_copy
    fn = op.op
    args = [sample.input, *sample.args]
    framejit.reset()
    compiled = framejit.compile(lambda *a, **k: fn(*a, **k), backend=backend, dynamic=False)
    result = {}
    with torch.no_grad():
        outcomes = []
        for call in (fn, compiled, compiled):
            a, k = deep_copy(args), deep_copy(sample.kwargs)
            torch.manual_seed(0)
            try:
                outcomes.append(("returned", call(*a, **k), a))
            except Exception as e:
                outcomes.append(("raised", type(e).__name__, None))
    want = outcomes[0]
    for got in outcomes[1:]:
        why = compare(op, got, want)
        if why:
            return {"status": "differs", "why": why}
    stats = framejit.stats()
    if stats["fallbacks"]:
        return {"status": "fallback"}
    reasons = set(stats["break_reasons"])
    if want[0] == "raised" and reasons <= {"exception_raised"}:
        return {"status": "raises"}  # plain Python raises it
    if reasons:
        return {"status": "break", "why": ",".join(sorted(reasons))}
    # Ops that return their argument, or that compute shapes only, leave an empty graph.
    return {"status": "whole" if stats["graphs"] or stats["traced_instructions"] else "not traced"}


def worker(first, backend, dtype_name, names):
    warnings.simplefilter("ignore")
    sys.path.insert(0, HERE)
    import torch
    dtype = getattr(torch, dtype_name)
    wanted = set(names)
    for op in op_database():
        label = label_of(op)
        if label not in wanted or dtype not in op.supported_dtypes("cpu"):
            continue
        for i, sample in enumerate(samples_of(op, dtype, first)):
            print(json.dumps({"op": label, "begin": i}), flush=True)
            try:
                row = run_one(op, sample, backend)
            except Exception as e:
                row = {"status": "differs", "why": f"{type(e).__name__}: {e}"[:160]}
            print(json.dumps({"op": label, "sample": i, **row}), flush=True)


def all_names(only):
    names = [label_of(op) for op in op_database()]
    return [n for n in dict.fromkeys(names) if re.search(only, n)]


def run_chunk(options, dtype, names):
    """Rows of one chunk; a worker that dies is restarted behind the op that killed it."""
    rows, left = [], list(names)
    while left:
        command = [sys.executable, os.path.abspath(__file__), "--worker", dtype, "--backend", options.backend] + (["--first"] if options.first else [])
        process = subprocess.run(command, input="\n".join(left), capture_output=True, text=True)
        last = None
        for line in process.stdout.splitlines():
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            if "begin" in row:
                last = row
            elif "status" in row:
                rows.append({"dtype": dtype, **row})
                last = None
        if process.returncode == 0:
            break
        if last is None:
            rows.append({"dtype": dtype, "op": left[0], "status": "crash", "why": process.stderr.strip().splitlines()[-1:]})
            left = left[1:]
        else:
            rows.append({"dtype": dtype, "op": last["op"], "sample": last["begin"], "status": "crash", "why": f"signal {-process.returncode}"})
            left = left[left.index(last["op"]) + 1:]
    for row in bad_rows(rows, known_reasons()):
        print(row, file=sys.stderr, flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", metavar="DTYPE")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dtype", nargs="*", default=["float32", "int64", "bool"])
    parser.add_argument("--only", default="")
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="captured whole, for each dtype")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.worker:
        return worker(options.first, options.backend, options.worker, sys.stdin.read().split("\n"))
    from concurrent.futures import ThreadPoolExecutor
    names = all_names(options.only)
    chunks = [(d, names[i:i + 40]) for d in options.dtype for i in range(0, len(names), 40)]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = [r for part in pool.map(lambda c: run_chunk(options, *c), chunks) for r in part]
    return report(rows, options)


def by_op(rows):
    table = collections.defaultdict(list)
    for row in rows:
        table[row["op"]].append(row)
    return table


def share_whole(rows):
    """Percentage of ops whose samples all were captured whole; samples on which plain Python raises do not count either way."""
    ops = by_op(rows).values()
    return 100 * sum({"whole"} <= {r["status"] for r in op} <= {"whole", "raises"} for op in ops) / max(len(ops), 1)


def bad_rows(rows, known):
    """What fails the sweep: any reason of a break that is not known for the op counts."""
    def accepted(row):
        return row["status"] == "break" and all((row["op"], r) in known or ("*", r) in known for r in row["why"].split(","))
    return [r for r in rows if r["status"] not in ("whole", "raises") and not accepted(r)]


def report(rows, options):
    failed = False
    for dtype in options.dtype:
        of_dtype = [r for r in rows if r["dtype"] == dtype]
        count = collections.Counter(r["status"] for r in of_dtype)
        print(f"{dtype}: {len(by_op(of_dtype))} ops, {share_whole(of_dtype):.1f} % captured whole, samples: {dict(count)}")
        failed = failed or share_whole(of_dtype) < options.at_least
    bad = bad_rows(rows, known_reasons())
    for row in bad[:400]:
        print(f"  {row['dtype']} {row['op']} sample {row.get('sample', '?')}: {row['status']} {row.get('why', '')}")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f)
    print(f"{len(bad)} unexpected rows")
    return 1 if bad or failed else 0


if __name__ == "__main__":
    sys.exit(main())
