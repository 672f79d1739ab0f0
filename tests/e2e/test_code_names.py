"""FRAMEJIT_PERF and FRAMEJIT_GDB: the code of kernels has names for perf and gdb; without them nothing is written."""
import os
import shutil
import struct
import subprocess
import sys

import pytest
import torch

import framejit
import programs
from check import same_as

PROGRAM = """
import ctypes, os, sys, torch, framejit

@framejit.compile
def f(x):
    y = torch.tanh(x) * 2
    return torch.softmax(y @ y.mT, -1)

with torch.no_grad():
    f(torch.randn(64, 96))
"""


def run(tmp_path, program=PROGRAM, **environment):
    """What the program printed, in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    (tmp_path / "program.py").write_text(program)
    out = programs.run(file=tmp_path / "program.py", cwd=folder, env=dict(os.environ, **environment))
    assert out.returncode == 0, out.stderr
    return out, sorted(folder.iterdir())


def records(path):
    """(address, name, code) of each function in a jitdump file; every field is checked."""
    data = path.read_bytes()
    magic, version, size, machine, _, pid, start, flags = struct.unpack_from("<6I2Q", data)
    assert (magic, version, size, flags) == (0x4A695444, 1, 40, 0)
    assert machine in (62, 183) and path.name == f"jit-{pid}.dump"
    found, at = [], size
    while at < len(data):
        kind, total, time, its_pid, _, address, code_address, code_size, index = struct.unpack_from("<2IQ2I4Q", data,
            at)
        assert (kind, its_pid, address, index) == (0, pid, code_address, len(found)) and time >= start
        name, code = data[at + 56:at + total - code_size].rstrip(b"\0"), data[at + total - code_size:at + total]
        assert data[at + 56 + len(name)] == 0 and 56 + len(name) + 1 + code_size == total
        found.append((address, name.decode(), code))
        start, at = time, at + total
    assert at == len(data)
    return found


def test_jitdump_has_each_kernel_with_its_name_and_code(tmp_path):
    program = PROGRAM + """
sys.path.insert(0, os.environ["TESTS"])
import pathlib, test_code_names
for address, name, code in test_code_names.records(pathlib.Path(f"jit-{os.getpid()}.dump")):
    print(name, len(code), ctypes.string_at(address, len(code)) == code)
print(framejit.stats()["kernels"])
"""
    out, files = run(tmp_path, program, FRAMEJIT_PERF="1", TESTS=os.path.dirname(__file__))
    *lines, kernels = out.stdout.splitlines()
    assert len(lines) == int(kernels) == 2 and len(files) == 1
    # Two threads compile: either may be first.
    assert {line.split()[0].split("_", 3)[3] for line in lines} == {"tanh_mul", "amax_sub_exp_sum_div"}
    assert all(int(line.split()[1]) > 16 and line.split()[2] == "True" for line in lines)


def test_jitdump_goes_to_the_dump_folder(tmp_path):
    _, files = run(tmp_path, FRAMEJIT_PERF="1", FRAMEJIT_DUMP_DIR=str(tmp_path / "dump"))
    assert files == []
    (path,) = (tmp_path / "dump").glob("jit-*.dump")
    assert len(records(path)) == 2


def test_a_child_of_fork_writes_a_file_of_its_own(tmp_path):
    program = PROGRAM + """
@framejit.compile
def g(x):
    return torch.sin(x) + 1

child = os.fork()
if child == 0:
    with torch.no_grad():
        g(torch.randn(4))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    _, files = run(tmp_path, program, FRAMEJIT_PERF="1", OMP_NUM_THREADS="1")
    assert sorted(len(records(path)) for path in files) == [1, 2]


def test_nothing_is_written_without_being_asked_for(tmp_path):
    out, files = run(tmp_path)
    assert files == [] and out.stderr == ""


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    in_the_way = 'import os; os.mkdir(f"jit-{os.getpid()}.dump")\n'
    out, _ = run(tmp_path, in_the_way + PROGRAM + 'print(framejit.stats()["kernels"])', FRAMEJIT_PERF="1")
    (line,) = out.stderr.splitlines()
    assert "warnings] cannot write ./jit-" in line and "Is a directory" in line
    assert out.stdout == "2\n"


