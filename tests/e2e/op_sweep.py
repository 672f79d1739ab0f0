"""Every op of torch's op_db, compiled as `lambda *a, **k: op(*a, **k)`: equal to eager, or a clean break for a known reason.

    python tests/e2e/op_sweep.py [--backend framejit] [--first] [--jobs 2] [--dtype float32 ...] [--only REGEX]

Runs in worker processes, so that one crash is one row. Exit status 1 when a sample differs or crashes, or breaks for a reason that
op_sweep_reasons.txt does not list for its op.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
REASONS = os.path.join(HERE, "op_sweep_reasons.txt")


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


def run_one(op, sample, backend):
    import copy
    import torch
    import framejit
    from check import deep_copy, same
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
        if got[0] != want[0] or (got[0] == "raised" and got[1] != want[1]):
            return {"status": "differs", "why": f"{got[:2] if got[0] == 'raised' else 'returned'} instead of {want[:2] if want[0] == 'raised' else 'returned'}"}
        if got[0] == "returned":
            try:
                same(got[1], want[1])
                same(got[2], want[2], where="arguments")
            except AssertionError as e:
                return {"status": "differs", "why": str(e)[:160]}
    stats = framejit.stats()
    if stats["fallbacks"]:
        return {"status": "fallback"}
    if stats["graph_breaks"]:
        return {"status": "break", "why": ",".join(sorted(stats["break_reasons"]))}
    return {"status": "whole" if stats["graphs"] else "no graph"}


def worker(first, backend, dtype_name, names):
    warnings.simplefilter("ignore")
    sys.path.insert(0, HERE)
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    dtype = getattr(torch, dtype_name)
    wanted = set(names)
    for op in op_db:
        label = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
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
    from torch.testing._internal.common_methods_invocations import op_db
    names = [op.name + ("." + op.variant_test_name if op.variant_test_name else "") for op in op_db]
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
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", metavar="DTYPE")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dtype", nargs="*", default=["float32", "int64", "bool"])
    parser.add_argument("--only", default="")
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


def report(rows, options):
    known, bad = known_reasons(), []
    for dtype in options.dtype:
        by_op = collections.defaultdict(list)
        for row in rows:
            if row["dtype"] == dtype:
                by_op[row["op"]].append(row)
        whole = sum(all(r["status"] == "whole" for r in rs) for rs in by_op.values())
        count = collections.Counter(r["status"] for rs in by_op.values() for r in rs)
        print(f"{dtype}: {len(by_op)} ops, {whole} captured whole ({100 * whole / max(len(by_op), 1):.1f} %), samples: {dict(count)}")
    for row in rows:
        if row["status"] in ("differs", "crash", "fallback", "no graph"):
            bad.append(row)
        elif row["status"] == "break" and not any((o, r) in known for r in row["why"].split(",") for o in (row["op"], "*")):
            bad.append(row)
    for row in bad[:400]:
        print(f"  {row['dtype']} {row['op']} sample {row.get('sample', '?')}: {row['status']} {row.get('why', '')}")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f)
    print(f"{len(bad)} unexpected rows")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
