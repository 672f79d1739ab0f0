"""What the built libraries expose to others in the process."""
import subprocess
from pathlib import Path

import framejit


def test_nothing_of_llvm_is_seen_from_outside():
    """A process may contain other versions of LLVM."""
    libraries = sorted(Path(framejit.__file__).parent.glob("*.so"))
    assert any("inductor" in path.name for path in libraries)
    for path in libraries:
        symbols = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True,
                                 check=True).stdout.splitlines()
        assert [line for line in symbols if "llvm" in line.lower()] == [], path.name
