"""What other code sees of a frame that runs natively, what remains of it, and how many references and how much stack it
takes."""
import gc
import inspect
import signal
import sys
import threading
import time
import traceback
import tracemalloc
import warnings
import weakref

import pytest

VERSION = sys.version_info[:2]


def unit_of(hook, function, op, nth=0, **fields):
    rows = [r for r in hook.decode(function) if r["op"] == op and all(r[k] == v for k, v in fields.items())]
    return rows[nth]["index"]


def test_getframe_lines_and_locals(hook):
    seen = []

    def look():
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_lineno, dict(frame.f_locals), frame.f_back.f_code.co_name))
        return 1

    def f(a):
        b = a + 1
        look(); c = look()
        return b + c

    def outer():
        return f(1)

    plain = outer(), seen[:]
    seen.clear()
    for function in (f, outer, look):
        hook.mark(function, hook.RUN)
    assert (outer(), seen) == plain
    assert hook.stats()["hand_overs"] == 0


def test_traceback_text_with_carets(hook):
    def inner(x):
        return {"a": 1}["a"] + x["missing"]["deeper"]

    def f(x):
        y = [inner(x), 2]
        return y

    def text():
        try:
            f({"missing": {}})
        except KeyError:
            return traceback.format_exc()

    plain = text()
    hook.mark(f, hook.RUN)
    hook.mark(inner, hook.STEP)
    assert text() == plain and "deeper" in plain


def test_warning_points_at_the_user(hook):
    def warn():
        warnings.warn("careful", stacklevel=2)

    def f():
        x = 1
        warn()
        return x

    hook.mark(f, hook.RUN)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f()
    assert caught[0].lineno == f.__code__.co_firstlineno + 2


def test_inspect_stack(hook):
    def f():
        here = inspect.stack()
        return [entry.function for entry in here[:2]], here[0].lineno

    hook.mark(f, hook.RUN)
    assert f() == (["f", "test_inspect_stack"], f.__code__.co_firstlineno + 1)


def test_other_threads_see_the_frame(hook):
    started, stop = threading.Event(), threading.Event()

    def f():
        marker = "here"
        started.set()
        while not stop.is_set():
            time.sleep(0.001)
        return marker

    hook.mark(f, hook.RUN)
    thread = threading.Thread(target=f)
    thread.start()
    assert started.wait(10)
    for _ in range(100):
        frame = sys._current_frames()[thread.ident]
        while frame is not None and frame.f_code is not f.__code__:
            frame = frame.f_back
        if frame is not None:
            break
    assert frame.f_locals["marker"] == "here"
    del frame
    stop.set()
    thread.join()


def test_frame_object_outlives_the_frame(hook):
    kept = []

    def f(a):
        b = a * 2
        kept.append(sys._getframe())
        return b

    def caller():
        return f(21)

    hook.mark(f, hook.RUN)
    hook.mark(caller, hook.RUN)
    assert caller() == 42
    assert hook.stats()["returns"] == 2
    gc.collect()
    frame = kept.pop()
    assert frame.f_locals["b"] == 42 and frame.f_back.f_code is caller.__code__
    frame.clear()


def test_locals_written_through_f_locals(hook):
    """3.13: a callee may change a local of the running frame."""
    def change():
        sys._getframe(1).f_locals["x"] = 99

    def f():
        x = 1
        change()
        return x

    plain = f()
    hook.mark(f, hook.RUN)
    assert f() == plain == (99 if VERSION >= (3, 13) else 1)


class Thing:
    pass


@pytest.mark.parametrize("mode", ["RUN", "STEP", "GIVE"])
def test_calls_leak_nothing(hook, mode):
    def f(a, b, *args, k=None, **kw):
        x = [a]
        try:
            raise ValueError(b)
        except ValueError as error:
            y = error.args
        return x

    value = object()
    hook.mark(f, getattr(hook, mode), value)
    objects = [Thing() for _ in range(3)]
    references = [weakref.ref(o) for o in objects]
    watched = objects + [value, f, f.__code__]
    for _ in range(100):
        f(*objects, 1, k=objects[0], z=objects[1])
    gc.collect()
    counts = [sys.getrefcount(o) for o in watched]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20000):
        f(*objects, 1, k=objects[0], z=objects[1])
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert [sys.getrefcount(o) for o in watched] == counts
    assert abs(after - before) < 4000
    del objects, watched
    gc.collect()
    assert all(r() is None for r in references)


def test_recursion_limit_and_stack(hook):
    def r(n):
        return 0 if n == 0 else 1 + r(n - 1)

    hook.mark(r, hook.RUN)
    for _ in range(3):
        assert r(300) == 300
        with pytest.raises(RecursionError):
            r(100000)
    assert r(10) == 10


def test_deep_recursion_survives_a_high_limit(hook):
    """Near the end of the C stack, or of CPython's own C recursion limit, the standing hook steps aside."""
    def r(n):
        return 0 if n == 0 else 1 + r(n - 1)

    hook.mark(r, hook.RUN)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200000)
    try:
        assert r(100000) == 100000
    finally:
        sys.setrecursionlimit(limit)
    assert hook.on_top()


