"""What the log says of the machine that kernels are for."""
import os
import re
import subprocess
import sys

import pytest

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
