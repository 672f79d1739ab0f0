"""What tests must state about graph breaks and fallbacks: stated.py, in a separate pytest over the tests of TESTS."""
import ast
import collections
import os
import re
import types
from pathlib import Path

import pytest

import programs
import stated

pytestmark = pytest.mark.nothing_captured  # the child compiles
HERE = Path(__file__).parent
TESTS = """
import time

import pytest
import torch

import framejit
from check import check, fresh

breaks, fallbacks = pytest.mark.breaks, pytest.mark.fallbacks


def prints(x):
    x = x + 1
    print(end="")
    time.sleep(0)
    return x * 2


broken = framejit.compile(prints)


@framejit.compile
def whole(x):
    return x + 1


@framejit.compile
def other(x):
    return x + 2


def b():
    broken(torch.ones(2))


def f():
    for dtype in (torch.float32, torch.float64, torch.int64):
        whole(torch.ones(2).to(dtype))


class TestRight:
    def test_without_any(self):
        whole(torch.ones(2))

    @breaks(outside_effect=2)
    def test_counts(self):
        b()

    @breaks("outside_effect")
    def test_any_count(self):
        b()

    @breaks(outside_effect=1)
    @breaks(outside_effect=1)
    def test_markers_add_up(self):
        b()

    @breaks(total=2)
    def test_total(self):
        b()

    @breaks(outside_effect=4)
    def test_periods_add_up(self):
        b()
        framejit.reset()
        b()

    def test_reads_the_total(self):
        b()
        assert framejit.stats()["graph_breaks"] == 2

    def test_reads_all_reasons(self):
        b()
        assert framejit.stats()["break_reasons"] == {"outside_effect": 2}

    def test_reads_one_reason(self):
        b()
        assert framejit.stats()["break_reasons"].get("outside_effect") == 2

    def test_reads_after_the_reset(self):
        b()
        stats = framejit.stats()
        framejit.reset()
        assert stats["graph_breaks"] == 2

    def test_one_of_several_counts(self):
        b()
        assert framejit.stats()["graphs"] in (1, 2) and framejit.stats()["graph_breaks"] in range(2, 4)

    def test_differences(self):
        before = framejit.stats()
        b()
        after = framejit.stats()
        assert [after[key] - before[key] for key in ("graphs", "graph_breaks")] == [2, 2]

    def test_nothing(self):
        whole(torch.ones(2))
        stats = framejit.stats()
        assert not stats["graph_breaks"] and not stats["break_reasons"] and not stats["fallbacks"]

    @breaks(outside_effect=range(1, 3))
    @fallbacks(entry_limit=range(3))
    def test_between_two_counts(self):
        b()

    def test_check(self):
        check(prints, torch.ones(2), compiles=2, breaks=2)

    @fallbacks(entry_limit=2)
    def test_fallbacks(self):
        f()

    @pytest.mark.parametrize("run", [b, pytest.param(f, marks=fallbacks(entry_limit=2))])
    @breaks("outside_effect")
    def test_of_one_parameter(self, run):
        b()
        run()

    @pytest.mark.parametrize("times", [1, 2], ids=["once", "two times"])
    @pytest.mark.parametrize("run", [b, f])
    @fallbacks(entry_limit={"f-once": 2, "f-two times": 4})
    @breaks(outside_effect={"b-once": 2, "b-two times": 4})
    def test_of_each_parameter(self, run, times):
        for _ in range(times):
            run()
            framejit.reset()

    def test_reads_the_graphs(self):
        whole(torch.ones(2)), other(torch.ones(2))
        assert framejit.stats()["graphs"] == 2

    def test_graphs_of_the_table(self):
        whole(torch.ones(2)), other(torch.ones(2))

    @pytest.mark.xfail
    def test_that_fails_before_it_reads(self):
        b()
        assert False


class TestWrong:
    def test_not_stated(self):
        b()

    def test_reads_another_key(self):
        b()
        assert framejit.stats()["graphs"] == 2 and framejit.stats()["fallbacks"] == 0

    def test_says_too_little(self):
        b()
        stats = framejit.stats()
        assert stats["graphs"] == 2 and stats["graph_breaks"] > 1 and stats["graph_breaks"] != 3
        assert stats["graph_breaks"] and 1 <= stats["break_reasons"]["outside_effect"] <= 2
        assert set(stats["break_reasons"]) <= {"outside_effect"} and "outside_effect" in stats["break_reasons"]

    def test_says_too_little_of_graphs(self):
        whole(torch.ones(2)), other(torch.ones(2))
        assert 1 < framejit.stats()["graphs"] <= 2 and framejit.stats()["graphs"]

    @breaks(outside_effect=range(3, 5))
    def test_between_other_counts(self):
        b()

    def test_reads_another_reason(self):
        b()
        assert "exception_raised" not in framejit.stats()["break_reasons"]

    def test_reads_too_early(self):
        assert framejit.stats()["graph_breaks"] == 0
        b()

    def test_reads_another_period(self):
        b()
        framejit.reset()
        assert framejit.stats()["graph_breaks"] == 0
        whole(torch.ones(2))

    @breaks(outside_effect=1)
    def test_one_more(self):
        b()

    @breaks(outside_effect=3)
    def test_one_less(self):
        b()

    @breaks(total=3)
    def test_another_total(self):
        b()

    @breaks(outside_effect=2, mode_entered=1)
    def test_another_reason(self):
        b()

    @breaks("outside_effect", "mode_entered")
    def test_another_reason_of_any_count(self):
        b()

    @breaks(outside_effect=2)
    def test_absent(self):
        whole(torch.ones(2))

    @breaks(outside_effect=2)
    def test_stated_twice(self):
        b()
        assert framejit.stats()["graph_breaks"] == 2

    def test_more_graphs(self):
        whole(torch.ones(2)), other(torch.ones(2))

    def test_fewer_graphs(self):
        whole(torch.ones(2)), other(torch.ones(2))

    def test_graphs_read_too_early(self):
        assert framejit.stats()["graphs"] == 0
        whole(torch.ones(2)), other(torch.ones(2))

    def test_unstated_fallbacks(self):
        f()

    @fallbacks(entry_limit=1)
    def test_absent_fallbacks(self):
        whole(torch.ones(2))
"""
# class -> count -> its tests, or their cases
GRAPHS = {"Right": {2: ["counts", "any_count", "markers_add_up", "total", "of_one_parameter[b]", "graphs_of_the_table",
                        "between_two_counts", "of_each_parameter[b-once]", "of_each_parameter[f-two times]"],
                    3: ["of_one_parameter[f]"], 4: ["periods_add_up", "of_each_parameter[b-two times]"]},
          "Wrong": {2: ["not_stated", "reads_another_reason", "one_more", "one_less", "another_total",
                        "another_reason", "another_reason_of_any_count", "stated_twice", "reads_too_early",
                        "between_other_counts"],
                    3: ["fewer_graphs", "reads_another_period"]}}
