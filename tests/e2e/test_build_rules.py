"""What CMake does to the package folder of the build tree."""
import os
import shutil
import subprocess

import pytest

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
