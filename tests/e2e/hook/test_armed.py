"""Armed calls without a standing hook, calls into a fresh frame, and the lifetime of per-code records."""
import copy
import gc
import inspect
import sys
import threading
import weakref

import pytest


def test_only_the_armed_call_is_taken(ht):
    def helper(x):
        return x + 1

    def f(x):
        return helper(x) * 2

    ht.mark(f, ht.RUN)
    ht.mark(helper, ht.COUNT)
    armed = ht.armed(f, {"o": 1})
    ht.stats()
    assert armed(1) == 4 and armed(x=2) == 6
    assert ht.counts(f)[0] == 2 and ht.counts(helper)[0] == 0
    assert f(1) == 4 and ht.counts(f)[0] == 2
    assert ht.last_options() == {"o": 1} and not ht.on_top()


def test_wrong_arguments_disarm(ht):
    def f(a):
        return a

    def other():
        return 5

    ht.mark(f, ht.RUN)
    armed = ht.armed(f)
    for _ in range(3):
        with pytest.raises(TypeError):
            armed()
    assert f(1) == 1 and other() == 5 and ht.counts(f)[0] == 0
    assert armed(3) == 3 and ht.counts(f)[0] == 1


def test_python_code_during_binding(ht):
    """Keyword binding compares keys of a str subclass with Python code: the hook passes that frame on, and the call
    stays armed."""
    class Name(str):
        def __eq__(self, other):
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def f(value=0):
        return value

    ht.mark(f, ht.RUN)
    armed = ht.armed(f)
    assert armed(**{Name("value"): 7}) == 7
    assert ht.counts(f)[0] == 1


def test_nested_and_recursive(ht):
    def inner(n):
        return n * 10

    inner_armed = ht.armed(inner)

    def f(n):
        return inner_armed(n) + (armed(n - 1) if n else 0)

    ht.mark(f, ht.RUN)
    ht.mark(inner, ht.RUN)
    armed = ht.armed(f)
    assert armed(3) == 60
    assert ht.counts(f)[0] == 4 and ht.counts(inner)[0] == 4


def test_binds_as_a_method(ht):
    class Model:
        def __init__(self):
            self.k = 3

        def forward(self, x):
            return self.k * x

    plain = Model.forward
    ht.mark(plain, ht.RUN)
    Model.forward = ht.armed(plain)
    model = Model()
    for _ in range(200):
        assert model.forward(2) == 6
    assert ht.counts(plain)[0] == 200
    assert Model.forward.function is plain and inspect.ismethod(model.forward)
    bound = ht.armed(Model().__class__.__dict__["forward"].function.__get__(model))
    assert bound(5) == 15 and ht.counts(plain)[0] == 201


def test_object_protocol(ht):
    def f():
        return 1

    armed = ht.armed(f)
    armed.__name__ = "f"
    assert armed.__dict__ == {"__name__": "f"} and "f" in repr(armed)
    assert weakref.ref(armed)() is armed
    armed.me = armed
    reference = weakref.ref(armed)
    del armed
    gc.collect()
    assert reference() is None
    with pytest.raises(TypeError):
        ht.armed(len)
    with pytest.raises(TypeError):
        ht.armed(3)


def test_generator_function_is_left_alone(ht):
    def g():
        yield 1
        yield 2

    ht.mark(g, ht.GIVE, "never")
    assert list(ht.armed(g)()) == [1, 2]


def test_new_code_is_followed(ht):
    def f():
        return 1

    def g():
        return 2

    armed = ht.armed(f)
    assert armed() == 1
    f.__code__ = g.__code__
    ht.mark(f, ht.RUN)
    assert armed() == 2 and ht.counts(g)[0] == 1


def test_under_a_standing_hook(ht):
    def f(x):
        return x

    ht.mark(f, ht.RUN)
    armed = ht.armed(f)
    ht.install()
    assert armed(1) == 1 and ht.counts(f)[0] == 1 and ht.on_top()
    assert f(2) == 2 and ht.counts(f)[0] == 2


