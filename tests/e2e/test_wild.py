"""The runner of programs from outside: its verdicts (also for a crash and a hang), its table, and that it continues
where it stopped."""
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import framejit
from check import fresh  # noqa: F401

sys.path.append(str(Path(__file__).parents[1] / "wild"))
import run_wild  # noqa: E402
import wild_program  # noqa: E402
import wild_server  # noqa: E402

PROGRAM = wild_program.Program(lambda x: torch.relu(x * 2), (torch.arange(-3.0, 3),))


FAKE = """
import torch
from wild_program import Program

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 2)

class Breaking(Net):
    def forward(self, x):
        x = torch.relu(x * 2)
        print(end="")
        return x + 1

def make(name):
    return Program({"right": Net, "breaking": Breaking}[name](), (torch.arange(3.0),))
"""


def record(program=PROGRAM):
    return wild_program.measured(program, wild_program.eager(program), "compile")


def test_a_program_that_is_right_and_whole():
    r = record()
    assert r["verdict"] == "right" and r["whole"] and r["graphs"] == 1 and not r["break_reasons"]


def test_breaks_are_counted():
    def breaking(x):
        print(end="")
        return x + 1
    r = record(wild_program.Program(breaking, PROGRAM.args))
    assert r["verdict"] == "right" and not r["whole"] and r["break_reasons"] == {"outside_effect": 1}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("compiled, said",
                         [(lambda fn: lambda x: fn(x) * 1.001, "off by"),
                          (lambda fn: lambda x: fn(x[0, 0]), "raises IndexError"),
                                            (lambda fn: lambda x: fn(x.add_(1)) - 2 * (x > 0), "")])
def test_a_difference_is_told(monkeypatch, compiled, said):
    monkeypatch.setattr(framejit, "compile", compiled)
    r = record()
    assert r["verdict"] == "wrong" and said in r["detail"]


@pytest.mark.nothing_captured
@pytest.mark.parametrize("factor, verdict", [(1 + 1e-7, "right"), (1 + 1e-4, "wrong")])
def test_floats_are_as_exact_as_the_tensors_that_they_were_read_from(monkeypatch, factor, verdict):
    program = wild_program.Program(lambda x: {"mean": x.mean().item() * 100, "n": len(x)}, (torch.rand(50),))
    want = wild_program.eager(program)
    monkeypatch.setattr(framejit, "compile", lambda fn: lambda x: {**fn(x), "mean": fn(x)["mean"] * factor})
    assert wild_program.measured(program, want, "compile")["verdict"] == verdict


def test_batches_of_other_sizes():
    def by_rows(x, table):
        return x * table.sum() + x.shape[0]
    program = wild_program.Program(by_rows, (torch.rand(4, 3),), {"table": torch.rand(3)})
    others = wild_program.eager_of_larger(program)
    assert [(other.args[0].shape, other.kwargs["table"].shape) for other, _ in others] == [((8, 3), (3,)),
        ((12, 3), (3,))]
    r = wild_program.measured(program, wild_program.eager(program), "compile", others)
    assert r["verdict"] == "right" and r["whole"] and (r["resized"], r["more_graphs"]) == (2, 1)
    others[1] = (others[1][0], ("returned", others[1][1][1].double(), others[1][1][2]))
    assert wild_program.measured(program, wild_program.eager(program), "compile", others)["verdict"] == "wrong"
    assert wild_program.eager_of_larger(wild_program.Program(lambda x: x.view(2, 3), (torch.rand(2, 3),))) == []
    assert wild_program.larger(wild_program.Program(lambda n: n, (3,)), 2) is None


@pytest.mark.nothing_captured
def test_what_eager_refuses_is_passed_over():
    package = SimpleNamespace(make=lambda name: wild_program.Program(lambda x: x[0, 0, 0], PROGRAM.args))
    records = wild_server.records_of(package, "x", 20)
    assert [r["verdict"] for r in records] == ["passed over"] and "IndexError" in records[0]["detail"]


@pytest.mark.nothing_captured
def test_crashes_and_hangs_are_verdicts():
    assert wild_server.answer_of(lambda: (faulthandler.disable(), os.kill(os.getpid(), signal.SIGSEGV)),
                                 20) == {"verdict": "died", "detail": "signal 11"}
    assert wild_server.answer_of(lambda: time.sleep(60), 0.3)["verdict"] == "timeout"
    assert "KeyError" in wild_server.answer_of(lambda: {}["x"], 20)["detail"]


