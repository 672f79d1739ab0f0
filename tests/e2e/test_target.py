"""What the log says about the machine that kernels are for."""
import os
import re

import pytest
import torch

import framejit
import programs

from levels import FLAGS, need

pytestmark = pytest.mark.nothing_captured

PROGRAM = """
import os
if "CORE" in os.environ:
    os.sched_setaffinity(0, {int(os.environ["CORE"])})
import torch, framejit
f = framejit.compile(lambda x, y: (x * y + 1).relu().sum(), backend=os.environ.get("BACKEND", "framejit"))
f(torch.ones(3, 4), torch.ones(3, 4))
"""


def said(program=PROGRAM, **environment):
    done = programs.run(program, env={**os.environ, "FRAMEJIT_LOGS": "target", **environment})
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("level", ["auto", *FLAGS])
def test_one_line_for_each_target(level):
    if level != "auto":
        need(level)
    lines = said(FRAMEJIT_CPU_FEATURES=level).splitlines()
    assert len(lines) == 1, lines
    text = (r"target cpu: \d+ registers of (128|256|512) bits, caches of \d+ KiB, \d+ KiB and \d+ KiB, cores: \d+; "
            r"costs of \w+")
    assert re.search(text, lines[0]), lines[0]


@pytest.mark.slow
def test_only_cores_that_the_process_may_use_count():
    allowed = os.sched_getaffinity(0)
    assert f", cores: {len(allowed)}; " in said()
    assert ", cores: 1; " in said(CORE=str(min(allowed)))


def test_the_interpreter_is_no_machine():
    [line] = said(BACKEND="interp").splitlines()
    assert line.endswith("target cpu: the reference target, which describes no real machine; costs of zen_avx512"), line


@pytest.mark.parametrize("backend, adds", [("framejit", "add.Tensor"), ("interp", "addmm")])
def test_the_interpreter_leaves_library_calls_as_they_are(backend, adds):
    program = PROGRAM.replace("(x * y + 1).relu().sum()", "torch.addmm(x[0, :3], x, y.t())")
    graph = said(program, BACKEND=backend, FRAMEJIT_LOGS="aten_graph").split(" after bare_products ")[1].split(
        "[framejit")[0]
    assert re.findall(r"= (add\S+) ", graph) == [adds], graph


def test_rows_of_costs_and_what_stands_in_for_them():
    from framejit import _framejit
    name, costs = _framejit.costs()
    assert name in ("zen_avx512", "intel_amx", "intel_avx512", "avx2", "sse") and costs["slab_rows"] > 0
    with pytest.raises(ValueError, match="not a row of costs.def and a number: no_such=1"):
        _framejit.replace_costs("no_such=1")
    with pytest.raises(ValueError, match="walked_points=3: walked_points is a power of two, 1 or more"):
        _framejit.replace_costs("walked_points=3")
    kernels = []
    try:
        for rows in ("", "most_work=60"):
            _framejit.replace_costs(rows)
            framejit.reset()
            f = framejit.compile(lambda x: torch.sin(torch.sin(torch.sin(x) * 1.01) * 1.01))
            before = framejit.stats()["kernels"]
            torch.testing.assert_close(f(torch.ones(40, 33)),
                                       torch.sin(torch.sin(torch.sin(torch.ones(40, 33)) * 1.01) * 1.01))
            kernels.append(framejit.stats()["kernels"] - before)
    finally:
        _framejit.replace_costs("")
    assert kernels == [1, 3]
