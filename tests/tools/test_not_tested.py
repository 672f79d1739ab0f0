"""Each thing that the tests leave out on a machine (an interpreter, its headers, its library) is reported in one line
there, and is a failure if CI is set."""
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "%d.%d" % sys.version_info[:2]


def program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + body)
    path.chmod(0o755)


def run(command, folder, ci):
    """Exit status, and the lines about tests; programs of folder/bin come first."""
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "MAKEFLAGS", "MAKELEVEL", "PYENV_ROOT")}
    environment.update(PATH=f"{folder}/bin:/usr/bin:/bin", HOME=str(folder), **({"CI": "1"} if ci else {}))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=60)
    return done.returncode, [line for line in done.stderr.splitlines() if "not tested" in line]


@pytest.fixture
def without_torch(tmp_path):
    """Calls tools/test_without_torch for an interpreter that gives these answers. Its build folder exists, with these
    targets."""
    def call(ci, found="3.99", include=sysconfig.get_path("include"), targets=""):
        program(tmp_path / "bin" / "python3.99",
                f'case $2 in *executable*) echo "$0" ;; *version_info*) echo {found} ;; *include*) echo {include} ;; '
                'esac\n')
        for tool in ("ninja", "ctest", "cmake"):
            program(tmp_path / "bin" / tool, "exit 0\n")
        build = tmp_path / "build" / "3.99-notorch"
        program(build / "venv" / "bin" / "python", f'echo "$@" >> {tmp_path}/pytest\n')
        (build / ".ready").touch()
        (build / "build.ninja").write_text(targets)
        if not found:
            (tmp_path / "bin" / "python3.99").unlink()
        return run([ROOT / "tools" / "test_without_torch", "3.99", "1"], tmp_path, ci)
    return call


@pytest.mark.parametrize("missing, says",
                         [({"found": ""}, "there is no such interpreter"), ({"found": "3.98"}, "is Python 3.98"),
                          ({"include": "/nonexistent"}, "internal headers are missing")])
def test_a_missing_interpreter(without_torch, tmp_path, missing, says):
    for ci in (False, True):
        status, lines = without_torch(ci, **missing)
        assert status == ci and len(lines) == 1 and lines[0].startswith(
            "framejit: not tested: Python 3.99 without torch: ") and says in lines[0]
    assert not (tmp_path / "pytest").exists()


def test_a_missing_library(without_torch, tmp_path):
    """Without libpython the hook's own tests still run."""
    status, lines = without_torch(False)
    assert status == 0 and len(
        lines) == 1 and "not tested: the unit tests of tracer and guards on Python 3.99" in lines[0]
    assert "tests/e2e/hook" in (tmp_path / "pytest").read_text()
    assert without_torch(True)[0] == 1
    assert without_torch(True, targets="build frame_hook_test: phony tests/frame_hook_test\n") == (0, [])


def test_cpp_tests_without_the_library(tmp_path):
    program(tmp_path / "bin" / "ctest", "exit 0\n")
    make = ["make", "-C", str(ROOT), "--no-print-directory", "-o", "build-tests", "test-cpp", f"BUILD={tmp_path}",
            f"PYTHON={sys.executable}"]
    (tmp_path / "build.ninja").write_text("build base_test: phony tests/base_test\n")
    status, lines = run(make, tmp_path, False)
    assert status == 0 and len(
        lines) == 1 and f"not tested: the C++ tests that embed Python: Python {VERSION} has no shared library" in lines[
            0]
    assert run(make, tmp_path, True)[0] != 0
    (tmp_path / "build.ninja").write_text("build frame_hook_test: phony tests/frame_hook_test\n")
    assert run(make, tmp_path, True) == (0, [])


def test_what_cpp_tests_leave_out_is_shown(tmp_path):
    """ctest shows nothing of tests that pass; its log has their lines."""
    program(tmp_path / "bin" / "ctest",
            f'mkdir -p {tmp_path}/Testing/Temporary; printf "1/1 Test\\nframejit: not tested: GPU kernels for AMD\\n" '
            f'> {tmp_path}/Testing/Temporary/LastTest.log\n')
    make = ["make", "-C", str(ROOT), "--no-print-directory", "-o", "build-tests", "test-cpp", f"BUILD={tmp_path}",
            f"PYTHON={sys.executable}"]
    (tmp_path / "build.ninja").write_text("build frame_hook_test: phony tests/frame_hook_test\n")
    assert run(make, tmp_path, False) == (0, ["framejit: not tested: GPU kernels for AMD"])


SKIPS = """
import pytest

@pytest.mark.skip(reason="not tested: there is no GPU")
def test_a(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_b(n):
    if {missing}:
        pytest.importorskip("a_package_that_does_not_exist")
"""


@pytest.mark.parametrize("missing", [False, True])
def test_skips_of_pytest(tmp_path, missing):
    """Under CI, what no package provides may be left out; what a package provides may not. Both are reported."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_skips.py").write_text(SKIPS.format(missing=missing))
    environment = dict(os.environ, CI="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_skips.py"],
                          cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    said = [line for line in done.stdout.splitlines() if line.startswith("framejit: ")]
    assert "framejit: not tested: there is no GPU" in said and len(said) == 1 + missing
    assert not missing or "could not import 'a_package_that_does_not_exist'" in said[0] and "(2 tests)" in said[0]
    assert done.returncode == missing, done.stdout


def test_continuous_integration_leaves_nothing_out():
    assert "\nexport CI=1" in (ROOT / ".ci" / "run").read_text()


def test_a_python_without_its_own_tests(tmp_path):
    """CPython's tests under stress are skipped on such a Python, and fail if CI is set."""
    (tmp_path / "conftest.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\nu.find_spec = lambda name, *a: None if name == "
        "'test.test_dict' else find(name, *a)\n")
    stress = ROOT / "tests" / "e2e" / "hook" / "test_stress.py"
    command = [sys.executable, "-c",
               "import conftest, test_stress, sys; sys.exit(not "
               "test_stress.test_cpython_tests_under_stress.pytestmark[-1].args[0])"]
    for ci in (False, True):
        environment = {k: v for k, v in os.environ.items() if k != "CI"}
        environment.update(PYTHONPATH=f"{tmp_path}:{stress.parent}", **({"CI": "1"} if ci else {}))
        assert subprocess.run(command, env=environment, capture_output=True, timeout=60).returncode == ci
