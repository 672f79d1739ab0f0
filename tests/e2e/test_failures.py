"""Failures in a compile or in compiled code: plain Python runs, the log says why, and nothing of the compile is
kept."""
import itertools
import json
import os
import textwrap

import pytest
import torch

import framejit
import levels
import programs
from check import assert_flat, fresh, same  # noqa: F401

NUMBERS = itertools.count(5000)  # kernels that no cache holds


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def run(program, **environment):
    """The last line that a separate process prints, and its log. JIT: the settings; results are compared with plain
    PyTorch."""
    out = programs.run(textwrap.dedent(program), env={**os.environ, "FRAMEJIT_LOGS": "graph_breaks", **environment})
    assert out.returncode == 0, out.stderr[-3000:]
    return json.loads(out.stdout.splitlines()[-1]), out.stderr


def flat(calls):
    """Checks resident memory over two hundred of them; the first fifty fill pools and caches. Returns how many there
    were."""
    def run(count):
        for _ in range(count):
            next(calls)
    run(50)
    return 50 + 200 * assert_flat(lambda: run(200), 2500)


REFUSED = """
    import gc, json, torch, framejit
    def resident():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * 4
    def call(k):
        names = {}
        exec(f"def f(x, y):\\n    x += 1\\n    return (x * {k}).sin() + y", names)
        compiled, x, plain, y = framejit.compile(names["f"]), torch.ones(9), torch.ones(9), torch.ones(1)
        right = torch.equal(compiled(x, y), names["f"](plain, y)) and torch.equal(x, plain)
        return right and torch.equal(compiled(x, y), names["f"](plain, y)) and torch.equal(x, plain)
    with torch.no_grad():
        right = [call(k) for k in range(50)]
        stats, grown = framejit.stats(), []
        while len(grown) < 4 and (not grown or grown[-1] >= 2500):  # the heap may settle once or twice
            before = resident()
            right += [call(k) for k in range(len(right), len(right) + 200)]
            grown.append(resident() - before)
        print(json.dumps({**stats, "right": all(right), "grown": grown, "functions": len(right)}))
"""


@pytest.mark.nothing_captured
@pytest.mark.skipif(levels.has("avx512"), reason="not tested: this CPU refuses no setting of vector registers")
def test_kernels_that_are_refused():
    got, log = run(REFUSED, FRAMEJIT_CPU_FEATURES="avx512", FRAMEJIT_STRICT="0")
    # Each function is compiled once: the second call uses the plain entry of the first.
    assert got["right"] and got["graphs"] == 0 and got["fallback_reasons"] == {"kernel_refused": 100} and got[
        "plain_hits"] == 0 and not got["graph_breaks"], got
    said = "plain run kernel_refused: this CPU lacks the requested vector registers"
    assert log.count(said) == log.count("plain run kernel_refused: as before") == got["functions"], log[:3000]
    assert log.count("warnings] ") == 1, log[:3000]
    assert got["grown"][-1] < 2500, got


LIMITS = """
    import json, resource, torch, framejit
    MIB = 1 << 20
    def limit(mib):
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + mib * MIB if mib else resource.RLIM_INFINITY,
            resource.RLIM_INFINITY))
    def outcome(f, x, log):
        try:
            return f(x, log).sum().item()
        except (RuntimeError, MemoryError) as e:
            return [type(e).__name__, str(e).splitlines()[0][:60]]
    torch.set_num_threads(1)
    torch.ones(1 << 20).sum()
"""

NO_MEMORY_IN_A_CALL = LIMITS + """
    def f(x, log):
        log += 1
        y = (x + 1).sort(0).values
        return (y * 2).sort(0).values * 3
    compiled, small, log, plain = framejit.compile(f, dynamic=True), torch.ones(1000), torch.zeros(3), torch.zeros(3)
    with torch.no_grad():
        compiled(small, log), f(small, plain)
        x = torch.ones(32 * MIB // 4)
        limit({mib})
        got, want = outcome(compiled, x, log), outcome(f, x, plain)
        limited = framejit.stats()
        limit(0)
        again, wanted_again = outcome(compiled, x, log), outcome(f, x, plain)
        print(json.dumps(dict(got=got, want=want, same=torch.equal(log, plain), limited=limited,
            again=again == wanted_again, stats=framejit.stats())))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mib", [8, 48, 112, 220])
@pytest.mark.nothing_captured
def test_no_memory_in_a_call(mib):
    got, log = run(NO_MEMORY_IN_A_CALL.replace("{mib}", str(mib)))
    # The result, of compiled code or of plain Python after it, or eager's own error; and everything is written once.
    assert got["got"] in (32 * 2**20 / 4 * 12, got["want"]) and got["same"] and got["again"], got
    failed = got["limited"]["fallback_reasons"].get("run_failed", 0)
    assert failed == (mib < 200) and got["stats"]["hits"] == 2 - failed and got["stats"]["graphs"] == 1, got
    assert ("plain run run_failed: " in log) == (failed > 0), log


NO_MEMORY_IN_A_COMPILE = LIMITS + """
    def f(x, log):
        log += 1
        return (x * 3).sin() + log
    compiled, x, log, plain = framejit.compile(f), torch.ones(3), torch.zeros(3), torch.zeros(3)
    with torch.no_grad():
        if {warm}:
            framejit.compile(lambda x: x.exp() + 2)(x)
        framejit.reset()
        limit(16)
        first = outcome(compiled, x, log) == outcome(f, x, plain)
        limited = framejit.stats()
        limit(0)
        rest = [outcome(compiled, x, log) == outcome(f, x, plain) for _ in range(2)]
        print(json.dumps(dict(right=[first, *rest], same=torch.equal(log, plain), limited=limited,
            stats=framejit.stats())))
