"""make bench: rows are kept and not run twice, result files are what their rows give, and README has no figure that
they do not give."""
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu  # noqa: E402
import rows  # noqa: E402
import run  # noqa: E402
import tables  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
SLOW, FAST = "a  f32  eager ms 3  framejit ms 4  over eager 0.75", "b  f32  eager ms 6  framejit ms 2  over eager 3"


def test_readme_has_the_figures_of_the_files():
    assert tables.with_results(README, tables.read_all(tables.RESULTS)) == README, "benchmarks/run.py --readme"


def test_another_figure_in_a_file_is_seen_in_readme():
    classes = tables.read_all(tables.RESULTS)
    name, of_class = next((name, of_class) for name, of_class in classes.items()
                          if any(row.benchmark == "models" for row in of_class))
    first = next(row for row in of_class if row.benchmark == "models")
    other = re.sub(r"over eager [\d.]+", "over eager 0.5", first.line)
    changed = [row if row is not first else tables.Row("models", other, row.source, row.loads) for row in of_class]
    text = tables.with_results(README, classes | {name: changed})
    assert text != README and f"{' '.join(first.name[:-1])} 0.50" in text


def test_readme_has_no_other_figure_among_its_results():
    before, rest = README.split("## Results\n")[1].split(tables.MARKS[0])
    by_hand = before + rest.split(tables.MARKS[1])[1].split("\n## ")[0]
    allowed = r"above 1\.0|batch 1 \(in training, at batch 8\)|COMPARE=1"
    assert re.findall(r"\d+(?:[.,]\d+)?", re.sub(allowed, "", by_hand)) == []


@pytest.mark.parametrize("path", sorted(tables.RESULTS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_file_is_what_its_rows_give(path):
    text = path.read_text()
    if path.stem in ("gpu", "gpu_models", "op_sweep", "ulp", "wild"):  # each has its own make target
        return
    found = tables.read(path)
    assert tables.page(path.stem, found) == text
    assert len(found) == sum(bool(rows.parse(line)) for line in text.splitlines() if line[:1] not in "=$#")
    assert {row.benchmark for row in found} <= set(run.BENCHMARKS)


def test_classes_and_benchmarks_are_those_that_there_are():
    table = (ROOT / "inductor/target/machine_classes.def").read_text()
    assert list(tables.CLASSES) == re.findall(r"^MACHINE_CLASS\((\w+),", table, re.M)
    assert sorted(tables.BENCHMARKS) == sorted(run.BENCHMARKS)
    assert {benchmark for _, benchmark, *_ in tables.RATIOS + tables.COSTS} <= set(run.BENCHMARKS)


def test_every_row_has_a_file_and_a_case_of_its_own():
    found = list(run.plan(run.BENCHMARKS))
    files = [run.file_of(Path(), benchmark, row) for benchmark, row, *_ in found]
    assert len(set(files)) == len(files) > 100
    cases = [row for benchmark, row, *_ in found if benchmark == "guards"]  # its option takes parts of names
    assert len(cases) == 3 and not any(a in b for a in cases for b in cases if a != b)


def test_a_row_is_read_back():
    text = rows.line("30 steps of 4096", "alone", **{"eager us": 1234.5678, "over eager": 0.123456, "dropped": 3})
    assert text == "30 steps of 4096  alone  eager us 1235  over eager 0.1235  dropped 3"
    assert rows.parse(text) == (("30 steps of 4096", "alone"), {"eager us": 1235, "over eager": 0.1235, "dropped": 3})
    assert rows.parse("some words") is rows.parse("some words  more words") is None
    assert rows.rows_of(f"{SLOW}\nwords\n{FAST}\n\na summary  of 2\n") == [SLOW, FAST]


def test_a_summary_names_the_least_and_what_is_below():
    (ratios,) = rows.summary("models", [FAST, SLOW])
    assert ratios == ("f32", "over eager", pytest.approx(1.5), [(0.75, "a"), (3, "b")])
    assert rows.told(*ratios) == "f32: over eager: geomean 1.50 of 2, least 0.75 (a); below 1.0: a 0.75"
    assert rows.told(*rows.summary("models", [FAST])[0]).endswith("least 3.00 (b); below 1.0: none")
    assert "0.999" in rows.told(*rows.summary("models", ["a  f32  over eager 0.999"])[0])
    (bytes_,) = rows.summary("memory", ["a  f32  of eager 0.5", "b  f32  of eager 2"])
    assert rows.told(*bytes_) == "f32: of eager: geomean 1.00 of 2, most 2.00 (b); above 1.0: b 2.00"
    assert len(rows.summary("models", [FAST, SLOW.replace("f32", "bf16")])) == 2


def kept(folder, row, lines, date, commit="c1", of=("a", "b"), code=0, others=0.01):
    """A row as another machine left it."""
    path = folder / "avx2" / "models" / f"{row}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({
        "class": "avx2", "benchmark": "models", "row": row, "rows": list(of), "lines": lines, "exit": code, "load": 0.5,
        "others": others, "date": date, "commit": commit, "processor": "P", "cores": "2 cores", "python": "3",
        "torch": "2", "gpu": ""}))


