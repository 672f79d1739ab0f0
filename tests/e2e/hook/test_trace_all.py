"""FRAMEJIT_TRACE_ALL: every frame is traced, its effects replayed, its guards checked; CPython's own tests are the programs."""
import importlib.util
import json
import os
import subprocess
import sys

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
    environment = dict(os.environ, PYTHONPATH=os.path.dirname(importlib.util.find_spec("_framejit_hooktest").origin), FRAMEJIT_STRICT="1")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    results, total, log, stats = json.loads(done.stdout)
    assert results == repr([{1: 1, 2: 3}, {1: 4, 2: 6}, {5: 11}, "known", "known", "other"]) and (total, log) == (11, [1, 2, 1, 2, 5])
    assert stats["segments"] > 100 and stats["segments"] > 4 * stats["natively"] and not stats["fallbacks"], stats
