"""The vector levels of CPU kernels (FRAMEJIT_CPU_FEATURES), and which of them this CPU supports."""
import re

import pytest

# a level and its flag in /proc/cpuinfo, narrow ones first
FLAGS = {"generic": "", "avx2": "avx2", "avx512": "avx512vl"}


def has(level):
    with open("/proc/cpuinfo") as f:
        flags = re.search(r"(?m)^flags\s*:(.*)$", f.read())
    return not FLAGS[level] or (flags is not None and FLAGS[level] in flags.group(1).split())


def own():
    """The level that kernels use if nothing is set."""
    return [level for level in FLAGS if has(level)][-1]


def need(level):
    """Skips the test if the CPU lacks the level; tests/conftest.py says so in one line. Under CI this is not a failure,
    because no package provides a CPU."""
    if not has(level):
        pytest.skip(f"not tested: {level} kernels on a CPU that has no {FLAGS[level]}")
