"""Passes and code generation run without the GIL: what other threads do meanwhile, to themselves and to the compile."""
import gc
import itertools
import os
import signal
import threading
import time

import pytest
import torch

import framejit
from check import fresh, same, wait_for_a_signal  # noqa: F401

NUMBERS = itertools.count(1000)  # kernels that no cache holds


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def big_function(kernels=20, tail="x"):
    """A function of this many kernels: a library's op ends each."""
    names = {"torch": torch}
    lines = [f"    x = ((x * {next(NUMBERS)}e-4).sin() + {i}).tanh()\n    x = x.sort(0).values" for i in range(kernels)]
    exec("def f(x):\n" + "\n".join(lines) + f"\n    return {tail}\n", names)
    return names["f"], names


class Watching:
    """Calls action() once, on its own thread, when the scheduled loops of a compile are logged. The GIL is free then,
    and code generation follows; if the compile `waits`, after action() has ended. Keeps the times of that event and
    of the first one after code generation."""
    def __init__(self, action=lambda: None, waits=True):
        self.action, self.waits, self.start, self.end, self.thread = action, waits, None, None, None
    def __call__(self, event):
        if event["event"] == "Refused" and self.start is None:
            self.thread = threading.Thread(target=self.action, daemon=True)
            self.thread.start()
            if self.waits:
                self.thread.join(60)
            self.start = time.perf_counter()
        elif event["event"] == "Stage" and event["fields"][
            "stage"] == "assemble" and self.start is not None and self.end is None:
            self.end = time.perf_counter()
    def __enter__(self):
        self.token = framejit._framejit.add_listener(self)
        return self
    def __exit__(self, *_):
        framejit._framejit.remove_listener(self.token)
        if self.thread:
            self.thread.join(60)
            assert not self.thread.is_alive()


def test_another_thread_runs_while_kernels_are_made():
    x, seen = torch.ones(64), []
    for _ in range(20):  # on a busy machine the other thread may have no core
        framejit.reset()
        f, _ = big_function()
        ticks, done = [], threading.Event()
        def count():
            while not done.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.0005)
        with Watching(count, waits=False) as watching:
            result = framejit.compile(f)(x)
            done.set()
        same(result, f(x))
        assert framejit.stats()["kernels"] >= 20
        inside = [t for t in ticks if watching.start < t < watching.end]
        window = watching.end - watching.start
        gaps = [b - a for a, b in zip([watching.start, *inside], [*inside, watching.end])]
        seen.append((len(inside), max(gaps), window))
        if len(inside) >= 20 and max(gaps) < 0.5 * window:
            return
    pytest.fail(str(seen))


@pytest.mark.fallbacks(compile_running=range(400))  # of the calls that came while the other thread compiled
def test_two_threads_compile_different_functions():
    x, events, finished = torch.ones(64), [], []
    functions = [big_function(6)[0] for _ in range(2)]
    barrier = threading.Barrier(2)
    def work(f):
        compiled = framejit.compile(f)
        with torch.no_grad():
            barrier.wait()
            until = time.monotonic() + 60
            while framejit.stats()["graphs"] < 2 and time.monotonic() < until:
                same(compiled(x), f(x))
                time.sleep(0.02)
            same(compiled(x), f(x))
        finished.append(f)
    token = framejit._framejit.add_listener(lambda event: events.append(event["event"]))
    threads = [threading.Thread(target=work, args=(f,), daemon=True) for f in functions]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    framejit._framejit.remove_listener(token)
    assert len(finished) == 2 and framejit.stats()["graphs"] == 2, framejit.stats()
    assert "Stage" in events


def test_a_call_of_another_thread_runs_plainly_meanwhile():
    f, _ = big_function()
    x, small, got = torch.ones(64), framejit.compile(lambda x: x.sin() + 1), []
    def call():
        with torch.no_grad():
            got.append(small(x))
    with Watching(call):
        framejit.compile(f)(x)
    same(got[0], x.sin() + 1)
    assert framejit.stats()["fallback_reasons"] == {"compile_running": 1} and framejit.stats()["graphs"] == 1
    same(small(x), x.sin() + 1)
    assert framejit.stats()["graphs"] == 2


def test_ctrl_c_of_another_thread():
    x = torch.ones(64)
    def interrupt():
        time.sleep(0.03)  # the listener has returned: the main thread runs no Python code
        os.kill(os.getpid(), signal.SIGINT)
    for _ in range(20):  # on a busy machine it may come after the compile
        framejit.reset()
        f, _ = big_function(40)
        compiled = framejit.compile(f)
        with Watching(interrupt, waits=False) as watching, pytest.raises(KeyboardInterrupt):
            compiled(x)
            watching.thread.join()
            wait_for_a_signal()
        if not framejit.stats()["graphs"]:
            break
    stats = framejit.stats()
    assert watching.start and stats["interrupted"] == 1 and stats["graphs"] == stats["graph_breaks"] == 0, stats
    same(compiled(x), f(x))
    assert framejit.stats()["graphs"] == 1


def test_reset_of_another_thread():
    f, _ = big_function()
    x, compiled = torch.ones(64), framejit.compile(f)
    for _ in range(3):
        with Watching(framejit.reset) as watching:
            same(compiled(x), f(x))
        assert watching.start and framejit.stats()["graphs"] == 1 and not framejit.stats()["fallbacks"]
        framejit.reset()
    same(compiled(x), f(x))


def test_what_is_guarded_changes_meanwhile():
    f, names = big_function(tail="x * K.k + k()")
    class K:
        k = 2
    names.update(K=K, k=lambda: 1)
    x, compiled = torch.ones(64), framejit.compile(f)
    def change():
        K.k = 3
        names["k"] = lambda: 5
    with Watching(change):
        got = compiled(x)
    same(got, f(x))
    assert (K.k, names["k"]()) == (3, 5) and framejit.stats()["fallback_reasons"] == {
        "guards_moved": 1} and framejit.stats()["graphs"] == 1
    same(compiled(x), f(x))
    assert framejit.stats()["graphs"] == 2


@pytest.mark.parametrize("set_collector", [gc.disable, gc.enable])
def test_the_collector_of_other_threads(set_collector):
    f, _ = big_function()
    seen = []
    def look():
        seen.append(gc.isenabled())
        set_collector()
    try:
        with Watching(look):
            framejit.compile(f)(torch.ones(64))
        assert seen == [True] and gc.isenabled() == (set_collector is gc.enable)
    finally:
        gc.enable()
