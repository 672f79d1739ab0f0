"""What the log says of the machine that kernels are for."""
import os
import re
import subprocess
import sys

import pytest
import torch

import framejit

from levels import FLAGS, need

pytestmark = pytest.mark.nothing_captured

PROGRAM = """
import torch, framejit
f = framejit.compile(lambda x, y: (x * y + 1).relu().sum())
f(torch.ones(3, 4), torch.ones(3, 4))
"""


def said(**environment):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, "FRAMEJIT_LOGS": "target", **environment})
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("level", ["auto", *FLAGS])
def test_one_line_for_each_target(level):
    if level != "auto":
        need(level)
    lines = said(FRAMEJIT_CPU_FEATURES=level).splitlines()
    assert len(lines) == 1, lines
    text = r"target cpu: \d+ registers of (128|256|512) bits, caches of \d+ KiB, \d+ KiB and \d+ KiB, cores: \d+; costs of \w+"
    assert re.search(text, lines[0]), lines[0]


def test_rows_of_costs_and_what_stands_in_for_them():
    from framejit import _framejit
    name, costs = _framejit.costs()
    assert name in ("zen_avx512", "intel_amx", "intel_avx512", "avx2", "sse") and costs["slab_rows"] > 0
    with pytest.raises(ValueError, match="no row of costs.def and its number: no_such=1"):
        _framejit.replace_costs("no_such=1")
    kernels = []
    try:
        for rows in ("", "most_work=60"):
            _framejit.replace_costs(rows)
            framejit.reset()
            f = framejit.compile(lambda x: torch.sin(torch.sin(torch.sin(x) * 1.01) * 1.01))
            before = framejit.stats()["kernels"]
            torch.testing.assert_close(f(torch.ones(40, 33)), torch.sin(torch.sin(torch.sin(torch.ones(40, 33)) * 1.01) * 1.01))
            kernels.append(framejit.stats()["kernels"] - before)
    finally:
        _framejit.replace_costs("")
    assert kernels == [1, 3]