GRAPHS["Right"][2] += [f"reads_{what}" for what in ("the_total", "all_reasons", "one_reason", "after_the_reset")]
NAMES = {group: re.findall(r"def (test_\w+)", text)
         for group, text in zip(("right", "wrong"), TESTS.partition("class TestWrong")[::2])}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """name of a test -> its outcomes, each with a line of explanation"""
    folder = tmp_path_factory.mktemp("stated")
    (folder / "test_programs.py").write_text(TESTS, encoding="utf-8")
    (folder / "graphs.txt").write_text("".join(f"test_programs.py::Test{kind}::test_{name}: {count}\n" for kind,
        counts in GRAPHS.items() for count, names in counts.items() for name in names), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))}
    done = programs.run("import sys, pytest; pytest.main(sys.argv[1:])", "-q", "-rA", "-p", "conftest", "-p",
                        "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "test_programs.py", cwd=folder,
                        env={**env, "COLUMNS": "1000", "FRAMEJIT_ENTRIES": "1",
                             "GRAPHS_TABLE": str(folder / "graphs.txt")}, forked=False)
    found = {}
    for outcome, name, rest in re.findall(r"^(PASSED|FAILED|ERROR|XFAIL) \S+::(test_\w+)\S*(.*)", done.stdout, re.M):
        found.setdefault(name, []).append((outcome, rest))
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("name", NAMES["right"])
def test_what_is_stated(name, outcomes):
    assert {outcome for outcome, _ in outcomes[name]} in ({"PASSED"}, {"XFAIL"}), outcomes[name]


