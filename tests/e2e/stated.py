"""The graphs, graph breaks and fallbacks that a test had, and which of them it states.

A test states them if it compares them after they happened: stats()["graph_breaks"] == 2 states all breaks,
stats()["break_reasons"]["outside_effect"] == 2 those of that reason; the same holds for fallbacks. "> 0" states none,
"in (1, 2)" does. check() compares both. What is left, added up over all periods between resets, must be what the
markers `breaks` and `fallbacks` of the test say: @pytest.mark.breaks(outside_effect=2). If the count varies from run to
run, they say between which: breaks(outside_effect=range(3)), or breaks("outside_effect") if there must be one. If it
depends on the parameters, a dict has it by the id of one: breaks(outside_effect={"print": 2}). Sweeps state a sum over
all reasons: breaks(total=90).

Hits of an entry that has no graph because framejit refused, or has a defect, are fallbacks here.

Graphs are stated by a comparison of stats()["graphs"] too, and check() compares it for each backend. Otherwise a test
has one graph (none in the files of NONE_HERE), unless graphs.txt lists it: "file::test: count", or "file::test[case]:
count" where cases differ. UPDATE_GOLDEN=1 writes the lines of the tests that run.
"""
import collections
import functools
import os
import re
from pathlib import Path

KINDS = {"breaks": ("graph_breaks", "break_reasons"), "fallbacks": ("fallbacks", "fallback_reasons")}
GRAPHS = Path(os.environ.get("GRAPHS_TABLE", Path(__file__).with_name("graphs.txt")))
ROWS = Path(__file__).parents[2] / "runtime/base/reasons.def"
FAILURES = re.findall(r"^REASON\((?:refusal|defect), (\w+),", ROWS.read_text(), re.M)
# What the data of one call may show while compiled code runs: plain Python runs the call again and raises the error.
RUN_ERRORS = {"run_failed", "kernel_check", "size_out_of_range"}
# What may pass without a graph in its own process -> why. Graphs that it has there anyway are rows of graphs.txt.
NONE_HERE = {
    "hook/": "runs without torch",
    "recorder/": "records without compiling",
    "test_api.py": "checks arguments, signatures and errors; whole programs run in child processes",
    "test_bench.py": "reads files of results",
    "test_code_names.py": "the settings are read at import: child processes",
    "test_deep_recursion.py": "a crash would end the process: child processes",
    "test_demo.py": "runs a demo: child processes",
    "training/test_demo_train.py": "runs a demo: child processes",
    "test_levels.py": "another level of the CPU is chosen at import: child processes",
    "test_log_files.py": "the settings are read at import: child processes",
    "test_logs.py": "the settings are read at import: child processes",
    "test_op_sweep.py": "the sweep's workers compile: child processes",
    "test_op_table.py": "reads tables",
    "test_output_code.py": "the settings are read at import: child processes",
    "test_process.py": "looks at whole processes: child processes",
    "test_readme.py": "runs the pages: child processes",
    "test_untouched_programs.py": "FRAMEJIT=1 acts at start-up: child processes",
    "test_warned_by_default.py": "reads the stderr of child processes",
}


class Total(int):
    """A total that is stated by what says its value: a comparison with ==, a difference or a sum that is compared so,
    or `not`, if it is nothing. "More than one" says too little."""

    def __new__(cls, value, state):
        total = super().__new__(cls, value)
        total.state = state
        return total

    def __eq__(self, other):
        self.state()
        self.state = int  # once is enough: a range compares with each of its numbers
        return int.__eq__(self, other)

    def __hash__(self):
        return int.__hash__(self)

    def __bool__(self):
        if int.__eq__(self, 0):
            self.state()
        return not int.__eq__(self, 0)

    def __sub__(self, other):
        return Total(int.__sub__(self, other), functools.partial(state_both, self, other))

    def __rsub__(self, other):
        return Total(int.__rsub__(self, other), self.state)

    def __add__(self, other):
        return Total(int.__add__(self, other), functools.partial(state_both, self, other))

    __radd__ = __add__


def state_both(*totals):
    for total in totals:
        getattr(total, "state", int)()


class Counts(dict):
    """Counts by reason that tell `read` which of them are stated: all by a comparison with ==, their values or that
    there are none; one by its Total, or that it is not there."""

    def __init__(self, counts, read):
        super().__init__(counts)
        self.read = read

    def one(self, reason):
        return Total(dict.get(self, reason, 0), lambda: self.read({reason: dict.get(self, reason, 0)}))

    def all(self):
        self.read(dict(dict.items(self)))

    def __getitem__(self, reason):
        super().__getitem__(reason)
        return self.one(reason)

    def get(self, reason, default=None):
        return self.one(reason) if dict.__contains__(self, reason) or default == 0 else default

    def pop(self, reason, *default):
        one = self.one(reason)
        super().pop(reason, *default)
        return one

    def __contains__(self, reason):
        return bool(self.one(reason))

    def __len__(self):
        if not dict.__len__(self):
            self.all()
        return dict.__len__(self)


def stating_all(name):
    def method(self, *args):
        self.all()
        return getattr(dict, name)(self, *args)
    return method


for _name in ("__eq__", "__ne__", "__or__", "values", "items", "copy"):
    setattr(Counts, _name, stating_all(_name))


