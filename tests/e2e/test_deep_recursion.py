"""Compiled code that recurses until little C stack is left: plain Python continues if it can, and nothing crashes.

Each program runs in a separate process with a stack of 8 MiB, because a crash ends the process.
"""
import sys

import pytest

import programs

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
import torch, framejit

sys.setrecursionlimit(1000000)

def quiet(x, n):
    return x if n == 0 else quiet(x + 1, n - 1)

def broken(x, n):
    if n == 0:
        return x
    print(end="")
    return broken(x + 1, n - 1)

def inner(x, n):
    if n == 0:
        return x
    print(end="")
    return inner(x + 1, n - 1)

def inlined(x, n):
    return inner(x, n)

class Module(torch.nn.Module):
    def forward(self, x, n):
        if n == 0:
            return x
        print(end="")
        return self(x + 1, n - 1)

def built(x, n):
    y = x + n
    for _ in range(n):
        y = [y]
    return y

def mapped(x, n):
    y = x + n - 1
    for _ in range(n):
        y = [y]
    return torch.utils._pytree.tree_map(lambda t: t + 1, y)

module = Module()
programs = {"quiet": quiet, "broken": broken, "inlined": inlined, "module": module, "built": built, "mapped": mapped}
name, n = sys.argv[1], int(sys.argv[2])
compiled = framejit.compile(programs[name])
quiet, broken, inner = (compiled if f is programs[name] else f for f in (quiet, broken, inner))
with torch.no_grad():
    for _ in range(2):
        try:
            result = compiled(torch.zeros(1), n)
        except RecursionError as error:
            print(error)
            break
        while isinstance(result, list):
            result = result.pop()
        assert result.item() == n, result
    else:
        print("as plain Python")
    stats = framejit.stats()
    assert stats["graphs"] > 0, stats
    print(stats["fallback_reasons"].get("stack_low", 0))
"""


def run(name, n):
    result = programs.run(PROGRAM, name, str(n))
    assert result.returncode == 0, (result.returncode, result.stderr[-2000:])
    answer, plainly = result.stdout.splitlines()
    return answer, int(plainly)


# From 3.12 on, CPython counts calls that go through C, and every call of a compiled function does: 1500 of them on
# 3.12.
COUNTS_C_CALLS = sys.version_info >= (3, 12)


@pytest.mark.parametrize("name, n", [("quiet", 5000), ("broken", 5000), ("inlined", 5000), ("module", 2000),
                                     ("built", 5000), ("mapped", 2000)])
def test_deep_recursion_ends_as_in_plain_python(name, n):
    assert run(name, 200 if COUNTS_C_CALLS else n)[0] == "as plain Python"


@pytest.mark.skipif(COUNTS_C_CALLS, reason="not tested: CPython's own limit of calls through C comes first")
@pytest.mark.parametrize("name", ["quiet", "broken"])
def test_calls_near_the_end_of_the_stack_are_plain_and_counted(name):
    answer, plainly = run(name, 8000)
    assert answer == "as plain Python" and plainly > 0


@pytest.mark.parametrize("name", ["quiet", "broken"])
def test_the_end_of_the_stack_is_an_error_of_the_program(name):
    answer, plainly = run(name, 200000)
    assert "maximum recursion depth exceeded" in answer and plainly > 0
