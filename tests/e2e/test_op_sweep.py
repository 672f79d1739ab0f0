"""The op sweep's floor: the first float32 sample of each op of torch's op_db, in worker processes, on the eager backend."""
import os
import subprocess
import sys

import op_sweep


def sweep(*options):
    command = [sys.executable, os.path.abspath(op_sweep.__file__), "--first", *options]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_first_samples():
    done = sweep("--backend", "eager", "--dtype", "float32", "--at-least", "90")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_a_break_without_a_reason_fails():
    """The report itself: unexpected breaks, crashes, differences and too few whole captures are failures."""
    def status(rows, at_least=0.0, known=()):
        return op_sweep.bad_rows(rows, set(known)), op_sweep.share_whole(rows) >= at_least

    whole = {"dtype": "float32", "op": "add", "sample": 0, "status": "whole"}
    broken = {"dtype": "float32", "op": "sub", "sample": 0, "status": "break", "why": "unknown_callable"}
    assert status([whole, broken]) == ([broken], True)
    assert status([whole, broken], known=[("sub", "unknown_callable")]) == ([], True)
    assert status([whole, broken], at_least=90.0, known=[("*", "unknown_callable")]) == ([], False)
    both = {**broken, "why": "unknown_callable,unsupported_op"}
    assert status([both], known=[("sub", "unknown_callable")]) == ([both], True)
    for bad in ("crash", "differs", "fallback", "not traced"):
        row = {**whole, "status": bad}
        assert status([row])[0] == [row]
    assert op_sweep.share_whole([whole, {**whole, "status": "raises"}]) == 100.0
    assert op_sweep.share_whole([{**whole, "status": "raises"}]) == 0.0
