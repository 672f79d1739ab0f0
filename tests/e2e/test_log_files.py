"""The files that a log writes: FRAMEJIT_LOGS_OUT and the folder of dumps."""
import os
import re

import pytest

from test_logs import GRAPHS, PROGRAM, run


def test_dump_folder_gets_numbered_files(tmp_path):
    folder = tmp_path / "new" / "dump"
    done = run(FRAMEJIT_LOGS="graph,aten_graph", FRAMEJIT_DUMP_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    named = [line.rsplit(": ", 1)[1] for line in done.stderr.splitlines()]
    files = sorted(str(p) for p in folder.rglob("*.txt"))
    assert sorted(named) == files and not any(line.startswith("| ") for line in done.stderr.splitlines())
    assert sum(f.endswith("_Graph.txt") for f in files) == GRAPHS
    for f in files:
        assert ("   aten: " if f.endswith("_Graph.txt") else "graph @f(") in open(f).read(), f


@pytest.mark.slow
def test_dumps_go_through_no_link_and_over_ones_own_files_alone(tmp_path):
    folder, other = tmp_path / "1.1", tmp_path / "other.txt"
    folder.mkdir()
    other.write_text("somebody's")
    (folder / "0000_Graph.txt").symlink_to(other)
    done = run(FRAMEJIT_LOGS="graph", FRAMEJIT_DUMP_DIR=str(tmp_path))
    assert done.returncode == 0 and other.read_text() == "somebody's"
    assert str(folder / "0000_Graph.txt") in done.stderr and "it is a link" in done.stderr, done.stderr
    (folder / "0000_Graph.txt").unlink()
    os.link(other, folder / "0000_Graph.txt")
    done = run(FRAMEJIT_LOGS="graph", FRAMEJIT_DUMP_DIR=str(tmp_path))
    assert done.returncode == 0 and other.read_text() == "somebody's"
    (folder / "0000_Graph.txt").unlink()
    (folder / "0000_Graph.txt").write_text("of an earlier run, and longer than a graph" * 1000)
    done = run(FRAMEJIT_LOGS="graph", FRAMEJIT_DUMP_DIR=str(tmp_path))
    assert done.returncode == 0 and "earlier run" not in (folder / "0000_Graph.txt").read_text()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").iterdir())
    done = run(FRAMEJIT_LOGS="graph", FRAMEJIT_DUMP_DIR=str(tmp_path))
    assert done.returncode == 0 and "it is a link" in done.stderr, done.stderr
    assert sorted((tmp_path / "elsewhere").iterdir()) == before


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can grow, as on a full disk
"""


@pytest.mark.parametrize("style, line", [
    ("text", r"\[framejit [^]]*warnings\] cannot write /dev/full: No space left on device; "
     r"the program goes on without this file; what to do: .* name another place \(FRAMEJIT_LOGS_OUT\)"),
    ("json", r'.*"event":"NotWritten".*"path":"/dev/full","reason":"No space left on device".*'),
])
def test_a_log_that_cannot_be_written_is_one_line(style, line):
    done = run(FRAMEJIT_LOGS="graph", FRAMEJIT_LOGS_OUT="/dev/full", FRAMEJIT_LOGS_FORMAT=style)
    assert done.returncode == 0 and re.fullmatch(line + "\n", done.stderr), done.stderr
    silent = run(FRAMEJIT_LOGS="graph,-warnings", FRAMEJIT_LOGS_OUT="/dev/full")
    assert silent.returncode == 0 and silent.stderr == ""


def test_a_log_goes_through_links_but_never_waits_for_the_reader_of_a_pipe(tmp_path):
    log, link, pipe = tmp_path / "log.txt", tmp_path / "link.txt", tmp_path / "pipe"
    log.write_text("before\n")
    link.symlink_to(log)
    os.mkfifo(pipe)
    assert run(FRAMEJIT_LOGS="graph", FRAMEJIT_LOGS_OUT=str(link)).returncode == 0
    assert log.read_text().startswith("before\n[framejit 1.1 graph]")
    done = run("import framejit", FRAMEJIT_LOGS="graph", FRAMEJIT_LOGS_OUT=str(pipe))
    assert done.returncode and f"cannot write '{pipe}': it is a pipe or a socket" in done.stderr, done.stderr
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(FRAMEJIT_LOGS="graph_breaks", FRAMEJIT_LOGS_OUT=str(pipe)).returncode == 0
        assert os.read(reader, 1 << 16).startswith(b"[framejit 1.1 graph_breaks]")
    finally:
        os.close(reader)


def test_dumps_that_cannot_be_written_are_one_line(tmp_path):
    done = run(FULL + PROGRAM, FRAMEJIT_LOGS="graph", FRAMEJIT_DUMP_DIR=str(tmp_path))
    said = re.findall(r"warnings\] cannot write (.*): File too large; .*\(FRAMEJIT_DUMP_DIR\)$", done.stderr, re.M)
    assert done.returncode == 0 and len(said) == 1 and said[0].startswith(str(tmp_path)), done.stderr
    assert done.stderr.count("| return ") == done.stderr.count(" graph] ") > 2  # artefacts without a file follow their
                                                                                # line
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
