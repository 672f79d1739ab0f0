"""What the first compile must not do to the process: import a module of torch's own compiler, start a child, write a
file."""
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import json, os, sys, torch
import framejit
before = set(sys.modules)
opened, started = [], []
def audit(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        opened.append(str(args[0]))
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system"):
        started.append(event)
sys.addaudithook(audit)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()
@framejit.compile
def f(x):
    y = net(x)
    print("break", end="")
    return torch.softmax(y, -1)
with torch.no_grad():
    for n in (2, 3, 4):
        f(torch.randn(n, 8))
names = sorted(n for n in set(sys.modules) - before if n.startswith(("torch._dynamo", "torch._inductor",
    "torch._functorch", "torch.fx")))
print()
print(json.dumps({"names": names, "opened": opened, "started": started, "graphs": framejit.stats()["graphs"],
    "fallbacks": framejit.stats()["fallbacks"]}))
"""


def run(program, **environment):
    started = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=dict(os.environ, **environment),
                               start_new_session=True)
    try:
        out, errors = started.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)  # with its children, which keep the pipes open
        pytest.fail(f"did not end; it had said: {started.communicate()}")
    assert started.returncode == 0, errors
    return out.splitlines()


def test_compiling_imports_starts_and_writes_nothing():
    seen = json.loads(run(PROGRAM)[-1])
    assert seen["graphs"] >= 2 and seen["fallbacks"] == 0
    assert seen["names"] == []
    assert seen["opened"] == [] and seen["started"] == []


GLOBAL_MODE = """
import torch
def f(x, y):
    return torch.relu(x @ y) + 1
m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 4)).eval()
with torch.no_grad():
    for i in range(5):
        f(torch.ones(4, 4), torch.ones(4, 4)), m(torch.ones(2, 8))
import sys
print(sys.modules["framejit"].stats()["graphs"] if "framejit" in sys.modules else "not imported")
"""


def test_global_mode_compiles_without_touching_the_program():
    start = "import sys; sys.path[:0] = %r.split(':'); import _framejit_startup; _framejit_startup.start()\n"
    path = os.path.join(os.path.dirname(__file__), "..", "..", "python", "startup")
    assert int(run(start % path + GLOBAL_MODE, FRAMEJIT="1")[-1]) >= 2
    assert run(start % path + GLOBAL_MODE, FRAMEJIT="0")[-1] == "not imported"


FORK = """
import gc, os, sys, threading, torch, framejit
inside, go = threading.Event(), threading.Event()
def backend(graph, examples):
    inside.set()
    assert go.wait(60)
    return graph
slow = framejit.compile(lambda x: x * 2, backend=backend)
def run():
    with torch.no_grad():
        slow(torch.ones(2))
thread = threading.Thread(target=run)
thread.start()
assert inside.wait(60)
waits = not gc.isenabled()  # the collector waits while another thread compiles
sys.stdout.flush()
child = os.fork()
if child == 0:
    quick = framejit.compile(lambda x: x * 3)
    with torch.no_grad():
        right = torch.equal(quick(torch.ones(2)), torch.full((2,), 3.0))
    print("child", gc.isenabled(), right, framejit.stats()["graphs"], framejit.stats()["fallbacks"], flush=True)
    os._exit(0)
os.waitpid(child, 0)
go.set()
thread.join()
print("parent", waits, gc.isenabled(), framejit.stats()["graphs"])
"""


def test_a_child_forked_during_a_compile_collects_and_compiles():
    assert run(FORK) == ["child True True 1 0", "parent True True 1"]


# The first round forks nothing. torch's ops initialise things when they first run, and the first round does that. The C
# library's lock around that initialisation is not released in a child that is forked meanwhile, with or without
# framejit.
FORK_UNLOCKED = """
import os, threading, torch, framejit
from framejit import _framejit
names, lines = {}, [f"    x = (x * 0.{i + 1}).sin() + {i}\\n    x = x.sort(0).values" for i in range(20)]
exec("def f(x):\\n" + "\\n".join(lines) + "\\n    return x", names)
compiled, quick, x, state, seen = framejit.compile(names["f"]), framejit.compile(lambda x: (x * 3).sin()), \\
    torch.ones(8), [], []