def command_of(pid):
    """Empty for a process that has ended, and for one that is only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.nothing_captured
def test_a_program_that_takes_too_long_leaves_no_process(tmp_path):
    noted = tmp_path / "pid"

    def nested():
        return wild_server.answer_of(lambda: (noted.write_text(str(os.getpid())), time.sleep(600)), 300)
    for seconds in (3, 30, 100):  # until there are processes that could be left behind
        assert wild_server.answer_of(nested, seconds)["verdict"] == "timeout"
        if noted.exists():
            break
    until = time.monotonic() + 60
    while command_of(noted.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not command_of(noted.read_text())


@pytest.mark.nothing_captured
def test_the_table_and_what_is_run_again(monkeypatch, tmp_path):
    common = dict(package="einops", seed=0, mode="compile", graphs=1, graph_breaks=0, recompiles=0, fallback_reasons={},
                  seconds=1)
    rows = [{**common, "name": "a", "verdict": "right", "detail": "", "whole": True, "break_reasons": {}, "resized": 2,
             "more_graphs": 3},
            {**common, "name": "b", "verdict": "wrong", "detail": "off", "whole": False,
             "break_reasons": {"outside_effect": 2}, "recompiles": 9},
            dict(package="einops", seed=0, name="c", verdict="passed over", detail="")]
    text = run_wild.table(rows, 0).splitlines()
    assert text[1].split() == ["einops", "compile", "2", "1", "1", "1", "1", "1", "2", "outside_effect", "2"]
    assert text[-2:] == ["not right or fallen back: 1", "einops b (compile): wrong: off"]
    journal, started = tmp_path / "journal", []
    journal.write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(run_wild, "names_of", lambda package, seed: list("abcdefgh"))
    monkeypatch.setattr(run_wild.subprocess, "Popen", lambda command, **_: started.append(json.loads(command[-1])))
    list(run_wild.start("einops", SimpleNamespace(journal=journal, seed=0, count=5, jobs=2, seconds=1,
                                                     modes=["compile"])))
    assert [(s["names"], s["count"]) for s in started] == [(["d", "f", "h"], 2), (["e", "g"], 1)]
    list(run_wild.start("einops", SimpleNamespace(journal=journal, seed=0, count=2, jobs=1, seconds=1,
                                                  modes=["training"])))
    assert started[-1]["names"] == list("abdefgh") and started[-1]["modes"] == ["training"]


@pytest.mark.nothing_captured
def test_what_is_below_the_floors():
    common = dict(package="timm", seed=3, mode="compile", verdict="right")
    rows = [dict(common, name=str(i), whole=i > 1, recompiles=9 * (i < 1)) for i in range(20)]
    assert run_wild.below_floors(rows, 3) == [
        "timm (compile): 90 % are whole, at least 95 % must be",
        "timm (compile): 5 % have more than 8 recompiles, at most 2 % may"]
    assert not run_wild.below_floors(rows, 0) and not run_wild.below_floors(rows[:19], 3), "too few to say"
    assert not run_wild.below_floors([dict(r, whole=True, recompiles=1) for r in rows], 3)


@pytest.mark.nothing_captured  # in this process
def test_a_server_runs_both_modes(tmp_path):
    (tmp_path / "fake_programs.py").write_text(FAKE)
    task = dict(package_name="fake", seed=0, names=["right", "refused", "breaking"], count=9, seconds=60,
                journal=str(tmp_path / "journal"))
    server = Path(wild_server.__file__)
    subprocess.run([sys.executable, server, json.dumps(task)], check=True, timeout=200,
                   env={**os.environ, "PYTHONPATH": f"{server.parent}:{tmp_path}"})
    records = run_wild.records(tmp_path / "journal")
    assert [(r["name"], r.get("mode"), r["verdict"], r.get("graphs"), r.get("graph_breaks")) for r in records] == [
        ("right", "compile", "right", 1, 0), ("right", "FRAMEJIT=1", "right", 1, 0),
        ("right", "training", "passed over", None, None),
        ("refused", None, "passed over", None, None),
        ("breaking", "compile", "right", 2, 1), ("breaking", "FRAMEJIT=1", "right", 2, 1),
        ("breaking", "training", "passed over", None, None)]
    assert records[2]["detail"] == "no parameters"


class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.unused = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(2, 2)

    def forward(self, x):
        x = self.norm(self.linear(x))
        return {"y": torch.nn.functional.dropout(x, 0.5, self.training), "n": 3, "sum": x.sum()}


def trained():
    torch.manual_seed(0)
    return wild_program.training(wild_program.Program(Trained().eval(), (torch.rand(4, 3),)))


def test_training():
    program = trained()
    want, others = wild_program.eager(program), wild_program.eager_of_larger(program)
    assert sorted(want[1]) == ["buffers", "gradients", "outputs"] and len(want[1]["outputs"]) == 2
    assert want[1]["gradients"]["unused.weight"] is None and want[1]["gradients"]["linear.weight"].abs().sum() > 0
    assert want[1]["buffers"]["norm.num_batches_tracked"] == 1, "the same buffers before each step"
    r = wild_program.measured(program, want, "training", others)
    assert r["verdict"] == "right" and r["whole"] and (r["resized"], r["more_graphs"]) == (2, 1)


def without_decay(module):  # what torch.compile does with parameters that get no gradient
    def run(x):
        return {**module(x), "more": sum(p.sum() * 0 for p in module.unused.parameters())}
    return run


@pytest.mark.nothing_captured
@pytest.mark.parametrize("compiled, said", [
    (lambda module: lambda x: {**module(x), "sum": module(x)["sum"]}, "num_batches_tracked"),
    (lambda module: lambda x: {k: v * 1 if k == "n" else v * 1.001 for k, v in module(x).items()}, "off by"),
    (lambda module: lambda x: {k: v.detach() if k == "sum" else v for k, v in module(x).items()}, "gradients"),
    (without_decay, "outputs")])
def test_a_difference_in_training_is_told(monkeypatch, compiled, said):
    program = trained()
    want = wild_program.eager(program)
    monkeypatch.setattr(framejit, "compile", compiled)
    r = wild_program.measured(program, want, "training")
    assert r["verdict"] == "wrong" and said in r["detail"] and not r["whole"]


@pytest.mark.parametrize("fn, why", [(lambda x: x, "no module"), (torch.nn.ReLU(), "no parameters")])
@pytest.mark.nothing_captured
def test_what_cannot_be_trained(fn, why):
    with pytest.raises(wild_program.PassedOver, match=why):
        wild_program.training(wild_program.Program(fn, (torch.rand(3),)))
