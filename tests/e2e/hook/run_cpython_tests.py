"""Runs CPython's own tests in this process and prints one JSON object: tests run, and the ids of those that failed.

    run_cpython_tests.py MODE test_dict test_with ...     MODE: plain | idle | stress:<seed>

idle installs a hook that passes everything on, so that what any hook changes can be told from what ours breaks. Each module runs
with the hook installed only while its tests do.
"""
import importlib
import json
import os
import sys
import tempfile
import unittest

DEFAULT = ("test_generators test_contextlib test_dict test_list test_scope test_exceptions test_sys test_traceback test_inspect "
           "test_with test_super test_property").split()


def load(name):
    """A test module, or the package of that name; test_inspect became a package in 3.13."""
    module = importlib.import_module("test." + name)
    if hasattr(module, "__path__") and not hasattr(module, "load_tests"):
        module = importlib.import_module("test.%s.%s" % (name, name))
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def run(mode, names):
    import _framejit_hooktest as hook
    from test import support

    support.use_resources = []
    os.chdir(tempfile.mkdtemp())
    report = {"run": 0, "failed": [], "frames": 0, "hand_overs": 0}
    for name in names:
        suite, result = load(name), unittest.TestResult()
        hook.stats()
        if mode.startswith("stress"):
            assert hook.stress(int(mode.split(":")[1]))
        elif mode == "idle":
            assert hook.install()
        try:
            suite.run(result)
        finally:
            hook.remove()
        stats = hook.stats()
        report["run"] += result.testsRun
        report["frames"] += stats["frames"]
        report["hand_overs"] += stats["hand_overs"]
        for test, text in result.failures + result.errors:
            report["failed"].append("%s: %s" % (str(test).split()[0], text.strip().splitlines()[-1][:150]))
    return report


if __name__ == "__main__":
    sys.path.insert(0, os.environ["HOOKTEST_DIR"])
    chosen, tests = sys.argv[1], sys.argv[2:] or DEFAULT
    sys.argv = sys.argv[:1]
    print(json.dumps(run(chosen, tests)))