def fork():
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            right = torch.equal(quick(x), (x * 3).sin()) and torch.equal(compiled(x), names["f"](x))
        print("child", right, framejit.stats()["fallbacks"], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
def listen(event):
    if event["event"] == "Refused" and again > 0 and not state:
        state.append(threading.Thread(target=fork))
        state[0].start()
_framejit.add_listener(listen)
with torch.no_grad():
    for again in range(3):
        state.clear()
        framejit.reset()
        same = torch.equal(compiled(x), names["f"](x)) and torch.equal(quick(x), (x * 3).sin())
        if again > 0:
            state[0].join()
            print("parent", same, framejit.stats()["graphs"], flush=True)
"""


def test_a_fork_of_another_thread_waits_for_kernels():
    assert run(FORK_UNLOCKED) == ["child True 0", "parent True 2"] * 2


EXIT_UNLOCKED = """
import threading, torch, framejit
names = {}
lines = [f"    x = (x * 0.{i + 1}).sin() + {i}\\n    x = x.sort(0).values" for i in range(KERNELS)]
exec("def f(x):\\n" + "\\n".join(lines) + "\\n    return x", names)
inside = threading.Event()
def work():
    with torch.no_grad():
        framejit.compile(names["f"])(torch.ones(8))
        print("compiled")
framejit._framejit.add_listener(lambda event: event["event"] == "Refused" and inside.set())
threading.Thread(target=work, daemon=True).start()
assert inside.wait(60)
print("end", flush=True)
"""


def test_the_program_ends_while_a_daemon_compiles():
    for kernels in (40, 160, 640):  # on a busy machine the daemon may be faster
        said = run(EXIT_UNLOCKED.replace("KERNELS", str(kernels)))
        if "compiled" not in said:
            break
    assert said == ["end"]


# A daemon is in Python code that framejit calls, and asks for the GIL while the interpreter ends.
EXIT_IN = """
import functools, threading, time, torch, framejit
inside, ending = threading.Event(), threading.Lock()
ending.acquire()
def wait():
    inside.set()
    ending.acquire()  # asks for the GIL when the interpreter ends
class EndsSlowly:
    def __del__(self, ending=ending, sleep=time.sleep):
        ending.release()
        sleep(.2)  # nothing tells that the daemon has asked
ends_slowly = EndsSlowly()
class Made:
    k = 3
@functools.lru_cache
def made():
    wait()
    return Made()
def backend(graph, examples):
    wait()
    return graph
class Listener:
    def __call__(self, event):
        pass
    def __del__(self):
        wait()
def work():
    with torch.no_grad():
        CALL
        print("never")
threading.Thread(target=work, daemon=True).start()
assert inside.wait(60)
print("end", flush=True)
"""
IN_PYTHON = {
    "a backend": "framejit.compile(lambda x: x + 1, backend=backend)(torch.ones(2))",
    "a function that the trace calls": "framejit.compile(lambda x: x * made().k)(torch.ones(2))",
    "the end of a listener": """for _ in iter(int, 1):
            framejit._framejit.remove_listener(framejit._framejit.add_listener(Listener()))""",
}


@pytest.mark.parametrize("where", IN_PYTHON)
def test_the_program_ends_while_a_daemon_is_in(where):
    assert run(EXIT_IN.replace("CALL", IN_PYTHON[where])) == ["end"]


def test_the_program_ends_while_a_daemon_is_in_a_listener():
    """The daemon, or the thread that helps it to compile."""
    of_a_kernel = """event["event"] == "Stage" and "kernel" in event["text"] and (inside.set(), ending.acquire())"""
    program = EXIT_UNLOCKED.replace("""event["event"] == "Refused" and inside.set()""", of_a_kernel)
    assert of_a_kernel in program
    lock = "import threading, time\nending = threading.Lock()\nending.acquire()\n"
    ends_slowly = EXIT_IN[EXIT_IN.index("class EndsSlowly"):EXIT_IN.index("class Made")]
    assert run(lock + program.replace("KERNELS", "40") + ends_slowly) == ["end"]
