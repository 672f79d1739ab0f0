"""How many recordings of each test of shape rules used a rule, how many with symbols were really replayed at other
sizes, and why others were not. The counts are compared with a committed table.

    make golden-update        rewrites it (UPDATE_GOLDEN=1), unless a count of FLOORS falls

Outcomes: `ruled` (recorded with constant sizes and replayed; a rule of ours made a shape), `checked` (replayed at
larger sizes), `facts` (what was recorded holds at its own sizes only), `layout` (larger tensors cannot have it),
`error` (eager raises at larger sizes), `breaks <reason>` (recorded with symbols), `refused` (torch's C++ code before
the op does not take symbols), `constant <reason>` (a break with constant sizes).
"""
import collections
import os
import re
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("symbolic_checks.txt")
HEAD = """\
# What became of the recordings of each test of shape rules (symbolic_checks.py). `ruled` and `checked` may rise, never
# fall; nothing else may rise (make golden-update).
"""
FLOORS = ("ruled", "checked")
# What torch's C++ code says to a symbol (c10/core/TensorImpl.h), all of it.
REFUSAL = "set_sizes_and_strides() called on tensor with symbolic shape"
seen = collections.Counter()


def read():
    """test -> {outcome: count}"""
    table = {}
    for line in TABLE.read_text().splitlines() if TABLE.exists() else []:
        test, _, counts = line.partition(": ")
        if not line.startswith("#"):
            table[test] = {what: int(n) for what, n in (c.rsplit(" ", 1) for c in counts.split(", ") if c)}
    return table


def text_of(counts):
    return ", ".join(f"{what} {n}" for what, n in sorted(counts.items(), key=lambda c: (c[0] not in FLOORS, c[0])))


def write(table):
    TABLE.write_text(HEAD + "".join(f"{test}: {text_of(counts)}\n" for test, counts in sorted(table.items())))


def worse(known, now):
    """What is worse than in the table, in words."""
    return [f"{what}: {now.get(what, 0)} in place of {known.get(what, 0)}" for what in sorted({*known, *now})
            if (now.get(what, 0) < known.get(what, 0)) == (what in FLOORS)
            and now.get(what, 0) != known.get(what, 0)]


def refusal(error, prefix):
    """The outcome of a recording that raised, or None if it is not a refusal. The text of a break names its row of
    reasons.def; a text that merely contains "break" does not count."""
    is_break = re.match(r"break (\w+): ", str(error))
    if is_break:
        return f"{prefix} {is_break[1]}"
    return "refused" if prefix == "breaks" and str(error) == REFUSAL else None


def compare(test, now):
    known = read().get(test, {})
    fallen = worse(known, now)
    if fallen and os.environ.get("UPDATE_GOLDEN") != "1":
        pytest.fail(f"{test}: {'; '.join(fallen)} ({TABLE.name})")
    assert all(now.get(what, 0) >= known.get(what, 0) for what in FLOORS), f"{test}: fewer checks: {fallen}"
    if now != known:
        assert os.environ.get("UPDATE_GOLDEN") == "1", f"{test} is better than {TABLE.name}: make golden-update"
        write({**read(), test: now})


@pytest.fixture(autouse=True)
def counted(request):
    """For every test of a file that imports it: its counts are those of the table."""
    seen.clear()
    yield
    compare(request.node.name, dict(seen))
