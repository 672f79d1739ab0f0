"""Runs CPython's own tests in this process and prints one JSON object: tests run, and those that failed, each with the
last line of its error.

    run_cpython_tests.py MODE test_dict test_with -DictTest.test_repr ...     MODE: plain | idle | stress:<seed> |
    trace; -TEST is left out

idle installs a hook that passes everything on: so changes that any hook causes can be told from defects of ours. The
hook is installed only while the tests of a module run.
"""
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import unittest

DEFAULT = ("test_generators test_contextlib test_dict test_list test_scope test_exceptions test_sys test_traceback "
           "test_inspect "
           "test_with test_super test_property").split()


def load(name):
    """A test module, or the package of that name: test_inspect became a package in 3.13, and test_dataclasses has its
    tests in __init__.py."""
    module = importlib.import_module("test." + name)
    if hasattr(module, "__path__") and not hasattr(module,
                                                   "load_tests") and importlib.util.find_spec("test.%s.%s" % (name,
                                                       name)):
        module = importlib.import_module("test.%s.%s" % (name, name))
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def tests_of(suite, left_out):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test, left_out)
        elif name_of(test) not in left_out:
            yield test


def name_of(test):
    """DictTest.test_repr, without the module, also for a part of it (subTest); a failure in setUpClass has its own
    name."""
    return ".".join(getattr(test, "test_case", test).id().split(".")[-2:])


def run(mode, names, left_out=()):
    import _framejit_hooktest as hook
    from test import support

    support.use_resources = []
    os.chdir(tempfile.mkdtemp())
    report = {"run": 0, "failed": [], "frames": 0, "hand_overs": 0}
    for name in names:
        suite, result = unittest.TestSuite(tests_of(load(name), left_out)), unittest.TestResult()
        hook.stats()
        if mode.startswith("stress"):
            assert hook.stress(int(mode.split(":")[1]))
        elif mode == "idle":
            assert hook.install()
        elif mode == "trace":
            hook.trace_stats()
            assert hook.trace_all(True)
        try:
            suite.run(result)
        finally:
            hook.remove()
        if mode == "trace":
            report["trace"] = hook.trace_stats()
        stats = hook.stats()
        report["run"] += result.testsRun
        report["frames"] += stats["frames"]
        report["hand_overs"] += stats["hand_overs"]
        for test, text in result.failures + result.errors:
            report["failed"].append((name_of(test), text.strip().splitlines()[-1][:150]))
    return report


if __name__ == "__main__":
    sys.path.insert(0, os.environ["HOOKTEST_DIR"])
    chosen, tests = sys.argv[1], sys.argv[2:] or DEFAULT
    sys.argv = sys.argv[:1]
    print(json.dumps(run(chosen, [t for t in tests if t[0] != "-"], {t[1:] for t in tests if t[0] == "-"})))
