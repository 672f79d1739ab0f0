"""One line reports each thing that a run leaves out, even in quiet runs (tools/not_tested does so for programs). If CI
is set, nothing may be left out, except what no package provides: a GPU, a kind of CPU, a version of the system's
kernel. The text of such a skip begins with "not tested: ".

--quick, which `make test` gives, leaves out slow tests, and all but two cases of the others.
"""
import collections
import gc
import os

import pytest

BEGINS = "not tested: "
QUICK_CASES = 2


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help=f"no slow test, and {QUICK_CASES} cases of each other one")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than five seconds; --quick leaves it out")
    config.addinivalue_line("markers", "cpu_only(reason): left out where TEST_DEVICE is a GPU")


def of_a_quick_run(items):
    """Of each test, some cases, spread over all that it has."""
    cases = collections.defaultdict(list)
    for item in items:
        if not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    return {same[round(i * (len(same) - 1) / (QUICK_CASES - 1))] for same in cases.values() for i in range(QUICK_CASES)}


def leave_out_on_a_gpu(items):
    for item in items:
        if marker := item.get_closest_marker("cpu_only"):
            item.add_marker(pytest.mark.skip(reason=f"{BEGINS}on a GPU: {marker.args[0]}"))


def pytest_collection_modifyitems(config, items):
    if os.environ.get("TEST_DEVICE", "cpu") != "cpu":
        leave_out_on_a_gpu(items)
    if config.getoption("--quick"):
        kept = of_a_quick_run(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_collection_finish(session):
    """What has been imported stays alive, so garbage collections in tests need not visit it."""
    gc.collect()
    gc.freeze()


def skips(terminalreporter):
    """reason -> how many tests it leaves out."""
    reports = terminalreporter.stats.get("skipped", ())
    return collections.Counter(r.longrepr[2].removeprefix("Skipped: ") for r in reports
                               if isinstance(r.longrepr, tuple))


def pytest_terminal_summary(terminalreporter):
    for reason, count in sorted(skips(terminalreporter).items()):
        times = f" ({count} tests)" if count > 1 else ""
        terminalreporter.write_line(f"framejit: {BEGINS}{reason.removeprefix(BEGINS)}{times}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    if session.config.getoption("--quick") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK  # all tests of the file are slow
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and exitstatus == 0 and reporter \
            and any(not reason.startswith(BEGINS) for reason in skips(reporter)):
        session.exitstatus = 1
