"""After a thousand recompiles the process is as large as before: new functions, one function whose entries die, and one
that is reset."""
import gc
import itertools
import os
import weakref
from pathlib import Path

import pytest
import torch

import framejit
import programs
from check import assert_flat, backend, fresh, same  # noqa: F401

NUMBERS = itertools.count(3)  # never the same twice: each compile makes kernels that no cache has


def new_functions(backend):
    while True:
        k, names = next(NUMBERS), {}
        exec(f"def f(x):\n    y = x + {k}\n    return y * y", names)
        yield framejit.compile(names["f"], backend=backend), (), lambda x, k=k: (x + k) ** 2


def scaled(x, kind):
    return (x + kind.k) * kind.k


def entries_of_dead_classes(backend):
    compiled = framejit.compile(scaled, backend=backend, fullgraph=True)  # compiled even if it does not pay
    while True:
        k = next(NUMBERS)
        yield compiled, (type("Kind", (), {"k": k}),), lambda x, k=k: (x + k) * k
        gc.collect(0)


class Kind:
    pass


def reset_when_full(backend):
    compiled, kind = framejit.compile(scaled, backend=backend, dynamic=False), Kind()
    for count in itertools.count():
        kind.k = next(NUMBERS)
        yield compiled, (kind,), lambda x, k=kind.k: (x + k) * k
        if count % 8 == 7:
            framejit.reset()


MOST = 2500  # KiB


@pytest.mark.slow
@pytest.mark.parametrize("make", [new_functions, entries_of_dead_classes, reset_when_full])
def test_a_thousand_recompiles_keep_memory_flat(make, backend, monkeypatch):
    made, reset = 0, framejit.reset

    def counting_reset():
        nonlocal made
        made += framejit.stats()["graphs"]
        reset()
    monkeypatch.setattr(framejit, "reset", counting_reset)
    source, x = make(backend), torch.ones(4)

    def run(count):
        for compiled, args, want in itertools.islice(source, count):
            same(compiled(x, *args), want(x))
            del args
            assert not framejit.stats()["fallbacks"]
    run(200)
    thousands = assert_flat(lambda: run(1000), MOST)
    assert made + framejit.stats()["graphs"] == 200 + 1000 * thousands


@pytest.mark.breaks(outside_effect={"broken": 1})
@pytest.mark.parametrize("stop", ["", "    print(end='')\n"], ids=["whole", "broken"])
def test_compiled_code_keeps_no_function_alive(stop, backend):
    names = {}
    exec(f"def f(x):\n    y = x + {next(NUMBERS)}\n{stop}    return y * y", names)
    compiled, code = framejit.compile(names["f"], backend=backend, fullgraph=not stop), weakref.ref(names["f"].__code__)
    compiled(torch.ones(4))
    compiled(torch.ones(4))
    assert framejit.stats()["graphs"] > 0
    del names, compiled
    gc.collect()
    assert code() is None


GLOBAL = '''
import gc, sys, torch
from check import assert_flat
torch.set_grad_enabled(False)
x = torch.ones(3)
TEXT = """
def f(x):
    y = x + 1
    return y * y
class C:
    def step(self, x):
        return x + 1
"""
def run(count):
    for _ in range(count):
        names = {{}}
        exec(TEXT, names)
        assert names["f"](x)[0] == 4 and names["f"](x)[0] == 4
        names["C"]().step(x)
    gc.collect()  # a function and its globals are a cycle
run(200)
times = assert_flat(lambda: run(500), {most})
print(times, sys.modules["framejit"].stats()["graphs"])
'''


@pytest.mark.slow
@pytest.mark.nothing_captured  # in this process
def test_functions_that_the_global_mode_meets_keep_memory_flat():
    """A function is compiled in its second call; a method is called once, and only counted."""
    done = programs.run(GLOBAL.format(most=1500), global_mode=True,
                        env={**os.environ, "FRAMEJIT_LOGS": "", "PYTHONPATH": str(Path(__file__).parent)})
    assert done.returncode == 0, done.stderr[-3000:]
    times, graphs = map(int, done.stdout.split())
    assert graphs == 200 + 500 * times
