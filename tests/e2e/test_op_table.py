"""docs/ops.md: what becomes of every op of the core ATen set, read from the tables of rows. The file is kept current by this test.

    make golden-update        rewrites it (FRAMEJIT_UPDATE_GOLDEN=1)
"""
import os
from pathlib import Path

import torch

from framejit import _framejit

TABLE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
MEANING = {
    "decomposed": "rewritten into other ops of this table before kernels are made",
    "view": "index arithmetic: no kernel, no copy",
    "lowered": "loops of our own, fused with what stands around",
    "extern": "PyTorch's own op",
}
LEAST = {"decomposed": 17, "view": 6, "lowered": 111}  # may grow, never shrink


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


def make_table():
    groups = {kind: [] for kind in MEANING}
    for op in core_ops():
        groups[_framejit.treatment_of(op)].append(op)
    text = ["# What becomes of the core ATen ops", "",
            "Written by `tests/e2e/test_op_table.py` from the rows of the decompositions and lowerings (`make golden-update`). A row may leave",
            "some arguments or dtypes to PyTorch; ops outside the core set are treated the same way: by a row, or as PyTorch's own op.", ""]
    text += ["| | ops | meaning |", "|---|---|---|"]
    text += [f"| {kind} | {len(groups[kind])} | {MEANING[kind]} |" for kind in MEANING]
    for kind in MEANING:
        text += ["", f"## {kind}", ", ".join(f"`{op}`" for op in groups[kind]) or "none"]
    return "\n".join(text) + "\n", groups


def test_the_table_of_ops_is_current():
    text, groups = make_table()
    if os.environ.get("FRAMEJIT_UPDATE_GOLDEN") == "1":
        TABLE.write_text(text)
    assert TABLE.read_text() == text, "docs/ops.md is not current: make golden-update"
    for kind, least in LEAST.items():
        assert len(groups[kind]) >= least, (kind, len(groups[kind]))