def test_threads_arm_at_once(ht):
    def f(n):
        return n if n == 0 else armed(n - 1) + 1

    ht.mark(f, ht.RUN)
    armed = ht.armed(f)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    results = []
    threads = [threading.Thread(target=lambda: results.extend(armed(20) for _ in range(50))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sys.setswitchinterval(interval)
    assert results == [20] * 200 and ht.counts(f)[0] == 200 * 21


def test_armed_calls_leak_nothing(ht):
    def f(a, *, k):
        return [a, k]

    ht.mark(f, ht.RUN)
    armed = ht.armed(f, "options")
    a = object()
    armed(a, k=a)
    counts = [sys.getrefcount(o) for o in (a, f, f.__code__, armed)]
    for _ in range(20000):
        armed(a, k=a)
    assert [sys.getrefcount(o) for o in (a, f, f.__code__, armed)] == counts


# ---- calls into a fresh frame


def make_callee():
    offset = 100

    def callee(a, b=2, /, c=3, *rest, k, m=5, **more):
        total = a + k
        for i in range(c):
            total += i
            total += offset
        return total, sys._getframe(1).f_code.co_name, sorted(sys._getframe().f_locals)

    return callee


@pytest.mark.parametrize("budget", [0, 1, 3, 7, -1])
def test_call_into_resumes_in_the_middle(ht, budget):
    callee = make_callee()
    rows = ht.decode(callee)
    loop = next(r["index"] for r in rows if r["op"] == "for_iter")
    values = {"a": 1, "k": 1, "c": 3, "total": 7, "offset": callee.__closure__[0]}
    result = ht.call_into(callee, values, [iter([5, 6])], loop, budget)
    assert result == (7 + 5 + 6 + 200, "test_call_into_resumes_in_the_middle", ["a", "c", "i", "k", "offset", "total"])


def test_call_into_raises_with_a_traceback(ht):
    def callee(x):
        y = 1
        return y / x

    unit = next(r["index"] for r in ht.decode(callee) if r["op"] == "binary_op")
    with pytest.raises(ZeroDivisionError) as caught:
        ht.call_into(callee, {"x": 0, "y": 1}, [1, 0], unit)
    entry = caught.traceback[-1]
    assert entry.frame.code.name == "callee" and entry.lineno == callee.__code__.co_firstlineno + 1


def test_call_into_leaks_nothing(ht):
    callee = make_callee()
    loop = next(r["index"] for r in ht.decode(callee) if r["op"] == "for_iter")
    token = object()

    def once():
        ht.call_into(callee, {"a": 1, "k": 1, "total": 7, "c": token, "offset": callee.__closure__[0]}, [iter([5])],
                     loop)

    once()
    counts = [sys.getrefcount(o) for o in (token, callee, callee.__code__, callee.__closure__[0], None)]
    for _ in range(1000):
        once()
    after = [sys.getrefcount(o) for o in (token, callee, callee.__code__, callee.__closure__[0], None)]
    assert after[:4] == counts[:4] and abs(after[4] - counts[4]) < 100


# ---- records


def test_records_die_with_their_code(ht):
    gc.collect()
    before = ht.state_count()
    scope = {}
    exec("def f(): return 1", scope)
    ht.mark(scope["f"], ht.RUN)
    assert ht.state_count() == before + 1
    assert ht.counts(scope["f"].__code__.replace(co_name="g"))[0] == -1
    scope.clear()
    gc.collect()
    assert ht.state_count() == before


def test_reset_drops_marks(ht):
    def f():
        return 1

    ht.mark(f, ht.RUN)
    ht.reset()
    assert ht.counts(f)[0] == -1


def test_reset_during_a_call(ht):
    def f(n):
        ht.reset()
        ht.mark(f, ht.RUN)
        return n + 1

    ht.mark(f, ht.RUN, stop_at=ht.decode(f)[-1]["index"])
    armed = ht.armed(f)
    for n in range(20):
        assert armed(n) == n + 1
