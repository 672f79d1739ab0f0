"""CPython's own tests, with every frame run natively for a random number of instructions: the same tests fail as
without it (usually none)."""
import importlib.util
import json
import os
import subprocess
import sys

import pytest

import run_cpython_tests

SEED = os.environ.get("FUZZ_SEED", "20261121")


def run(mode, name):
    spec = importlib.util.find_spec("_framejit_hooktest")
    environment = dict(os.environ, HOOKTEST_DIR=os.path.dirname(spec.origin))
    environment.pop("FRAMEJIT_STRESS", None)
    done = subprocess.run([sys.executable, run_cpython_tests.__file__, mode, name], capture_output=True, text=True,
                          env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.skipif(importlib.util.find_spec("test.test_dict") is None and not os.environ.get("CI"),
                    reason="not tested: this Python comes without its test suite")
@pytest.mark.parametrize("name", run_cpython_tests.DEFAULT)
def test_cpython_tests_under_stress(name):
    stressed = run("stress:" + SEED, name)
    assert stressed["run"] > 0 and stressed["frames"] > 100 and stressed["hand_overs"] > 10
    if stressed["failed"]:
        assert stressed["failed"] == run("plain", name)["failed"], "seed " + SEED


def test_environment_starts_stress():
    spec = importlib.util.find_spec("_framejit_hooktest")
    code = ("import _framejit_hooktest as h; h.stats(); sum(map(lambda x: x + 1, range(100))); print(h.on_top(), "
            "h.stats()['frames'])")
    environment = dict(os.environ, FRAMEJIT_STRESS="5", PYTHONPATH=os.path.dirname(spec.origin))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    on_top, frames = done.stdout.split()
    assert on_top == "True" and int(frames) >= 100
