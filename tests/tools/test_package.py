"""The symbols that the built libraries expose to others in the process."""
import subprocess
from pathlib import Path

import framejit


def test_nothing_of_llvm_is_seen_from_outside():
    """A process may contain other versions of LLVM."""
    libraries = sorted(Path(framejit.__file__).parent.glob("*.so"))
    assert any("inductor" in path.name for path in libraries)
    for path in libraries:
        symbols = subprocess.run(["nm", "-D", "-C", "--defined-only", path], capture_output=True, text=True,
                                 check=True).stdout.splitlines()
        # c10::llvm is torch's, from a header of torch.
        assert [line for line in symbols if "llvm" in line.lower().replace("c10::llvm::", "")] == [], path.name