def test_merged_rows(tmp_path):
    results, one, two = (tmp_path / name for name in ("results", "one", "two"))
    results.mkdir()
    (results / "other.txt").write_text("another page")
    kept(one, "a", [SLOW], "2026-01-02T10:00")
    kept(one, "b", [FAST, FAST.replace("b ", "gone ")], "2026-01-02T11:00")
    tables.merge([one], results)
    text = (results / "avx2.txt").read_text()
    assert "$ make bench NAME=models        c1; 2026-01-02; P; 2 cores; Python 3; torch 2; load 0.5 before\n" in text
    assert "geomean 1.89 of 3, least 0.75 (a); below 1.0: a 0.75" in text and "gone" in text
    tables.merge([one], results)
    assert (results / "avx2.txt").read_text() == text

    kept(two, "a", [SLOW.replace("0.75", "2")], "2026-01-03T10:00", "c2", code=1)
    tables.merge([two], results)  # only a newer row
    text = (results / "avx2.txt").read_text()
    assert "0.75" not in text and "gone" in text and "c2; 2026-01-03" in text and "c1; 2026-01-02" in text
    assert "its own bound is missed" in text
    tables.merge([one], results)  # an older one
    assert (results / "avx2.txt").read_text() == text

    kept(two, "b", [FAST], "2026-01-03T11:00", "c2")
    tables.merge([one, two], results)  # all rows: rows that none of them prints are gone
    text = (results / "avx2.txt").read_text()
    assert "gone" not in text and "c1" not in text and "geomean 2.45 of 2" in text
    assert (results / "other.txt").read_text() == "another page"

    kept(two, "a", [SLOW], "2026-01-04T10:00", others=0.5)
    tables.merge([two], results)  # measured next to others
    assert (results / "avx2.txt").read_text() == text
    (results / "avx2.txt").unlink()
    tables.merge([two], results)  # better than nothing
    assert "load 0.5 before; a busy machine\n" + SLOW in (results / "avx2.txt").read_text()


def test_rows_of_no_known_class_go_when_a_class_has_them(tmp_path):
    source = tables.Source("a command", "c0", "2026-01-01", "P", "2 cores", "3", "2", "class not recorded")
    of_before = [tables.Row("models", line, source, ()) for line in (SLOW, FAST)]
    (tmp_path / "amd.txt").write_text(tables.page("amd", of_before))
    kept(tmp_path / "kept", "a", [SLOW], "2026-01-02T10:00")
    tables.merge([tmp_path / "kept"], tmp_path)
    assert tables.read(tmp_path / "amd.txt") == of_before
    kept(tmp_path / "kept", "b", [FAST], "2026-01-02T10:00")
    tables.merge([tmp_path / "kept"], tmp_path)
    assert not (tmp_path / "amd.txt").exists()


PROGRAM = """
import sys
if __name__ == "__main__":
    open("ran", "a").write(sys.argv[1] + " ")
    print(sys.argv[1], "over eager 2", sep="  ")
    sys.exit(sys.argv[1] == open("fails").read())
"""


