"""Models, own kernels and special values with the vector registers of other CPUs: every level that this CPU supports
besides its own, which all other tests use. LEVELS=all (make levels) takes every case of these files instead of some."""
import collections
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import levels

HERE = Path(__file__).parent
ALL = os.environ.get("LEVELS") == "all"
# file: which of its tests run each time, and at least how many there are
SOME = {"test_models": ("test_whole_model and framejit and sdpa", 20),
        "test_own_kernels": ("float32 or bfloat16", 100),
        "test_special_values": ("test_special_values and (float32 or int64)", 2),
        "test_ordered_loops": ("test_dtypes and (float32 or bfloat16 or int64)", 40),
        "test_sum_accuracy": ("fixed_lengths or infinities", 15)}


@pytest.mark.slow
@pytest.mark.parametrize("level", [level for level in levels.FLAGS if level != levels.own()])
def test_level(level, tmp_path):
    """One process for all files, which would each import torch and transformers. A kernel that a test compiles twice
    comes from the cache."""
    levels.need(level)
    chosen = " or ".join(f"({file}.py and ({tests}))" for file, (tests, _) in SOME.items())
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rp", "-p", "no:cacheprovider",
                           *(str(HERE / f"{file}.py") for file in SOME), *([] if ALL else ["-k", chosen])],
                          capture_output=True, text=True,
                          env={**os.environ, "FRAMEJIT_CPU_FEATURES": level, "FRAMEJIT_CACHE_DIR": str(tmp_path)})
    passed = collections.Counter(re.findall(r"(?m)^PASSED \S*?(\w+)\.py::", done.stdout))
    assert done.returncode == 0 and all(passed[file] >= least for file, (_, least) in SOME.items()), (
        passed, done.stdout[-6000:])
