"""What CMake does to the package folder of the build tree, and what the files of a build must agree on."""
import os
import re
import shutil
import subprocess

import pytest

from framejit import _required_build
from pages import ROOT


@pytest.mark.nothing_captured
@pytest.mark.skipif(shutil.which("cmake") is None, reason="not tested: rules of CMake, which is not here")
def test_links_to_files_that_are_gone_are_removed(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    (tmp_path / "there.py").write_text("")
    (folder / "built.so").write_text("")
    for name in ("there.py", "gone.py"):
        os.symlink(tmp_path / name, folder / name)
    script = tmp_path / "script.cmake"
    script.write_text(f'include("{ROOT}/cmake/dangling_links.cmake")\nremove_dangling_links("{folder}")\n')
    subprocess.run(["cmake", "-P", script], check=True)
    assert sorted(os.listdir(folder)) == ["built.so", "there.py"]
    rules = (ROOT / "cmake/package_files.cmake").read_text()
    assert 'remove_dangling_links("${FRAMEJIT_PACKAGE_DIR}")' in rules


@pytest.mark.nothing_captured
def test_all_places_name_the_same_pythons():
    minors = [minor for _, minor in _required_build.SUPPORTED]
    first, last = minors[0], minors[-1]
    names = [f"3.{minor}" for minor in minors]
    listed = ", ".join(names[:-1])
    hook = (ROOT / "frame_hook/hook/pyver.h").read_text()
    assert f"PY_VERSION_HEX < 0x03{first:02X}0000 || PY_VERSION_HEX >= 0x03{last + 1:02X}0000" in hook
    assert f'#error "the hook knows CPython {listed} and {names[-1]}"' in hook
    assert re.findall(r"pyver_3(\d+)\.h", hook) == [str(minor) for minor in minors]
    assert f'requires-python = ">={names[0]},<3.{last + 1}"' in (ROOT / "pyproject.toml").read_text()
    assert f"$(filter-out $(VERSION),{' '.join(names)})" in (ROOT / "Makefile").read_text()
    setup = (ROOT / "tools/setup").read_text()
    assert f"accepted='CPython {listed} or {names[-1]}'" in setup
    assert re.findall(r"^ *(3\.\d[\d. |]*)\)", setup, re.M) == 2 * [" | ".join(names)]
    assert f"CPython {names[0]} to {names[-1]}," in (ROOT / "README.md").read_text()