def test_replace_writes_locals_and_stack(hook):
    def f(a, b):
        c = 0
        for i in range(3):
            c += a * b
        return c, i

    def unit(op, nth=0):
        return unit_of(hook, f, op, nth)

    slots = {f.__code__.co_varnames.index(n): v for n, v in (("a", 10), ("b", 2), ("c", 100), ("i", None))}
    hook.mark(f, hook.REPLACE, (unit("for_iter"), slots, [iter([7, 8])]), budget=0)
    assert f(0, 0) == (140, 8)
    hook.mark(f, hook.REPLACE, (unit("for_iter"), slots, [iter([7, 8])]))
    assert f(0, 0) == (140, 8)


def test_replace_drops_what_was_there(hook):
    log = []

    class Loud:
        def __del__(self):
            log.append(sys._getframe(1).f_locals.get("a"))

    def f(a):
        return a

    hook.mark(f, hook.REPLACE, (0, {0: "new"}, []))
    assert f(Loud()) == "new"
    assert log == ["new"] or log == [None]  # before RESUME the frame is not visible


def test_stack_holds_after_gc(hook):
    def f():
        xs = [[] for _ in range(3)]
        xs.append(xs)
        return len([gc.collect(), xs, gc.collect()][1])

    hook.mark(f, hook.RUN)
    assert f() == 4


def test_signals_are_delivered(hook):
    hits, finished = [], []
    old = signal.signal(signal.SIGALRM, lambda *args: hits.append(1))

    def spin():
        end = time.monotonic() + 5
        n = 0
        while not hits and time.monotonic() < end:
            n += 1
        return n

    def spin_without_calls():
        n = 0
        while n < 10**8:
            n += 1
        finished.append(n)

    class Out(Exception):
        pass

    def out(*args):
        raise Out

    hook.mark(spin, hook.RUN)
    hook.mark(spin_without_calls, hook.RUN)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert spin() > 0 and hits == [1]
        signal.signal(signal.SIGALRM, out)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Out):
            spin_without_calls()
        assert finished == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_the_gil_is_dropped(hook):
    done = threading.Event()

    def spin():
        n = 0
        while not done.is_set() and n < 10**8:
            n += 1
        return n

    hook.mark(spin, hook.RUN)
    threading.Timer(0.02, done.set).start()
    assert spin() < 10**8


@pytest.mark.parametrize("switch", ["settrace", "setprofile"])
def test_tracing_switched_on_by_a_callee(hook, switch):
    events = []

    def tracer(frame, event, arg):
        if frame.f_code is f.__code__:
            events.append((event, frame.f_lineno - f.__code__.co_firstlineno))
        return tracer

    def on():
        getattr(sys, switch)(tracer)
        sys._getframe(1).f_trace = tracer

    def f():
        a = 1
        on()
        b = abs(2)
        return a + b

    def run():
        events.clear()
        try:
            return f(), list(events)
        finally:
            getattr(sys, switch)(None)

    plain = run()
    hook.mark(f, hook.RUN)
    hook.stats()
    assert run() == plain and plain[1]
    assert hook.stats()["hand_overs"] >= 1


def test_traced_frames_pass_through(hook):
    lines = []

    def f():
        x = 1
        return x

    def tracer(frame, event, arg):
        if frame.f_code is f.__code__:
            lines.append(event)
        return tracer

    hook.mark(f, hook.RUN)
    sys.settrace(tracer)
    f()
    sys.settrace(None)
    assert lines == ["call", "line", "line", "return"]


def test_exception_state_is_restored(hook):
    def f():
        try:
            raise KeyError("inner")
        except KeyError:
            return sys.exc_info()[0]

    hook.mark(f, hook.RUN)
    try:
        raise ValueError("outer")
    except ValueError:
        assert f() is KeyError
        assert sys.exc_info()[0] is ValueError
    assert sys.exc_info() == (None, None, None)


def test_generator_states(hook):
    def g():
        x = yield 1
        try:
            yield x
        finally:
            closed.append(1)

    closed = []
    hook.mark(g, hook.RUN)
    gen = g()
    assert inspect.getgeneratorstate(gen) == "GEN_CREATED"
    assert next(gen) == 1 and gen.send("s") == "s"
    assert inspect.getgeneratorstate(gen) == "GEN_SUSPENDED" and gen.gi_frame.f_locals["x"] == "s"
    gen.close()
    assert inspect.getgeneratorstate(gen) == "GEN_CLOSED" and closed == [1]
    assert hook.stats()["yields"] == 2
    it = g()
    next(it)
    assert list(it) == [None]
    with pytest.raises(StopIteration):
        next(it)


def test_generator_exception_state(hook):
    def g():
        try:
            raise KeyError("mine")
        except KeyError:
            yield sys.exc_info()[0]
            yield sys.exc_info()[0]

    hook.mark(g, hook.RUN)
    gen = g()
    assert next(gen) is KeyError and sys.exc_info()[0] is None
    try:
        raise ValueError
    except ValueError:
        assert next(gen) is KeyError
        assert sys.exc_info()[0] is ValueError


def test_generator_that_has_handled_shows_the_outer_exception(hook):
    def g():
        try:
            raise KeyError
        except KeyError:
            pass
        yield sys.exc_info()[0]

    hook.mark(g, hook.RUN)
    try:
        raise ValueError
    except ValueError:
        assert next(g()) is ValueError


def test_threads(hook):
    def work(n):
        total = 0
        for i in range(n):
            total += len([j for j in range(i % 7)])
        return total

    expected = work(3000)
    hook.mark(work, hook.RUN)
    results = []
    threads = [threading.Thread(target=lambda: results.append(work(3000))) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sys.setswitchinterval(interval)
    assert results == [expected] * 4