class Stats(dict):
    """What stats() returned, and the period in which it did."""

    def __init__(self, stats, period):
        super().__init__(stats)
        self["graphs"] = Total(stats["graphs"], functools.partial(period.state_graphs, stats["graphs"]))
        for kind, (total, reasons) in KINDS.items():
            self[reasons] = Counts(stats[reasons], functools.partial(period.state, kind))
            self[total] = Total(stats[total], self[reasons].all)


class Period:
    """From one reset to the next."""

    def __init__(self):
        self.graphs = self.stated_graphs = 0
        self.had = {kind: collections.Counter() for kind in KINDS}
        self.stated = {kind: collections.Counter() for kind in KINDS}

    def state(self, kind, counts):
        self.stated[kind] |= collections.Counter(counts)

    def state_graphs(self, count):
        self.stated_graphs = max(self.stated_graphs, count)

    def close(self, stats):
        self.graphs = stats["graphs"]
        for kind, (_, reasons) in KINDS.items():
            self.had[kind].update(stats[reasons])
        hits = stats["plain_hit_reasons"]
        self.had["fallbacks"].update({reason: hits[reason] for reason in FAILURES if reason in hits})


class Watch:
    """Watches framejit.stats() and framejit.reset() from here to close()."""

    def __init__(self, framejit, monkeypatch):
        self._stats, self._reset = framejit.stats, framejit.reset
        self._reset()
        self.periods = [Period()]
        monkeypatch.setattr(framejit, "stats", self.stats)
        monkeypatch.setattr(framejit, "reset", self.reset)

    def stats(self):
        return Stats(self._stats(), self.periods[-1])

    def reset(self):
        self.periods[-1].close(self._stats())
        self._reset()
        self.periods.append(Period())

    def close(self):
        self.periods[-1].close(self._stats())

    def graphs(self):
        return sum(period.graphs for period in self.periods)

    def unstated_graphs(self):
        return sum(period.graphs - period.stated_graphs for period in self.periods)

    def unstated(self, kind):
        return sum((period.had[kind] - period.stated[kind] for period in self.periods), collections.Counter())


@functools.cache
def graph_counts(path=GRAPHS):
    """test or case -> how many graphs it has besides those that it reads."""
    with open(path, encoding="utf-8") as f:
        return {name: int(count) for name, _, count in (line.rpartition(": ") for line in f
                                                        if line.strip() and not line.startswith("#"))}


def test_of(case):
    return case.partition("[")[0]


def none_here(case):
    return case.startswith(tuple(NONE_HERE))


def usual_graphs(test):
    return 0 if none_here(test) else 1


def wrong_graphs(case, watch, counts):
    """How the graphs of a case, whose name begins with its file, differ from the table: None, or a text."""
    known = counts.get(case, counts.get(test_of(case)))
    had = watch.unstated_graphs()
    wanted = usual_graphs(case) if known is None else known
    if had == wanted or (known is None and had == 0 and watch.graphs()):
        return None
    return (f"the test had {had} graphs that it does not state, in place of {wanted}: let it "
            "read stats()['graphs'], or see graphs.txt")


def joined_counts(counts, seen):
    """The table after a run: a line for a test, and for those of its cases that differ from most."""
    table, cases = dict(counts), {}

    def of_test(case):
        return table.get(test_of(case), usual_graphs(case))
    for case, count in seen.items():
        cases.setdefault(test_of(case), {})[case] = count
    for test, of in cases.items():
        if not any(test_of(name) == test for name in counts):
            table[test] = collections.Counter(of.values()).most_common(1)[0][0]
        table.update({case: count for case, count in of.items() if table.get(case, of_test(case)) != count})
    return {name: count for name, count in sorted(table.items())
            if count != (usual_graphs(name) if name == test_of(name) else of_test(name))}


def write_graphs(seen, path=GRAPHS):
    with open(path, encoding="utf-8") as f:
        head = [line for line in f if line.startswith("#")]
    table = joined_counts(graph_counts.__wrapped__(path), seen)
    path.write_text("".join(head) + "".join(f"{name}: {count}\n" for name, count in table.items()), encoding="utf-8")


def count_for(item, count):
    """The count that a marker states for a test."""
    if not isinstance(count, dict):
        return count
    ids = f"-{item.callspec.id}-"
    return sum(n for of, n in count.items() if f"-{of}-" in ids)


def difference(item, kind, unstated):
    """How the counts of a kind differ from the markers of a test: None, or a text."""
    exact, any_count, within = collections.Counter(), set(), {}
    for marker in item.iter_markers(kind):
        counts = {reason: count_for(item, count) for reason, count in marker.kwargs.items()}
        within.update({reason: count for reason, count in counts.items() if not isinstance(count, int)})
        exact.update({reason: count for reason, count in counts.items() if isinstance(count, int)})
        any_count.update(marker.args)
    had = {reason: count for reason, count in unstated.items() if reason not in any_count | within.keys()}
    if "total" in exact:
        had = {"total": sum(had.values())}
    if (collections.Counter(had) == exact and all(unstated[reason] for reason in any_count)
            and all(unstated[reason] in counts for reason, counts in within.items())):
        return None
    said, had = (", ".join(f"{reason}={count}" for reason, count in sorted(counts.items()))
                 for counts in ({**exact, **dict.fromkeys(any_count, 1), **within}, unstated))
    return f"the test had {kind} that it does not state, or states others: {kind}({had}) instead of {kind}({said})"