@pytest.mark.parametrize("backend", ["framejit", "interp"])
def test_kernels_are_counted_by_content(backend):
    """The interpreter calls one function for all kernels, as GPUs do, so the function does not identify a kernel."""
    def counted(first, second):
        def f(x, y, w):
            return first(x) @ w, second(y) @ w
        x, y, w = torch.randn(3, 8, 8)
        framejit.reset()
        with torch.no_grad():
            same_as(f, framejit.compile(f, backend=backend, fullgraph=True)(x, y, w), x, y, w)
        return framejit.stats()["kernels"]
    assert counted(torch.sin, torch.sin) == 1, "two steps with equal kernels"
    assert counted(torch.sin, torch.cos) == 2
    compiled = [framejit.compile(fn, backend=backend, fullgraph=True) for fn in (lambda x: x.sin(), lambda x: x.sin())]
    framejit.reset()
    with torch.no_grad():
        for count, fn in enumerate(compiled, 1):
            fn(torch.ones(5))
            assert framejit.stats()["kernels"] == count, "each graph counts its own"


ONE_KERNEL = """
import torch, framejit

@framejit.compile
def f(x):
    return torch.tanh(x) * 2

with torch.no_grad():
    f(torch.randn(64, 96))
"""


@pytest.mark.slow
def test_perf_names_kernels(tmp_path):
    if shutil.which("perf") is None:
        pytest.skip("not tested: perf is not installed")
    (tmp_path / "program.py").write_text(ONE_KERNEL.replace("64, 96", "1 << 18")
                                         + "    for _ in range(300):\n        f(torch.ones(1 << 18))\n")
    def perf(*words, **environment):
        return subprocess.run(["perf", *words], capture_output=True, text=True, cwd=tmp_path,
                              env=dict(os.environ, **environment))
    recorded = perf("record", "-e", "cpu-clock", "-k", "1", "-o", "perf.data", sys.executable, "program.py",
                    FRAMEJIT_PERF="1")
    if recorded.returncode != 0:
        pytest.skip(f"not tested: perf cannot record here: {recorded.stderr.splitlines()[:1]}")
    assert perf("inject", "--jit", "-i", "perf.data", "-o", "named.data").returncode == 0
    assert "fj_kernel_0_tanh_mul" in perf("report", "-i", "named.data", "--stdio").stdout


def gdb(tmp_path, *commands, program=ONE_KERNEL, **environment):
    if shutil.which("gdb") is None:
        pytest.skip("not tested: gdb is not installed")
    (tmp_path / "program.py").write_text(program)
    # gdb reads the symbols of our libraries alone: those of torch take seconds.
    words = ["gdb", "-nx", "-batch"]
    for command in ("set debuginfod enabled off", "set breakpoint pending on", "set confirm off",
                    "set auto-solib-add off", "catch load libframejit_inductor", "run", "sharedlibrary libframejit",
                    "delete", "echo begins\\n", *commands):
        words += ["-ex", command]
    out = subprocess.run([*words, "--args", sys.executable, str(tmp_path / "program.py")], capture_output=True,
                         text=True, stdin=subprocess.DEVNULL, env=dict(os.environ, **environment))
    if "ptrace" in out.stderr and "not permitted" in out.stderr:
        pytest.skip("not tested: this process may not debug others")
    return out.stdout.split("begins\n")[1]


@pytest.mark.slow
def test_gdb_names_a_frame_and_its_callers(tmp_path):
    shown = gdb(tmp_path, "break fj_kernel_0_tanh_mul", "continue", "backtrace 3", "info symbol $pc", "delete",
                "continue", FRAMEJIT_GDB="1")
    frames = [line for line in shown.splitlines() if line.startswith("#")]
    assert "in fj_kernel_0_tanh_mul ()" in frames[0]
    assert "framejit::runtime" in frames[1] + frames[2]  # found through the frame pointer
    assert "fj_kernel_0_tanh_mul" in shown.split(frames[-1])[1]
    assert "exited normally" in shown


@pytest.mark.slow
def test_gdb_knows_no_kernel_without_being_told(tmp_path):
    shown = gdb(tmp_path, "break fj_kernel_0_tanh_mul", "continue")
    assert "exited normally" in shown and "#0" not in shown and "hit" not in shown


@pytest.mark.slow
def test_gdb_forgets_code_that_is_gone(tmp_path):
    program = ONE_KERNEL + """
framejit.reset()
g = framejit.compile(lambda x: torch.sin(x) * 3)
with torch.no_grad():
    g(torch.ones(8))
"""
    shown = gdb(tmp_path, "break fj_kernel_1_sin_mul", "continue", "info functions fj_kernel_", program=program,
                FRAMEJIT_GDB="1")
    known = shown.split("All functions")[1]
    assert "fj_kernel_1_sin_mul" in known and "fj_kernel_0_tanh_mul" not in known
