"""Every row of log_events.def: a program that provokes the event, and the line that its user reads."""
import os
import re
from pathlib import Path

import pytest

import programs
from test_derived_weights import watch_is_refused

pytestmark = pytest.mark.nothing_captured  # the programs compile in processes of their own
ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^LOG_EVENT\((\w+), (\w+),", (ROOT / "runtime/base/log_events.def").read_text(), re.M)

# Where an event is tested that needs a GPU.
ELSEWHERE = {"Recorded": "tests/gpu/test_graphs.py"}

IMPORTS = """
import torch, framejit
torch.set_grad_enabled(False)
"""

LAMBDA, SCALED = r"program.py:\d+ <lambda>", r"program.py:\d+ Scaled.forward"  # where it happens

# What happens: the settings, a program, and for each event what its line says after "[framejit ... channel] ".
PROGRAMS = {
    "a call": ({}, """
weight = torch.randn(4, 4)
@framejit.compile
def f(x, word):
    y = (x @ weight).relu() - x.mean(0, keepdim=True)
    print(end="")
    return y * len(word)
f(torch.ones(2, 4), "a"), f(torch.ones(2, 4), "ab")
""", {
        "Break": r"program.py:\d+ f break outside_effect: .*; what to do: .+",
        "Recompile": r"program.py:\d+ f recompile 1/8 of program.py:\d+ f: word was 'a', now it is 'ab'; what to do: "
                     r".+",
        "Guard": r".*guard L\['x'\].*",
        "Graph": r"program.py:\d+ f graph of 4 calls",
        "AtenGraph": r".*graph \w+ after recording with \d+ ops",
        "Loops": r"program.py:\d+ f loops \w+ with \d+ nests",
        "Schedule": r"program.py:\d+ f schedule \w+ after \w+: \d+ steps",
        "Kernel": r".*kernel \w+ as \w+, \d+ lines",
        "Bytecode": r"program.py:\d+ f bytecode of f: \d+ instructions",
        "Stage": r".*\w+ took [0-9.e-]+ ms",
        "Target": r".*target cpu: .+",
        "Steps": r".*plan \w+ with \d+ steps, executable \w+",
        "Exit": r"program.py:\d+ f exit in \d+ steps",
    }),
    "nests that stay apart": ({}, """
framejit.compile(lambda x: (x.sum(0), x.sort(0)[0] + 1, x.sum(1), x.cumsum(0)))(torch.randn(64, 64))
""", {"Refused": r".*schedule \w+: [1-9]\d* pairs of nests with common data not fused"}),
    "training": ({}, """
torch.set_grad_enabled(True)
weight = torch.randn(4, 4, requires_grad=True)
framejit.compile(lambda x: (x @ weight).sigmoid().sin().sum())(torch.ones(2, 4)).backward()
""", {
        "Joint": LAMBDA + r" joint graph \w+: [1-9]\d* ops forward, [1-9]\d* ops backward",
        "Partition": LAMBDA + r" graph \w+: [1-9]\d* values saved, [1-9]\d* bytes besides inputs and outputs, \d+ ops "
                              r"computed again",
        "Backward": LAMBDA + r" backward of \w+: [1-9]\d* ops, 1 gradients given, 1 wanted",
    }),
    "an error of torch": ({}, """
try:
    framejit.compile(lambda x, y: x * 2 + y)(torch.ones(3, 4), torch.ones(5))
except RuntimeError:
    pass
""", {"TorchWords": r"(.* )?torch says about add.Tensor: The size of tensor a \(4\) must match .*"}),
    "a plain run": ({}, """
framejit.compile(lambda x: x * 2)(torch.eye(3).to_sparse())
""", {
        "BrokeGraph": r"program.py:\d+ <lambda> has a graph break, unsupported_tensor: .+; what to do: .+\. "
                      "Logged once",
    }),
    "odd globals": ({}, """
class D(dict):
    pass
framejit.compile(eval("lambda x: x * 2", D()))(torch.ones(3))
""", {"RunsPlainly": r"<string>:\d+ <lambda> runs as plain Python, odd_globals: .+; what to do: .+\. Logged once"}),
    "an error that the data shows": ({}, """
try:
    framejit.compile(lambda x, at: x[at] + 1)(torch.ones(3), torch.tensor([7]))
except IndexError:
    pass
""", {"Fallback": r"program.py:\d+ <lambda> plain run kernel_check: .+; what to do: .+"}),
    "a compile that a signal's handler ends": ({}, """
def stop(event):  # Python code that runs in the compile, as a handler does
    if event["event"] == "AtenGraph":
        raise KeyboardInterrupt
token = framejit._framejit.add_listener(stop)
try:
    framejit.compile(lambda x: x * 2)(torch.ones(2))
except KeyboardInterrupt:
    framejit._framejit.remove_listener(token)
""", {"Interrupted": r"program.py:\d+ <lambda> compile interrupted: a signal handler ended a compile; what to do: .+"}),
    "the limit": ({"FRAMEJIT_ENTRIES": "2"}, """
f = framejit.compile(lambda x, word: x * len(word))
for n in range(4):
    f(torch.ones(2), "w" * n)
""", {
        "Limit": r"program.py:\d+ <lambda> 2/2 entries of program.py:\d+ <lambda>, plain Python from now on: word "
                 r"was 'w', now it is 'ww'; what to do: .+",
        "Entry": r"program.py:\d+ <lambda> entry limit: plain Python from now on: 2 entries; what to do: "
                 r"FRAMEJIT_LOGS=recompiles says what differs: .*",
    }),
    "the limit of all modules": ({"FRAMEJIT_ENTRIES": "2"}, """
class Net(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.word = "w" * n
    def forward(self, x, word):
        return x + len(self.word) + len(word)
models = [framejit.compile(Net(n)) for n in range(20)]
for word in "", "a", "ab":
    for model in models:
        model(torch.ones(2), word)
""", {"LimitOfModules": r"program.py:\d+ Net.forward 32/32 entries of program.py:\d+ Net.forward of all modules "
                        r"\(16 x FRAMEJIT_ENTRIES\), plain Python from now on: .+; what to do: .+"}),
    "classes that each call makes anew": ({}, """
import gc
f = framejit.compile(lambda x, scaled: scaled.by)
for _ in range(20):
    made = type("Scaled", (), {"by": 2.0})
    f(torch.ones(2), made)
    del made
    gc.collect()
""", {"LeftAlone": r"program.py:\d+ <lambda> plain Python from now on: .*an object that the guards name is gone; what "
                     r"to do: keep these objects alive .*"}),
    "attention": ({}, """
def f(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v
framejit.compile(f)(*(torch.randn(2, 4, 640, 16) for _ in range(3)))
""", {"Attention": r".*graph \w+: attention f32\[2, 4, 640, 16\] over 640 keys is one library call"}),
    "max-autotune": ({"FRAMEJIT_AUTOTUNE_MS": "120000"}, """
framejit.compile(lambda x: x.exp().sum(1), mode="max-autotune")(torch.randn(512, 512))
""", {"Choice": r"program.py:\d+ <lambda> \w+: \w+ of cost_model [0-9.e+-]+ ms.*"}),
    "max-autotune without a budget": ({"FRAMEJIT_AUTOTUNE_MS": "0"}, """
framejit.compile(lambda x: x.exp().sum(1), mode="max-autotune")(torch.randn(512, 512))
""", {"NotTimed": r"program.py:\d+ <lambda> \w+ not timed: the budget of 0 ms is used up"}),
    "a shape function in Python": ({}, """
@torch.library.custom_op("framejit_events::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2
doubled.register_fake(lambda x: x.new_empty(x.shape))
framejit.compile(lambda x: doubled(x) + 1)(torch.ones(3))
""", {"PythonShapes": r".*shapes of 1 ops came from Python: framejit_events::doubled"}),
    "weights": ({"FRAMEJIT_DERIVE_AFTER": "1"}, """
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 512))
        self.scale = torch.nn.Parameter(torch.rand(512))
    def forward(self, x):
        return x @ (self.weight * self.scale)
def use(model):
    compiled = framejit.compile(model)
    for _ in range(4):
        compiled(torch.ones(2, 512))
    model.scale.mul_(2)
    for _ in range(4):
        compiled(torch.ones(2, 512))
use(Scaled())
use(Scaled().share_memory())
""", {
        "Derived": SCALED + r" graph \w+: 1 derived values, 1048576 bytes, 1 of them new, from .*weight.*",
        "NotFresh": SCALED + r" graph \w+: .*'scale'\] has changed; derived values are made again after \d+ calls",
        "NotDerived": SCALED + r" graph \w+: nothing is derived: .+",
        "NotWatched": SCALED + r" weights are read in each call, nothing is derived from them: .*shared.*; what to do: "
                      r"options=\{\"freezing\": True\}, if nothing writes to weights unseen by torch .*Logged once",
    }),
    "replays": ({}, """
framejit.compile(lambda x: x + 1, mode="reduce-overhead")(torch.ones(3))
""", {"NotReplayed": r"\w+ graph \w+ is not replayed, no_device: none of its steps runs on a GPU; what to do: .+"}),
    "settings of torch's compiler": ({}, """
with torch.compiler.config.patch(dynamic_sources="L['x']"):
    framejit.compile(lambda x: x + 1)(torch.ones(3))
""", {"Unheeded": r"torch\.compiler\.config\.dynamic_sources is not followed: .+"}),
    "an error of the compiled branch": ({}, """
@framejit.compile
def f(x):
    asked = torch.compiler.is_compiling()
    if not asked and bool(x.sum() > 1e9):
        return x
    y = x * 2
    print(end="")
    if asked:
        raise ValueError("not here")
    return y + 1
try:
    f(torch.ones(3))
except ValueError:
    pass
""", {"AnsweredYes": r"program.py:5 f was told that it is being compiled, and then raised ValueError; plain "
                     r"Python may not raise it\. "
                     r"Call it again: is_compiling\(\) is False in program.py:5 f from now "
                     "on"}),
    "a full disk": ({"FRAMEJIT_DUMP_DIR": "{folder}"}, """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can grow
framejit.compile(lambda x: x + 1)(torch.ones(3))
""", {"NotWritten": r"cannot write .*: File too large; .*name another place \(FRAMEJIT_DUMP_DIR\)"}),
    "a cache that others can write": ({"FRAMEJIT_CACHE_DIR": "{folder}"}, "", {
        "CacheRefused": r".*others can write it.*"}),
}
WATCHES = "weights",


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_event_is_one_line(tmp_path, name):
    if name in WATCHES and watch_is_refused():
        pytest.skip("not tested: this system has no write watch, so nothing is derived")
    settings, program, events = PROGRAMS[name]
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777 if name.startswith("a cache") else 0o700)
    path = tmp_path / "program.py"
    path.write_text(IMPORTS + program)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")}
    done = programs.run(file=path, env=clean | {"FRAMEJIT_LOGS": "all"} | {
        setting: value.format(folder=folder) for setting, value in settings.items()})
    assert done.returncode == 0, done.stderr[-2000:]
    channels = dict(ROWS)
    for event, said in events.items():
        line = rf"^\[framejit (\d+\.\d+ )?{channels[event]}\] {said}(: {folder}/\S+)?$"
        same_channel = [text for text in done.stderr.splitlines() if f"{channels[event]}] " in text]
        assert re.search(line, done.stderr, re.M), (event, same_channel or done.stderr[-2000:])


def test_every_row_has_a_program():
    shown = [event for _, _, events in PROGRAMS.values() for event in events]
    assert len(ROWS) > 30 and sorted([*shown, *ELSEWHERE]) == sorted(event for event, _ in ROWS)
    for event, path in ELSEWHERE.items():
        assert f'"{event}"' in (ROOT / path).read_text(), path
