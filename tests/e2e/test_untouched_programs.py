"""FRAMEJIT=1: which functions of a program that names no compiler are compiled, and when."""
import json
import os
from pathlib import Path

import pytest

import programs

START = """
import sys, torch
def graphs():
    return sys.modules["framejit"].stats()["graphs"]
torch.set_grad_enabled(False)
x = torch.ones(3)
"""


def run(tmp_path, program, **environment):
    """What the program prints, and the functions in which its graphs begin."""
    path = tmp_path / "program.py"
    path.write_text(START + program)
    env = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")} | {"FRAMEJIT_STRICT": "1",
        "FRAMEJIT_LOGS": "graph", "FRAMEJIT_LOGS_FORMAT": "json"}
    done = programs.run(file=path, env=env | environment, global_mode=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), [json.loads(line)["at"].split(" ")[1] for line in done.stderr.splitlines()]


@pytest.mark.parametrize("wanted", [None, 1, 4])
def test_the_call_that_compiles(tmp_path, wanted):
    """Calls without a tensor do not count."""
    out, compiled = run(tmp_path, """
def f(x):
    return x * 2
for _ in range(6):
    f(x), f(3)
    print(graphs())
""", **({"FRAMEJIT_MIN_CALLS": str(wanted)} if wanted else {}))
    assert [int(line) for line in out] == [int(call >= (wanted or 2)) for call in range(1, 7)] and compiled == ["f"]


@pytest.mark.parametrize("environment, names", [
    ({"FRAMEJIT_FILTER": ":a$"}, ["a"]),
    ({"FRAMEJIT_SKIP": ":a$"}, ["a_too", "b", "C.step"]),
    ({"FRAMEJIT_FILTER": "^__main__:(a|C)", "FRAMEJIT_SKIP": "too"}, ["a", "C.step"]),
    ({"FRAMEJIT_FILTER": "^helper:"}, ["a_too"]),
], ids=["filter", "skip", "both", "module"])
def test_filter_and_skip_choose_by_module_and_name(tmp_path, environment, names):
    (tmp_path / "helper.py").write_text("def a_too(x): return x + 2\n")
    out, compiled = run(tmp_path, """
from helper import a_too
def a(x): return x + 1
def b(x): return x + 3
class C:
    def step(self, x): return x + 4
for _ in range(3):
    print(*[int(f(x).sum()) for f in (a, a_too, b, C().step)])
""", **environment)
    assert out == ["6 9 12 15"] * 3
    assert compiled == names




def test_a_function_that_never_meets_a_tensor_is_left_alone(tmp_path):
    out, compiled = run(tmp_path, """
def seldom(x): return x * 2
def never(x): return x * 3
def mixed(x): return x * 4
def both():
    for f in (seldom, never, mixed):
        for _ in range(3):
            f(x)
    print(graphs())
for i in range(1200):
    if i < 900:
        seldom(i)
    never(i), mixed(x if i % 999 == 998 else i)
both()
sys.modules["framejit"].reset()
both()
""")
    assert out == ["2", "3"] and compiled == ["seldom", "mixed", "seldom", "never", "mixed"]


def test_the_first_items_of_containers_are_looked_at(tmp_path):
    _, compiled = run(tmp_path, """
def early(xs): return xs[15] + 1
def late(xs): return xs[16] + 1
def late_in_a_dict(xs): return xs[16] + 1
items = [1] * 15 + [x] + [2] * 100000
for _ in range(4):
    early(items), late([1] + items), late_in_a_dict(dict(enumerate([1] + items)))
""")
    assert compiled == ["early"]