@pytest.mark.cpu_only("tests state no graph breaks there")
@pytest.mark.parametrize("name", NAMES["wrong"])
def test_what_is_not(name, outcomes):
    assert [outcome for outcome, _ in outcomes[name]] == ["PASSED", "ERROR"], outcomes[name]


def test_hits_of_a_refusal_are_fallbacks():
    period = stated.Period()
    period.close({"graphs": 1, "break_reasons": {"outside_effect": 1}, "fallback_reasons": {"run_failed": 1},
                  "plain_hit_reasons": {"no_tensor_work": 4, "outside_effect": 3, "internal_error": 2}})
    assert period.had == {"breaks": {"outside_effect": 1}, "fallbacks": {"run_failed": 1, "internal_error": 2}}


def test_the_table_of_graphs():
    """A line for a test, lines for cases that differ from most, and none for one graph."""
    def joined(seen, **counts):
        return stated.joined_counts({f"a::{name}": count for name, count in counts.items()}, seen)
    assert joined({"a::t[1]": 2, "a::t[2]": 2, "a::u": 1}) == {"a::t": 2}
    assert joined({"a::t[1]": 2, "a::t[3]": 5}, t=2) == {"a::t": 2, "a::t[3]": 5}
    assert joined({"a::t[1]": 2, "a::t[2]": 1, "a::t[3]": 1}) == {"a::t[1]": 2}
    assert joined({"a::t[1]": 2, "a::t[2]": 1, "a::t[3]": 2}) == {"a::t": 2, "a::t[2]": 1}
    assert joined({"a::t": 1, "a::u": 4}, t=2, u=3, v=5) == {"a::u": 4, "a::v": 5}


def test_what_may_pass_without_a_graph():
    """Each is there. Graphs that such a test has in this process are rows as everywhere, and none is usual."""
    assert all((HERE / name).exists() for name in stated.NONE_HERE)
    assert stated.joined_counts({}, {"test_api.py::t": 1, "test_api.py::u": 0}) == {"test_api.py::t": 1}
    watch = types.SimpleNamespace(unstated_graphs=lambda: 1, graphs=lambda: 1)
    assert stated.wrong_graphs("test_logs.py::t", watch, {}) and not stated.wrong_graphs("test_basics.py::t", watch, {})
    assert not stated.wrong_graphs("test_logs.py::t", watch, {"test_logs.py::t": 1})


def test_lines_of_the_table():
    """Each belongs to a test that exists."""
    for name in stated.graph_counts():
        file, _, test = stated.test_of(name).partition("::")
        assert re.search(rf"def {test.rpartition('::')[2]}\(", (HERE / file).read_text(encoding="utf-8")), name


def test_files_have_names_of_their_own():
    """pytest imports a file under its bare name, and collects no other of that name in one run."""
    names = collections.Counter(path.name for path in HERE.parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def reads_of_stats(tree):
    """The lines of statements that read counts and compare them with nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and not any(isinstance(part, ast.Compare) for part in ast.walk(node)):
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if any(isinstance(part, ast.Subscript) and "stats" in ast.unparse(part.value) for part in parts):
                yield node.lineno


def test_a_read_is_compared():
    assert list(reads_of_stats(ast.parse("stats()['graphs'] == 1\nf.stats()['graphs'], 2\nstats['hits']"))) == [2, 3]
    found = {(path.name, line) for path in HERE.rglob("test_*.py")
             for line in reads_of_stats(ast.parse(path.read_text(encoding="utf-8")))}
    assert not found, "state nothing: let a test compare what it reads, or see stated.py"
