"""The kernel cache: a second process compiles nothing, damaged kernels are compiled again, and nothing is written
unless asked for."""
import os

import pytest
import torch

import framejit
import programs

PROGRAM = """
import torch, framejit
@framejit.compile
def f(x, y):
    a = torch.softmax(x.sin() * 2 + y, -1)
    return torch.linalg.inv(a @ a.T + torch.eye(6)).exp() - 1, (x.exp() - y).amax(1)
with torch.no_grad():
    x, y = torch.arange(96.).reshape(6, 16) / 7, torch.ones(6, 16)
    a = torch.softmax(x.sin() * 2 + y, -1)
    for got, want in zip(f(x, y), (torch.linalg.inv(a @ a.T + torch.eye(6)).exp() - 1, (x.exp() - y).amax(1))):
        torch.testing.assert_close(got, want)
s = framejit.stats()
print(s["kernels"], s["cache_hits"], s["cache_misses"], s["cache_stored"])
"""


def run(folder=None, before="", **more):
    environment = {**os.environ, "FRAMEJIT_STRICT": "1", **more}
    environment.pop("FRAMEJIT_CACHE_DIR", None)
    if folder is not None:
        environment["FRAMEJIT_CACHE_DIR"] = str(folder)
    done = programs.run(before + PROGRAM, env=environment)
    assert done.returncode == 0, done.stderr
    return [int(n) for n in done.stdout.split()], done.stderr


@pytest.mark.slow
@pytest.mark.nothing_captured
def test_a_second_process_finds_every_kernel(tmp_path):
    folder = tmp_path / "cache"
    (kernels, *cold), _ = run(folder)
    assert kernels > 1 and cold == [0, kernels, kernels]
    assert run(folder)[0] == [kernels, kernels, 0, 0]
    assert (folder.stat().st_mode & 0o777) == 0o700
    assert run(folder, FRAMEJIT_CPU_FEATURES="generic")[0] == [kernels, 0, kernels,
                                                               kernels], "kernels of another target"


@pytest.mark.slow
@pytest.mark.nothing_captured
def test_what_is_damaged_is_compiled_again(tmp_path):
    folder = tmp_path / "cache"
    (kernels, *_), _ = run(folder)
    file = folder / "kernels.new"
    whole = file.read_bytes()
    for damaged in (whole[:200], whole[:-40] + bytes(40), b"\0" * len(whole), b"something else"):
        (folder / "kernels.old").unlink(missing_ok=True)
        file.write_bytes(damaged)
        (count, hits, misses, stored), _ = run(folder)
        assert count == kernels and misses == stored > 0 and hits == kernels - misses


@pytest.mark.nothing_captured
def test_a_folder_of_others_is_refused_and_the_program_runs(tmp_path):
    tmp_path.chmod(0o777)
    counts, said = run(tmp_path)
    assert counts[1:] == [0, 0, 0]
    assert said.count("others can write it") == 1 and "chmod 700" in said
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="others can write it"):
        framejit.cache(tmp_path)
    with pytest.raises(ValueError, match="max_mb must be at least 1"):
        framejit.cache(tmp_path, max_mb=0)
    for wrong in (3, b"kernels"):
        with pytest.raises(TypeError, match=r"framejit.cache\(\) takes a folder"):
            framejit.cache(wrong)


@pytest.mark.slow
@pytest.mark.nothing_captured
def test_a_full_disk_is_one_line_and_the_program_runs(tmp_path):
    folder = tmp_path / "kernels"
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"  # no file can grow
    (kernels, hits, misses, stored), said = run(folder, before=full)
    assert (hits, misses, stored) == (0, kernels, 0) and kernels > 1
    assert said.count("cannot write") == 1 and f"cannot write {folder}/kernels.new: File too large" in said, said
    assert run(folder)[0] == [kernels, 0, kernels, kernels], "the empty file that is left takes kernels"


@pytest.mark.nothing_captured
def test_no_file_is_written_unasked(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    run(HOME=str(home), XDG_CACHE_HOME=str(home), TMPDIR=str(home))
    assert list(home.iterdir()) == []


def test_in_this_process(tmp_path):
    framejit.reset()
    x = torch.linspace(-3, 3, 1000)
    try:
        framejit.cache(tmp_path / "kernels")
        with torch.no_grad():
            assert torch.allclose(framejit.compile(lambda x: torch.tanh(x) * 3.25 + x)(x), torch.tanh(x) * 3.25 + x)
        assert framejit.stats()["cache_stored"] == 1
        framejit.cache(None)
        assert framejit.stats()["cache_stored"] == 0
    finally:
        framejit.cache(None)


@pytest.mark.nothing_captured
def test_a_folder_that_cannot_be_made(tmp_path):
    folder = tmp_path / "missing" / "kernels"
    _, said = run(folder)
    assert said == (f"[framejit warnings] the kernel cache {folder} is not used: it cannot be made: its folder "
                    f"{tmp_path}/missing does not exist; name a folder that exists, or one in a folder in which you "
                    "may write (FRAMEJIT_CACHE_DIR, or framejit.cache())\n")
    assert not folder.parent.exists()