def test_a_tensor_among_the_arguments_or_one_container_deep(tmp_path):
    _, compiled = run(tmp_path, """
def direct(n, x): return x + n
def by_name(*, x): return x + 1
def rest(*xs): return xs[0] + 1
def names(**xs): return xs["x"] + 1
def in_list(xs): return xs[1] + 1
def in_tuple(xs): return xs[0] + 1
def in_dict(xs): return xs["x"] + 1
def two_deep(xs): return xs[0][0] + 1
def below_a_dict(xs): return xs["x"][0] + 1
def none(n): return torch.ones(n)
def closed_over(): return x + 1
for _ in range(4):
    direct(1, x), by_name(x=x), rest(x), names(x=x), in_list([1, x]), in_tuple((x,)), in_dict({"x": x})
    two_deep([[x]]), below_a_dict({"x": [x]}), none(2), closed_over()
""")
    assert compiled == ["direct", "by_name", "rest", "names", "in_list", "in_tuple", "in_dict"]


def test_one_container_deep_among_the_rest(tmp_path):
    _, compiled = run(tmp_path, """
def rest(*xs): return xs[0][0] + 1
def names(**xs): return xs["x"][0] + 1
def two_deep(*xs): return xs[0][0][0] + 1
for _ in range(4):
    rest([x]), names(x=[x]), two_deep([[x]])
""")
    assert compiled == ["rest", "names"]


def test_the_standard_library_and_torchs_own_functions_are_left_alone(tmp_path):
    """They can be compiled by name."""
    out, compiled = run(tmp_path, """
import colorsys, torch.nn.functional as F
from torch.nn.utils.convert_parameters import parameters_to_vector
calls = [lambda f: f(colorsys.rgb_to_yiq)(x, x, x), lambda f: f(F.softmax)(x, -1),
    lambda f: f(parameters_to_vector)([x, x])]
for call in calls:
    for _ in range(4):
        call(lambda function: function)
print(graphs())
import framejit
for call in calls:
    call(framejit.compile)
print(graphs())
""")
    assert out == ["0", "3"] and compiled == ["rgb_to_yiq", "softmax", "parameters_to_vector"]


STARTED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "python/startup")!r})
import _framejit_startup
_framejit_startup.start()
"""
VAIN = """
class Net(torch.nn.Module):
    def forward(self, x):
        return step(x)
def step(x): return x + 1
def count(n): return n + 1
net = Net()
for _ in range(3):
    count(1), net(x)
"""
NAMES = "__main__:Net.forward, __main__:step"


@pytest.mark.parametrize("environment, said", [
    ({"FRAMEJIT_FILTER": "^Net"}, "FRAMEJIT_FILTER='^Net': nothing is compiled, because it is found in no "
                                  f"module:qualname of the 2 functions that FRAMEJIT=1 could compile: {NAMES}"),
    ({"FRAMEJIT_FILTER": "step"}, None),
    ({"FRAMEJIT_FILTER": "^Net", "FRAMEJIT_LOGS": "-warnings"}, None),
    ({"FRAMEJIT": "", "FRAMEJIT_FILTER": "step"},
     "FRAMEJIT_FILTER without FRAMEJIT=1: ignored; functions that the program itself compiles are not affected"),
    ({"FRAMEJIT": "0", "FRAMEJIT_FILTER": "step", "FRAMEJIT_SKIP": "step"}, None),
], ids=["vain", "found", "silenced", "not in global mode", "switched off"])
def test_a_filter_that_finds_nothing_is_said_at_the_end(tmp_path, environment, said):
    path = tmp_path / "program.py"
    path.write_text(STARTED + "import framejit\n" * ("FRAMEJIT" in environment) + START + VAIN)
    env = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")} | {"FRAMEJIT": "1"} | environment
    done = programs.run(file=path, env=env, forked=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ([f"[framejit warnings] {said}"] if said else []), done.stderr


def test_a_filter_with_nothing_to_compile_says_nothing(tmp_path):
    """Nor does one that the process of a worker inherits."""
    path = tmp_path / "program.py"
    path.write_text(STARTED + """
import multiprocessing, torch
def count(n): return n + 1
def work(): print(int(double(torch.ones(2))[0]), flush=True)
def double(x): return x * 2
if __name__ == "__main__":
    count(1)
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start(), worker.join()
""")
    env = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")}
    env |= {"FRAMEJIT": "1", "FRAMEJIT_FILTER": "Net"}
    done = programs.run(file=path, env=env, forked=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
