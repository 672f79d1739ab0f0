"""What a run leaves out is said in one line each, even in quiet runs (tools/not_tested does it for programs). If CI is
set, nothing may be left out, but for what no package provides: a GPU, a CPU, a kernel of the system. A skip of those
begins with "not tested: ".
"""
import collections
import os

import pytest

BEGINS = "not tested: "


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
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and exitstatus == 0 and reporter \
            and any(not reason.startswith(BEGINS) for reason in skips(reporter)):
        session.exitstatus = 1