def test_a_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "made_up.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path / "benchmarks"))
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(run, "BENCHMARKS", {"made_up": ([], lambda module: {"a": ["a"], "b": ["b"]})})
    monkeypatch.setattr(run, "machine", lambda: {"class": "avx2", "processor": "P", "gpu": "", "cores": "2 cores",
                                                 "python": "3", "torch": "2"})

    def ran(*arguments, fails="", commit="c1"):
        (tmp_path / "fails").write_text(fails)
        (tmp_path / "ran").write_text("")
        failed = run.measure(run.options_of([*arguments, "--commit", commit]))
        return (tmp_path / "ran").read_text().split(), failed

    assert ran("--share", "1/2") == (["a"], [])
    assert ran(fails="b") == (["b"], ["made_up b"])
    assert ran() == (["b"], [])  # again, because it failed
    assert ran() == ([], [])
    assert ran("--again") == (["a", "b"], []) == ran("made_up") == ran(commit="c2")
    assert ran("made_up", "--no-again", commit="c2") == ([], [])
    row = json.loads((tmp_path / "kept/avx2/made_up/a.json").read_text())
    assert row["lines"] == ["a  over eager 2"] and row["commit"] == "c2" and row["rows"] == ["a", "b"]


IN_TURN = """
import json, sys
row, compiler, log, ready = sys.argv[1:5]
if compiler == "eager":
    sys.exit("it has no start")
print(ready, flush=True)
for turn, line in enumerate(sys.stdin):
    if (row, compiler, turn) == ("a batch 1", "torch.compile", 1):
        sys.exit("it has no second turn")
    for what in "begins", "ends":
        open(log, "a").write(f"{row[0]} {compiler} {what}\\n")
    print("a line of a library\\n" + ready, flush=True)
print(json.dumps({"row": row, "compiler": compiler, "turns": turn + 1}))
"""


def test_processes_measure_in_turn(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setattr(gpu, "start", lambda row, compiler, cache, *flags, **settings: subprocess.Popen(
        [sys.executable, "-c", IN_TURN, row, compiler, log, gpu.READY], text=True, stdout=subprocess.PIPE, **settings))
    pairs = [(f"{row} batch 1", compiler) for row in "abc" for compiler in ("eager", "framejit", "torch.compile")]
    got = {(r["row"][0], r["compiler"]): r.get("turns", r.get("failed")) for r in gpu.measured(pairs, 2, 60)}
    wanted = {pair: "it has no start" if pair[1] == "eager" else gpu.TURNS for pair in got}
    assert got == wanted | {("a", "torch.compile"): "it has no second turn"} and len(got) == len(pairs)
    words = log.read_text().split("\n")[:-1]
    assert all(begin[:-len("begins")] == end[:-len("ends")] for begin, end in zip(words[::2], words[1::2]))
    whole = ["a framejit", "a torch.compile", "b framejit", "b torch.compile"]
    rest = [whole[0], *whole[2:]]
    turns = [word.removesuffix(" begins") for word in words[::2]]
    assert turns == whole + rest * (gpu.TURNS - 1) + ["c framejit", "c torch.compile"] * gpu.TURNS


def test_the_table_of_a_gpu():
    eager = {"row": "BERT-base batch 1", "compiler": "eager", "ms": 3.0, "error_of_eagers": 1.0, "peak_mb": 5}
    ours = {**eager, "compiler": "framejit", "ms": 2.0, "in_a_row_ms": 1.5}
    lost = {**eager, "compiler": "torch.compile", "failed": "a\nb"}
    lines = [re.sub(r"  +", "  ", line) for line in gpu.table([eager, ours, lost]).splitlines()]
    assert lines == ["BERT-base batch 1  eager  ms 3.000  error over eager's 1.00  peak MB 5",
                     "BERT-base batch 1  framejit  ms 2.000  in a row 1.500  over eager 1.50  error over eager's 1.00  "
                     "peak MB 5", "BERT-base batch 1  torch.compile  failed: b"]


ROW_PROGRAM = """import json, sys
_, option, name, kind, *arguments = sys.argv
assert option == "--row" and arguments == ["--rounds", "3"]
if kind == "bad":
    sys.exit("no such kind")
print("words of a library")
print(json.dumps({"eager ms": 2.0, "over eager": float(name[-1])}))
"""


def test_each_row_is_a_process_and_a_failed_one_is_named(tmp_path, capfd):
    program = tmp_path / "program.py"
    program.write_text(ROW_PROGRAM)
    with pytest.raises(SystemExit, match=r"^failed: case 3 bad: \['no such kind'\]$"):
        rows.run_rows("models", str(program), [("case 2", "f32"), ("case 3", "bad"), ("case 8", "f32")],
                      ["--rounds", "3"])
    assert capfd.readouterr().out.splitlines() == [
        "case 2  f32  eager ms 2  over eager 2", "case 8  f32  eager ms 2  over eager 8", "",
        "f32: over eager: geomean 4.00 of 2, least 2.00 (case 2); below 1.0: none"]
