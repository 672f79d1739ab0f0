"""FRAMEJIT_TRACE_ALL: every frame is traced, its effects are replayed, its guards are checked; the programs are
CPython's own tests."""
import importlib.util
import json
import os
import subprocess
import sys

import pytest

import trace_all

# The rest of the table runs in make trace-all.
SHORT = ("test_list test_set test_generators test_iter test_functools test_contextlib test_with test_exceptions "
         "test_scope test_super test_property test_builtin").split()

PROGRAM = """
import _framejit_hooktest as hook, json

class Account:
    def __init__(self):
        self.total, self.log = 0, []
    def add(self, amount):
        self.total += amount
        self.log.append(amount)
        return self.total

def run(account, amounts):
    seen = {}
    for amount in amounts:
        seen[amount] = account.add(amount)
    return seen

def asked(kind):
    return "known" if kind in ("a", "b") else "other"

account = Account()
hook.trace_stats()
assert hook.trace_all(True)
results = [run(account, [1, 2]), run(account, [1, 2]), run(account, [5]), asked("a"), asked("a"), asked("c")]
hook.trace_all(False)
stats = hook.trace_stats()
print(json.dumps([repr(results), account.total, account.log, stats]))
"""


def test_effects_are_replayed_and_guards_checked():
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(importlib.util.find_spec("_framejit_hooktest").origin),
                       FRAMEJIT_STRICT="1")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    results, total, log, stats = json.loads(done.stdout)
    assert results == repr([{1: 1, 2: 3}, {1: 4, 2: 6}, {5: 11}, "known", "known", "other"]) and (total, log) == (11,
        [1, 2, 1, 2, 5])
    assert stats["segments"] > 100 and stats["segments"] > 4 * stats["natively"] and not stats["fallbacks"], stats


@pytest.mark.skipif(importlib.util.find_spec("test.test_dict") is None and not os.environ.get("CI"),
                    reason="not tested: this Python comes without its test suite")
@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_cpython_tests_with_every_frame_traced(name):
    floors, exceptions = trace_all.read_table()
    row, wrong, _ = trace_all.check(name, floors[name], exceptions.get(name, {}))
    assert not wrong, row


def test_the_table_names_what_runs():
    floors, exceptions = trace_all.read_table()
    assert set(SHORT) < set(floors) and set(exceptions) <= set(floors) and all(floor > 8 for floor in floors.values())
    floors, exceptions = trace_all.read_table("trace_stdlib.txt")
    assert len(floors) > 130 and set(exceptions) <= set(floors)


def test_a_floor_that_cannot_fail_is_refused(tmp_path):
    table = tmp_path / "table.txt"
    table.write_text("floor test_a 18.2 18.2 18.2\nfloor test_b ? ? ?\nfloor test_c - - -\n")
    assert trace_all.read_table(str(table)) == ({"test_a": 18.2, "test_b": 0.0}, {})
    table.write_text("floor test_a 0.0 0.0 0.0\n")
    with pytest.raises(AssertionError, match="a floor of 0.0 cannot fail"):
        trace_all.read_table(str(table))

FILLS = """
import _framejit_hooktest as hook, re, urllib.parse

class Context:
    def __init__(self, pattern):
        self.pattern = re.compile(pattern)

def enter(pattern):
    context = Context(pattern)
    return context.pattern

def run():
    parts = urllib.parse.urlsplit("http://Server=sde; Service=sde:oracle")
    return enter("Port could not be cast to integer value as 'oracle'"), parts

hook.trace_all(True)
pattern, parts = run()
hook.trace_all(False)
print(pattern.pattern, parts.scheme)
"""


def test_a_trace_that_runs_a_cached_function_and_becomes_too_long_stops_where_it_can():
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(importlib.util.find_spec("_framejit_hooktest").origin),
                       FRAMEJIT_STRICT="1")
    done = subprocess.run([sys.executable, "-c", FILLS], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == "Port could not be cast to integer value as 'oracle' http\n", done.stderr
