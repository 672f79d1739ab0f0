"""What `make demo` says at once, before a build of minutes."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target, setting, content", [
    ("demo", "FILE", "a text with one sentence a line (- is standard input)"),
    ("demo-train", "PAIRS", "a text with two sentences a line and a tab between them")])
@pytest.mark.parametrize("path", ["/nowhere/at/all", str(ROOT)])
def test_a_file_that_is_not_there_is_refused_before_the_build(target, setting, content, path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "-C", str(ROOT), target, f"{setting}={path}"], capture_output=True, text=True,
                          env=environment)
    first, *more = done.stderr.splitlines()
    assert first == f"framejit: {setting}={path} is no file that can be read; {setting} names {content}"
    assert done.returncode == 2 and all(line.startswith("make") for line in more), done.stderr
    assert not [line for line in done.stdout.splitlines() if not line.startswith("make")], done.stdout
