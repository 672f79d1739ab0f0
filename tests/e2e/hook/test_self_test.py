"""An interpreter that differs from the one the hook was built for is refused: nothing is armed, and the reason is
reported."""
import importlib.util
import os
import subprocess
import sys

import pytest

IMPORT = """
try:
    import _framejit_hooktest
    print("imported", flush=True)
except ImportError as refused:
    print(refused, flush=True)
"""
# The interpreter claims to be another version.
ANOTHER_VERSION = """
import ctypes, sys
version = ctypes.c_ulong.in_dll(ctypes.pythonapi, "Py_Version")
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(ctypes.addressof(version) & -4096), 8192, 3) == 0
version.value = 0x030A00F0
"""
# The self-test runs once, at the first import. CPython 3.13 runs that in the main interpreter, whoever imports it.
ANOTHER_INTERPRETER = f"""
import sys, _xxsubinterpreters as interpreters
other = interpreters.create(**({{}} if sys.version_info < (3, 12) else {{"isolated": False}}))
interpreters.run_string(other, {IMPORT!r})
"""
CAUSES = [pytest.param(ANOTHER_VERSION, "built for Python " + sys.version.split()[0], id="version")]
if sys.version_info < (3, 13):
    CAUSES.append(pytest.param(ANOTHER_INTERPRETER, "not the main interpreter", id="interpreter"))


def child(program):
    folder = os.path.dirname(importlib.util.find_spec("_framejit_hooktest").origin)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([folder, os.path.dirname(folder)]))
    environment.pop("FRAMEJIT_STRESS", None)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("program, cause", CAUSES)
def test_another_interpreter_is_refused(program, cause):
    lines, _ = child(program + IMPORT)
    assert lines and set(lines) == {f"framejit does not run on this CPython ({sys.version}): {cause}"}


@pytest.mark.parametrize("program, cause", CAUSES)
def test_without_a_hook_calls_run_plainly(program, cause):
    """framejit itself when the hook is refused: one warning with the reason, results of plain Python, no graph."""
    pytest.importorskip("torch", reason="not tested: framejit itself, on a Python without torch")
    pytest.importorskip("framejit")
    lines, errors = child(program + """
import torch, framejit
seen = []
def f(x):
    seen.append(1)
    return x + 1
compiled = framejit.compile(f)
results = [compiled(torch.ones(2)).tolist() for _ in range(3)]
print(results, len(seen), framejit.stats()["graphs"], framejit.stats()["hits"])
""")
    assert lines[-1] == f"{[[2.0, 2.0]] * 3} 3 0 0"
    assert errors.count("framejit compiles nothing") == 1 and "RuntimeWarning" in errors and cause in errors


FAULTS = {"function": "the function of a frame", "code": "the code of a frame", "globals": "the globals of a frame",
          "locals": "the locals of a frame", "stack": "the stack top of a frame",
          "slot": "the place of the evaluator in the interpreter state", "result": "a native run gives another result"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_nothing_is_armed(ht, fault):
    """One field of the layout is read a word too far, or the evaluator is wrong: the fault is named, and armed calls
    are plain ones."""
    def f(x):
        return x + 1

    ht.mark(f, ht.RUN)
    armed = ht.armed(f)
    assert armed(1) == 2 and ht.counts(f)[0] == 1
    try:
        assert ht.self_test(fault) == FAULTS[fault]
        assert armed(1) == 2 and ht.counts(f)[0] == 1 and not ht.install()
        with pytest.raises(SystemError):
            ht.call_into(f, {"x": 1}, [], 0)
    finally:
        assert ht.self_test("") == ""
    assert armed(1) == 2 and ht.counts(f)[0] == 2
