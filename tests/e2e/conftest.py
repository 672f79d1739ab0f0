"""Every end-to-end test must compile something: a test that passes with plain Python alone proves nothing.

A test of something that is not compiled says so: @pytest.mark.nothing_captured. Tests that compile in child
processes, or that check no compiled code, live in the files of WITHOUT.
"""
import random
import signal
import sys

import pytest

WITHOUT = ("test_api", "test_bench", "test_code_names", "test_deep_recursion", "test_demo", "test_levels",
           "test_logs", "test_op_sweep", "test_op_table", "test_output_code", "test_process", "test_readme",
           "test_warned_by_default", "test_untouched_programs", "hook/", "recorder/")


def pytest_configure(config):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for programs in the background
    config.addinivalue_line("markers", "nothing_captured: the test is about code that is not compiled")


SKIPPED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        item.stash[SKIPPED] = True  # by the test itself
    return report


@pytest.fixture(autouse=True)
def same_numbers_in_every_run():
    random.seed(0)
    if "torch" in sys.modules:  # the hook's tests run without it
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def something_was_captured(request, monkeypatch):
    if any(part in request.node.nodeid for part in WITHOUT):
        yield
        return
    import framejit  # not at the top: the hook's tests run without torch
    captured = 0
    reset = framejit.reset

    def counting_reset():
        nonlocal captured
        captured += framejit.stats()["graphs"]
        reset()

    reset()
    monkeypatch.setattr(framejit, "reset", counting_reset)
    yield
    captured += framejit.stats()["graphs"]
    assert captured > 0 or request.node.stash.get(SKIPPED, False) or request.node.get_closest_marker(
        "nothing_captured"), "the test passed without a graph: it shows nothing about compiled code"
