"""Locks of threads: compiled code holds them from before its graph until its effects are done."""
import contextlib
import threading

import pytest
import torch

import framejit
from check import check

LOCK = threading.Lock()
OTHER = threading.Lock()
AGAIN = threading.RLock()
CACHE = {}


class Cache:
    def __init__(self):
        self.lock, self.values = threading.Lock(), {}

    def get(self, name, make):
        with self.lock:
            if name not in self.values:
                self.values[name] = make()
            return self.values[name]


@contextlib.contextmanager
def locked():
    with LOCK:
        yield


def with_statement(x):
    with LOCK:
        y = x * 2
    return y + 1


def acquired_and_released(x):
    LOCK.acquire()
    try:
        return x * 2
    finally:
        LOCK.release()


def two_and_one_twice(x):
    with LOCK, OTHER:
        x = x + 1
    with LOCK:
        return x * 2


def reentrant(x):
    with AGAIN:
        with AGAIN:
            return x * 2


def in_a_context_manager(x):
    with locked():
        return x * 2


def an_object_with_a_lock(x):
    cache = Cache.shared
    return cache.get("a", lambda: 3) * x + cache.get("a", lambda: 4)


Cache.shared = Cache()


def an_error_under_it(x):
    try:
        with LOCK:
            raise ValueError("caught")
    except ValueError:
        return x * 2


@pytest.mark.parametrize("program", [with_statement, acquired_and_released, two_and_one_twice, reentrant,
                                     in_a_context_manager, an_object_with_a_lock, an_error_under_it],
                         ids=lambda f: f.__name__)
def test_whole(program):
    check(program, torch.randn(4), breaks=0)
    assert not LOCK.locked() and not OTHER.locked() and not Cache.shared.lock.locked()


@pytest.mark.breaks(outside_effect=1, unsupported_key=2)
def test_it_is_held_while_the_graph_runs_and_the_effects_are_done():
    seen = []

    class Noting:
        def __eq__(self, other):
            return self is other

        def __hash__(self):
            seen.append(LOCK.locked())
            return 1

    key, x = Noting(), torch.randn(4)

    def f(x):
        with LOCK:
            CACHE[key] = x * 2
        return x + 1

    compiled = framejit.compile(f)
    for _ in range(2):
        assert torch.equal(compiled(x), x + 1)
    assert seen and all(seen) and not LOCK.locked()
    assert torch.equal(CACHE[key], x * 2)


def test_plain_python_waits_for_who_holds_it():
    compiled, x = framejit.compile(with_statement), torch.randn(4)
    assert torch.equal(compiled(x), x * 2 + 1)
    got, held, done = [], threading.Event(), threading.Event()

    def other():
        with LOCK:
            held.set()
            done.wait(60)

    holder, caller = threading.Thread(target=other), threading.Thread(target=lambda: got.append(compiled(x)))
    holder.start()
    assert held.wait(60)
    caller.start()
    while framejit.stats()["fallbacks"] == 0:
        caller.join(0.01)
    assert not got
    done.set()
    holder.join(60), caller.join(60)
    assert torch.equal(got[0], x * 2 + 1)
    assert framejit.stats()["fallback_reasons"] == {"lock_taken": 1}


def breaks_under_it(x):
    with LOCK:
        y = x * 2
        print(end="")
        z = y + LOCK.locked()
    return z


def keeps_it(x):
    LOCK.acquire()
    return x * 2


def gives_it_back(x):
    y = x * 2
    LOCK.release()
    return y + 1


def test_a_break_under_it_finds_it_taken():
    check(breaks_under_it, torch.randn(4), compiles=2, breaks=4)
    assert not LOCK.locked()


@pytest.mark.breaks(escaped_traced=1, outside_effect=1)
def test_one_function_takes_it_and_another_gives_it_back():
    x, take, give = torch.randn(4), framejit.compile(keeps_it), framejit.compile(gives_it_back)
    for _ in range(3):
        assert torch.equal(take(x), x * 2) and LOCK.locked()
        assert torch.equal(give(x), x * 2 + 1) and not LOCK.locked()


@pytest.mark.fallbacks(lock_taken=range(800))  # of the calls that came while another thread held it
def test_many_threads_count_under_it():
    counts = {"calls": 0}

    def f(x):
        with LOCK:
            counts["calls"] = counts["calls"] + 1
        return x + 1

    compiled, x = framejit.compile(f), torch.randn(4)
    for _ in range(3):
        compiled(x)
    threads = [threading.Thread(target=lambda: [compiled(x) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counts["calls"] == 803