"""


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.nothing_captured
def test_no_memory_in_a_compile(warm):
    got, log = run(NO_MEMORY_IN_A_COMPILE.replace("{warm}", str(warm)))
    assert got["right"] == [True] * 3 and got["same"], got
    assert got["limited"]["graphs"] == 0 and got["limited"]["break_reasons"] == {"no_memory": 1} and not got["limited"][
        "fallbacks"], got
    assert got["stats"]["graphs"] == 1 and got["stats"]["hits"] == 1, got  # a later call tries again
    assert "break no_memory: there is no memory for code generation" in log


def test_failed_calls_leave_memory_flat():
    compiled, x, good, bad = framejit.compile(lambda x, i: x[i] + 1), torch.ones(1000), torch.tensor([1]), torch.tensor(
        [1000])
    same(compiled(x, good), x[good] + 1)

    def calls():
        while True:
            with pytest.raises(IndexError, match="out of bounds"):
                compiled(x, bad)
            yield
    count = flat(calls())
    assert framejit.stats()["fallback_reasons"] == {"kernel_check": count} and framejit.stats()["graphs"] == 1


class Stop(BaseException):
    pass


@pytest.mark.nothing_captured
@pytest.mark.parametrize("stage", ["AtenGraph", "Refused", "Steps"])
def test_cancelled_compiles_leave_memory_flat(stage):
    """A listener is Python code that runs during the compile: an exception from it ends the compile, like one from the
    Ctrl-C handler."""
    def stop(event):
        if event["event"] == stage:
            raise Stop

    def calls():
        x = torch.ones(9)
        while True:
            names = {}
            exec(f"def f(x):\n    return (x * {next(NUMBERS)}).sin().sort(0).values + 1", names)
            with pytest.raises(Stop):
                framejit.compile(names["f"])(x)
            yield
    token = framejit._framejit.add_listener(stop)
    try:
        flat(calls())
    finally:
        framejit._framejit.remove_listener(token)
    stats = framejit.stats()
    assert stats["interrupted"] and stats["graphs"] == stats["graph_breaks"] == stats["fallbacks"] == 0


CTRL_C = """
    import json, os, signal, threading, time, torch, framejit
    def f(x, log):
        log += 1
        for _ in range(30):
            x = (x @ x).tanh()
        log *= 2
        return x
    compiled, x, log, plain = framejit.compile(f), torch.randn(700, 700) / 30, torch.zeros(3), torch.zeros(3)
    with torch.no_grad():
        want = f(x, plain)
        compiled(x, log)
        start = time.perf_counter()
        compiled(x, log)
        whole = time.perf_counter() - start  # some hundreds of milliseconds
        seen = []
        while len(seen) < 20 and (not seen or seen[-1] != "inside"):  # on a busy machine it may come at any time
            log.zero_()
            before, returned = framejit.stats()["hits"], False
            timer = threading.Timer(whole / 3, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                compiled(x, log)
                returned = True
                timer.join()
                for _ in range(1000):
                    time.sleep(0.001)
                seen.append("never")
            except KeyboardInterrupt:
                ran = framejit.stats()["hits"] > before
                seen.append("after" if returned else "inside" if ran else "before")
            timer.join()
            assert torch.equal(log, plain if seen[-1] != "before" else torch.zeros(3)), (seen, log)
        right = torch.allclose(compiled(x, log), want, atol=1e-5)
        print(json.dumps(dict(seen=seen, right=right, stats=framejit.stats())))
"""


@pytest.mark.nothing_captured
def test_ctrl_c_while_a_plan_runs():
    """It is raised after the running segment, whose writes are all done."""
    got, _ = run(CTRL_C)
    assert got["seen"][-1] == "inside" and "never" not in got["seen"], got
    assert got["right"] and got["stats"]["graphs"] == 1 and not got["stats"]["fallbacks"], got


def test_a_tensor_that_torch_makes_of_memory_that_a_traced_one_has_not():
    from torch._C._dynamo.guards import _reinterpret_tensor

    def f(x):
        return _reinterpret_tensor(x * 2, (4, 3), (3, 1), 0) + 1

    compiled = framejit.compile(f)
    x = torch.randn(3, 4)
    for _ in range(2):
        same(compiled(x), f(x))
    stats = framejit.stats()
    assert not stats["fallbacks"] and stats["break_reasons"] == {"unsupported_op": 1}, stats


def test_a_function_of_torch_that_asks_for_sizes_as_numbers():
    from torch._C._dynamo.guards import assert_size_stride

    def f(x):
        y = x * 2
        assert_size_stride(y, (y.shape[0], 4), (4, 1))
        return y + 1

    compiled = framejit.compile(f, dynamic=True)
    for n in (3, 5, 5):
        x = torch.randn(n, 4)
        same(compiled(x), f(x))
    stats = framejit.stats()
    assert stats["graphs"] == 2 and stats["hits"] == 1 and not stats["graph_breaks"] and not stats["fallbacks"], stats


@pytest.mark.parametrize("n", [2**62 + 2**60, 2**60 + 1, 2**63 - 1])
def test_results_larger_than_any_memory(n):
    def f(x, n):
        return x.expand(n) + 1

    compiled, x = framejit.compile(f), torch.ones(1, dtype=torch.uint8)
    for small in (3, 4):
        same(compiled(x, small), f(x, small))
    with pytest.raises(RuntimeError) as want:
        f(x, n)
    with pytest.raises(RuntimeError) as got:
        compiled(x, n)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]
    stats = framejit.stats()
    assert stats["graphs"] == 2 and stats["fallback_reasons"] == {"run_failed": 1} and not stats["graph_breaks"], stats
