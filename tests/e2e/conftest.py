"""Every end-to-end test must compile something: a test that passes with plain Python alone proves nothing.

A test of something that is not compiled says so: @pytest.mark.nothing_captured. Tests that compile in child
processes, or that check no compiled code, live in the files of WITHOUT.

Every test states its graphs, graph breaks and fallbacks (stated.py); on a GPU, whose ops differ, its fallbacks.
"""
import os
import random
import signal
import sys

import pytest

import stated

WITHOUT = ("test_api", "test_bench", "test_code_names", "test_deep_recursion", "test_demo", "test_levels",
           "test_log_files", "test_logs", "test_op_sweep", "test_op_table", "test_output_code", "test_process",
           "test_readme", "test_warned_by_default", "test_untouched_programs", "hook/", "recorder/")


def pytest_configure(config):
    config.stash[SEEN] = {}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for programs in the background
    config.addinivalue_line("markers", "nothing_captured: the test is about code that is not compiled")
    config.addinivalue_line("markers", "breaks(reason=count): graph breaks that the test does not read from stats()")
    config.addinivalue_line("markers", "fallbacks(reason=count): fallbacks that the test does not read from stats()")


SKIPPED, PASSED = pytest.StashKey[bool](), pytest.StashKey[bool]()
KINDS = ("breaks", "fallbacks") if os.environ.get("TEST_DEVICE", "cpu") == "cpu" else ("fallbacks",)


UPDATES = os.environ.get("UPDATE_GOLDEN") == "1"
SEEN = pytest.StashKey[dict]()  # of each case: its graphs, and whether the table says otherwise


def counts_graphs(item):
    return ("breaks" in KINDS and not item.get_closest_marker("nothing_captured")
            and not any(part in item.nodeid for part in WITHOUT))


def pytest_sessionfinish(session):
    if UPDATES:
        seen = session.config.stash[SEEN]
        wrong = {stated.test_of(case) for case, (_, is_wrong) in seen.items() if is_wrong}
        stated.write_graphs({case: count for case, (count, _) in seen.items() if stated.test_of(case) in wrong})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        item.stash[SKIPPED] = True  # by the test itself
    if call.when == "call" and report.passed:
        item.stash[PASSED] = True
    return report


@pytest.fixture(autouse=True)
def same_numbers_in_every_run():
    random.seed(0)
    if "torch" in sys.modules:  # the hook's tests run without it
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def what_was_captured(request, monkeypatch):
    """Asserts that graphs, breaks and fallbacks are those that the test states."""
    item = request.node
    if "hook/" in item.nodeid:  # runs without torch
        yield
        return
    import framejit
    watch = stated.Watch(framejit, monkeypatch)
    yield
    watch.close()
    assert (watch.graphs() > 0 or item.stash.get(SKIPPED, False) or item.get_closest_marker("nothing_captured")
            or any(part in item.nodeid for part in WITHOUT)), (
                "the test passed without a graph: it shows nothing about compiled code")
    if item.stash.get(PASSED, False):
        wrong = [text for kind in KINDS if (text := stated.difference(item, kind, watch.unstated(kind)))]
        if counts_graphs(item):
            case = item.nodeid.removeprefix("tests/e2e/")
            text = stated.wrong_graphs(case, watch, stated.graph_counts())
            item.config.stash[SEEN][case] = watch.unstated_graphs(), text is not None
            wrong += [text] if text and not UPDATES else []
        assert not wrong, "; ".join(wrong)


@pytest.fixture
def one_thread():
    import torch
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
