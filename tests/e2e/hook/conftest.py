"""Finds _framejit_hooktest: in HOOKTEST_DIR, otherwise on the path, otherwise in the checkout's build folders."""
import glob
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def pytest_configure(config):
    folders = [os.environ.get("HOOKTEST_DIR")]
    suffix = "_framejit_hooktest*cpython-%d%d*" % sys.version_info[:2]
    folders += [os.path.dirname(p)
                for p in sorted(glob.glob(os.path.join(ROOT, "build", "**", suffix), recursive=True))]
    sys.path[:0] = [f for f in folders if f] + [HERE]


@pytest.fixture
def hook():
    """The extension with the standing test hook installed; removes all of it afterwards."""
    import _framejit_hooktest as h

    h.stats()
    assert h.install()
    yield h
    sys.settrace(None)
    sys.setprofile(None)
    h.stress(0)
    h.remove()
    h.reset()
    assert not h.on_top()


@pytest.fixture
def ht():
    import _framejit_hooktest as h

    yield h
    h.remove()
    h.reset()
