"""CPython's own tests with every frame traced (FRAMEJIT_TRACE_ALL): each test ends as it does without tracing, or a
table says why not.

    trace_all.py [--jobs N] [--update] [--table trace_all.txt] [test_list test_dict ...]

trace_all.txt is about the language and its builtins, trace_stdlib.txt about modules of the standard library that are
written in Python, and about more of the language.

Prints a row per file: tests, those that differ, the share of all instructions executed in traced frames that segments
replaced, and the least share that is allowed. Exits with 1 if a test that is not listed differs, a
listed one passes, or a share is below its floor.
--update writes this Python's floors anew: 85 hundredths of what was seen (tests with threads vary by a twentieth).
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = "trace_all.txt"
SECONDS = 600
THIS_PYTHON = "%d.%d" % sys.version_info[:2]
PYTHONS = ["3.11", "3.12", "3.13"]  # the columns of floors
LIMITS = {"FRAMEJIT_STRICT": "1"}


def read_table(name=TABLE):
    """{file: least share in percent}, {file: {test: (skip or differs, reason)}} of this Python."""
    floors, exceptions = {}, {}
    for line in open(os.path.join(HERE, name)):
        words = line.split("#")[0].split(None, 3)
        if words[:1] == ["floor"]:
            least = line.split()[2 + PYTHONS.index(THIS_PYTHON)]
            if least != "-":  # this Python has no such file
                assert least == "?" or float(
                    least) > 0, "a floor of 0.0 cannot fail, ? says that none was measured: " + line
                floors[words[1]] = 0.0 if least == "?" else float(least)
        elif words:
            versions = re.match(r"\[([\d. ]+)\] ", words[2] + " " + words[3])
            assert words[0] in ("skip", "differs") and len(words) == 4, line
            if not versions or THIS_PYTHON in versions[1].split():
                exceptions.setdefault(words[1].split(".")[0], {})[words[1].split(".", 1)[1]] = (words[0], words[2] + " "
                    + words[3])
    return floors, exceptions


def ask(mode, name, skipped=()):
    environment = dict(os.environ, **LIMITS,
                       HOOKTEST_DIR=os.path.dirname(importlib.util.find_spec("_framejit_hooktest").origin))
    for knob in ("FRAMEJIT_STRESS", "FRAMEJIT_TRACE_ALL"):
        environment.pop(knob, None)
    command = [sys.executable, os.path.join(HERE, "run_cpython_tests.py"), mode, name] + ["-" + test
        for test in skipped]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment,
                              timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        return {"died": "took longer than %d s\n%s" % (SECONDS, (late.stderr or b"")[-1500:].decode(errors="replace"))}
    if done.returncode:
        return {"died": "ended with %d\n%s" % (done.returncode, done.stderr[-2500:])}
    return json.loads(done.stdout.strip().splitlines()[-1])


def check(name, floor, listed):
    """A row of the table, and what is wrong with it."""
    skipped = [test for test, (kind, _) in listed.items() if kind == "skip"]
    report = ask("trace", name, skipped)
    if "died" in report:
        return "%-18s died" % name, ["%s %s" % (name, report["died"])], 0.0
    failed = dict(report["failed"])
    if failed:
        for test, _ in ask("plain", name, skipped)["failed"]:
            failed.pop(test, None)
    trace = report["trace"]
    share = 100 * trace["segments"] / max(1, trace["segments"] + trace["natively"])
    wrong = ["%s.%s: %s" % (name, test, text) for test, text in failed.items() if test not in listed]
    wrong += ["%s.%s is listed, and passes" % (name, test) for test, (kind, _) in listed.items() if kind == "differs"
              and test not in failed]
    if report["run"] == 0 or trace["segments"] < 100:
        wrong.append("%s: nothing was traced" % name)
    if share < floor:
        wrong.append("%s: share %.1f %% is below its floor" % (name, share))
    row = "%-18s %5d tests %3d differ %3d left out   share %5.1f %%  floor %5.1f %%" % (name, report["run"],
        len(failed), len(skipped), share, floor)
    return row, wrong, share


def with_floor(line, shares):
    """A line of the table. If it has the floors of a file, that of this Python is made anew from `shares`."""
    words = line.split()
    if words[:1] != ["floor"] or not shares.get(words[1]):
        return line
    words[2 + PYTHONS.index(THIS_PYTHON)] = "%.1f" % (0.85 * shares[words[1]])
    return "floor %-26s %4s %4s %4s\n" % tuple(words[1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--table", default=TABLE)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    floors, exceptions = read_table(arguments.table)
    names, bad, shares = arguments.names or list(floors), [], {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for name, (row, wrong, share) in zip(names,
                                             pool.map(lambda name: check(name, floors.get(name, 0),
                                                 exceptions.get(name, {})), names)):
            print(row, flush=True)
            bad += wrong
            shares[name] = share
    for line in bad:
        print(line)
    if arguments.update:
        path = os.path.join(HERE, arguments.table)
        lines = [with_floor(line, shares) for line in open(path)]
        open(path, "w").writelines(lines)
    return bool(bad)


if __name__ == "__main__":
    folder = os.environ.get("HOOKTEST_DIR")
    sys.path[:0] = [folder] if folder else []
    sys.exit(main())
