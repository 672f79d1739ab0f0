"""FRAMEJIT=1 compiles modules at their outermost call, wherever their code is installed."""
import json

import pytest
from test_api import run

MODEL = """
import torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
    def forward(self, x):
        return scaled(self.down(torch.relu(self.up(x))))
def scaled(x):
    return x * 0.5
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(*[Block() for _ in range(3)])
    def forward(self, batch):
        return self.blocks(batch.x)
class Batch:
    def __init__(self, x):
        self.x = x
"""
REPORT = """
import json, sys
framejit = sys.modules["framejit"]
print(json.dumps([framejit.stats()[name] for name in ("graphs", "hits", "fallbacks")]))
"""


def counted(program, **environment):
    done = run(program + REPORT, global_mode=True, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.nothing_captured
@pytest.mark.parametrize("calls, graphs, hits", [(1, 0, 0), (2, 1, 0), (5, 1, 3)])
def test_only_the_outermost_module_is_compiled(calls, graphs, hits):
    """Its blocks and their layers are called often enough in the first call; none of its arguments is a tensor."""
    program = MODEL + f"""
net, x = Net().eval(), torch.randn(2, 4)
with torch.no_grad():
    expected = net(Batch(x))
    for _ in range({calls - 1}):
        assert torch.allclose(net(Batch(x)), expected)
"""
    assert counted(program) == [graphs, hits, 0]


@pytest.mark.nothing_captured
def test_a_class_of_the_program_is_no_module_of_torch():
    """Even if its code says that it is of the same file and has the same name."""
    program = MODEL + """
import sys
names = {}
exec(compile("class Module:\\n    def _call_impl(self, batch):\\n        return self.forward(batch)\\n",
             sys.modules["torch.nn.modules.module"].__file__, "exec"), names)
class Mine(names["Module"]):
    def forward(self, batch):
        return batch.x * 2
with torch.no_grad():
    for _ in range(5):
        Mine()._call_impl(Batch(torch.ones(2)))
"""
    assert counted(program) == [0, 0, 0]


@pytest.mark.nothing_captured
def test_modules_inside_of_a_break_are_not_outermost():
    program = MODEL + """
calls = []
def on_hook(module, args):
    print(end="")
    calls.append(module.inner(*args))
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner = torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4))
    def forward(self, x):
        x = self.first(x)
        sorted([1, 2], key=lambda n: on_hook(self, (x,)) or n)
        return x + 1
net, x = Outer().eval(), torch.randn(2, 4)
with torch.no_grad():
    for _ in range(4):
        net(x)
assert len(calls) == 8
"""
    environment = {"FRAMEJIT_LOGS": "graph", "FRAMEJIT_LOGS_FORMAT": "json"}
    done = run(program, global_mode=True, **environment)
    assert done.returncode == 0, done.stderr
    assert "Outer" in done.stderr and "Sequential" not in done.stderr and "in_features" not in done.stderr


@pytest.mark.nothing_captured
def test_left_out_modules_are_as_if_they_were_not_there():
    program = MODEL + """
net, x = Net().eval(), torch.randn(2, 4)
with torch.no_grad():
    for _ in range(4):
        net(Batch(x))
"""
    assert counted(program, FRAMEJIT_SKIP=":Net")[0] == 1  # the Sequential
    assert counted(program, FRAMEJIT_FILTER=":Block")[0] >= 1


@pytest.mark.nothing_captured
def test_packages_below_the_standard_library_are_compiled(tmp_path):
    """That is where they are without a virtual environment."""
    for folder in ("site-packages", "dist-packages", "inside"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"of_{folder[:4]}.py").write_text("def step(x):\n    return x.sin() + 1\n")
    program = f"""
import os, sys
os.__file__ = {str(tmp_path / "os.py")!r}
sys.path += [{str(tmp_path)!r} + "/" + folder for folder in ("site-packages", "dist-packages", "inside")]
import torch, of_site, of_dist, of_insi
counts = []
with torch.no_grad():
    for module in (of_site, of_dist, of_insi):
        for _ in range(3):
            module.step(torch.ones(3))
        counts.append(sys.modules["framejit"].stats()["graphs"])
assert counts == [1, 2, 2], counts
"""
    done = run(program, FRAMEJIT="1")
    assert done.returncode == 0, done.stderr
