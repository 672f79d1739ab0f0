"""docs/ops.md: how every op of the core ATen set is compiled, read from the tables of rows. This test keeps the file
current.

    make golden-update        rewrites it (UPDATE_GOLDEN=1)
"""
import os
from pathlib import Path

import torch

import op_sweep
import op_sweep_worker
import pages
from framejit import _framejit

CLASSES = Path(__file__).resolve().parent / "op_classes.txt"
TABLE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
MEANING = {
    "decomposed": "rewritten into other ops of this table before kernels are made",
    "view": "index arithmetic: no kernel, no copy",
    "lowered": "loops of our own, fused with the ops around it",
    "composite": "torch expands it into other ops before it is recorded",
    "extern": "PyTorch's own op",
}
LEAST = {"decomposed": 18, "view": 6, "lowered": 122}  # may grow, never shrink
LEAST_OVERLOADS = 400


def core_ops():
    names = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        base, _, overload = name[len("aten::"):].partition(".")
        packet = getattr(torch.ops.aten, base, None)
        op = getattr(packet, overload or "default", None) if packet is not None else None
        if op is not None and torch.Tag.core in op.tags:
            names.append(base + ("." + overload if overload else ""))
    return sorted(set(names))


def treatment_of(op):
    kind = _framejit.treatment_of(op)
    composite = kind == "extern" and torch._C._dispatch_has_kernel_for_dispatch_key("aten::" + op,
        "CompositeImplicitAutograd")
    return "composite" if composite else kind


def own_overloads():
    """All overloads of PyTorch that a row of ours takes: by kind, those that write nothing; and in-place ones whose
    functional form a row takes."""
    names = {n[len("aten::"):] for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")}
    kinds = {kind: sorted(n for n in names if treatment_of(n) == kind) for kind in ("decomposed", "view", "lowered")}
    own = {n for ops in kinds.values() for n in ops}
    in_place = sorted(n for n in names if n.partition(".")[0].endswith("_")
                      and n.replace("_.", ".", 1).removesuffix("_") in own and n not in own)
    return kinds, in_place


def declined(own):
    """Lines about ops that have rows but run as PyTorch's own op for some samples of op_db: how many samples do not
    (op_partly.txt), and the ops whose first sample, a small one, does (op_classes.txt)."""
    bases = {name.partition(".")[0] for name in own}
    names = {op_sweep_worker.label_of(op): op.aten_name for op in op_sweep_worker.op_database()}
    partly = [(op, count) for dtype, op, count, _ in op_sweep.read_partly() if dtype == "float32"]
    some = [f"`{op}` {count}" for op, count in partly if names.get(op) in bases]
    listed = {op for op, _ in partly}
    none = [f"`{op}`" for op, kind in sorted(op_sweep.read_classes(CLASSES).items()) if kind == "extern"
            and names.get(op) in bases and op not in listed]
    return ", ".join(some), ", ".join(none) or "none"


def make_table():
    groups = {kind: [] for kind in MEANING}
    for op in core_ops():
        groups[treatment_of(op)].append(op)
    kinds, in_place = own_overloads()
    text = ["# How the core ATen ops are compiled", "",
            "Written by `tests/e2e/test_op_table.py` from the rows of the decompositions and lowerings (`make "
            "golden-update`). A row may leave some arguments or dtypes to PyTorch (the last section counts them). Ops "
            "outside the core set are treated the same way.", ""]
    text += ["| | ops | meaning |", "|---|---|---|"]
    text += [f"| {kind} | {len(groups[kind])} | {MEANING[kind]} |" for kind in MEANING]
    for kind in MEANING:
        text += ["", f"## {kind}", ", ".join(f"`{op}`" for op in groups[kind]) or "none"]
    total = sum(len(ops) for ops in kinds.values())
    text += ["", "## All overloads that become kernels or index arithmetic",
             f"{total} overloads of PyTorch that write nothing: "
             + ", ".join(f"{len(ops)} {kind}" for kind, ops in kinds.items()) +
             f". In addition, {len(in_place)} in-place overloads become their functional form. Of the core set's "
             f"{sum(len(ops) for ops in groups.values())} ops, {sum(len(groups[kind]) for kind in kinds)} are among "
             "them."]
    for kind, ops in kinds.items():
        core = set(groups[kind])
        text += ["", f"{kind}, not core: " + ", ".join(f"`{op}`" for op in ops if op not in core)]
    some, none = declined({name for ops in kinds.values() for name in ops})
    text += ["", "## Rows that leave some samples to PyTorch",
             "Each figure says how many of the first 40 float32 samples of torch's op_db become kernels or views of "
             "framejit. The other samples run as PyTorch's own ops (`tests/e2e/op_partly.txt`, also in bfloat16 "
             "and int64, `tests/e2e/op_partly_reasons.txt` says why; `make sweep`): " + some + ".",
             "", "These have rows, but the sample that the sweep looks at runs as PyTorch's own op: " + none
             + ". Ops that draw random numbers are never part of a kernel; [numerics.md](numerics.md) says who draws."]
    return pages.filled("\n".join(text) + "\n"), groups, total


def test_the_table_of_ops_is_current():
    text, groups, total = make_table()
    if os.environ.get("UPDATE_GOLDEN") == "1":
        TABLE.write_text(text)
    assert TABLE.read_text() == text, "docs/ops.md is not current: make golden-update"
    for kind, least in LEAST.items():
        assert len(groups[kind]) >= least, (kind, len(groups[kind]))
    assert total >= LEAST_OVERLOADS, total
