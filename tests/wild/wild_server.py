"""Runs the programs of one package, each in a separate process with a timeout: a crash or a hang is a record like any
other.

The package is imported once, and processes are forked from there. A record is one line of the journal; programs that
the journal has do not run again.
"""
import ctypes
import importlib
import json
import os
import select
import signal
import sys
import time
import warnings

import torch

from wild_program import MODES, TRAINING, PassedOver, eager, eager_of_larger, first_line, measured, training

PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def end_with_the_parent():
    """If a child is killed, the children that it forked die too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def answer_of(body, seconds):
    """What `body` returns in a child: its record, or that it died or took too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        end_with_the_parent()
        os.close(reading)
        code = 1
        try:
            record = body()
            os.write(writing, json.dumps(record).encode())
            code = 0
        except BaseException as e:  # the parent reports it
            os.write(writing, json.dumps({"verdict": "wrong",
                                          "detail": f"the run itself raises {first_line(e)}"}).encode())
        finally:
            os._exit(code)
    os.close(writing)
    said, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([reading], [], [], max(until - time.monotonic(), 0))[0]:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            said += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if said:
        return json.loads(said)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return {"verdict": "timeout", "detail": f"longer than {seconds} s"}
    return {"verdict": "died", "detail": f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status)
            else f"status {status}"}


def records_of(package, name, seconds, modes=MODES):
    """One record for each mode; the program and eager's results are made once for inference and once for training, in a
    child that forks one child for each mode."""
    def of(prepare, modes):
        def records():
            try:
                program = prepare(package.make(name))
                want, others = eager(program), eager_of_larger(program)
            except Exception as e:
                return [{"verdict": "passed over", "detail": str(e) if isinstance(e, PassedOver) else first_line(e)}]
            return [{"mode": mode, **answer_of(lambda: measured(program, want, mode, others), seconds)}
                    for mode in modes]
        found = answer_of(records, (len(modes) + 1) * seconds)
        # It died before any mode began, so in eager.
        return [{**found, "verdict": "passed over"}] if isinstance(found, dict) else found
    plain = [mode for mode in modes if mode != TRAINING]
    found = of(lambda program: program, plain) if plain else []
    if TRAINING in modes and not (found and found[0]["verdict"] == "passed over"):
        found += [{"mode": TRAINING, **record} for record in of(training, [TRAINING])]
    return found


def serve(package_name, seed, names, count, seconds, journal, modes=MODES):
    """Runs names until `count` of them showed something."""
    warnings.simplefilter("ignore")
    # Read when framejit is imported; the mode begins when enable_global() is called. The comparison is not part of the
    # program.
    os.environ.update(FRAMEJIT="1", FRAMEJIT_SKIP="^(check|wide|wild_\\w+):")
    torch.set_num_threads(1)  # no thread pool before a fork
    package = importlib.import_module(f"{package_name}_programs")
    quiet = os.open(os.devnull, os.O_WRONLY)
    said = os.dup(1)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    shown = 0
    for name in names:
        if shown >= count:
            break
        records = records_of(package, name, seconds, modes)
        shown += records[0]["verdict"] != "passed over"
        with open(journal, "a") as file:
            for record in records:
                file.write(json.dumps({"package": package_name, "seed": seed, "name": name, **record}) + "\n")
        line = ", ".join(f"{r.get('mode', '')} {r['verdict']} {r.get('detail', '')}".strip() for r in records)
        os.write(said, f"{package_name} {name}: {line}\n".encode())


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    serve(**options)
