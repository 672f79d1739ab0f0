"""Points of the contract, a test class for each: instances, lifetime, sizes, guard literals, modes, threads,
aliasing."""
import gc
import sys
import threading
import weakref

import pytest
import torch

import framejit
from check import check, fresh, same  # noqa: F401


class Block(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.lin = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.lin(x)) + x


class TestInstances:
    @pytest.mark.slow
    def test_one_compile_serves_every_instance(self):
        x = torch.randn(2, 8)
        for _ in range(32):
            block = Block().eval()
            same(framejit.compile(block)(x), block(x))
            gc.collect()
        assert framejit.stats()["graphs"] == 1
        assert framejit.stats()["hits"] >= 31

    def test_another_structure_recompiles(self):
        x = torch.randn(2, 8)
        a, b = Block().eval(), Block().eval()
        b.lin = torch.nn.Sequential(b.lin, torch.nn.Tanh())
        for block in (a, b, a, b):
            same(framejit.compile(block)(x), block(x))
        assert framejit.stats()["graphs"] == 2


class TestLifetime:
    def test_a_deleted_model_is_freed(self):
        model = Block().eval()
        framejit.compile(model)(torch.randn(2, 8))
        alive = weakref.ref(model), weakref.ref(model.lin.weight)
        del model
        gc.collect()
        assert [r() for r in alive] == [None, None]

    @pytest.mark.breaks(unknown_callable=3)
    def test_reset_between_and_inside_calls(self):
        def f(x):
            y = x + 1
            framejit.reset()
            return y * 2
        compiled = framejit.compile(f)
        for _ in range(3):
            same(compiled(torch.ones(3)), torch.full((3,), 4.0))


class TestSizes:
    def test_second_size_is_dynamic(self):
        def f(x):
            return (x * x.shape[0]).sum(0) + x.size(1)
        compiled = framejit.compile(f)
        for n in (5, 7, 9, 11, 30):
            x = torch.randn(n, 4)
            same(compiled(x), f(x))
        assert framejit.stats()["graphs"] == 2

    def test_zero_and_one(self):
        def f(x):
            return x.sum(0) * x.shape[0] + 1
        compiled = framejit.compile(f)
        for n in (4, 6, 1, 0, 8, 1, 0):
            x = torch.randn(n, 3)
            same(compiled(x), f(x))

    def test_int_argument_recompiles_once(self):
        def f(x, n):
            return x * n + n // 2
        compiled = framejit.compile(f)
        for n in (3, 4, 5, 6, 50, -3):
            x = torch.randn(3)
            same(compiled(x, n), f(x, n))
        assert framejit.stats()["graphs"] == 2

    def test_never_dynamic(self):
        compiled = framejit.compile(lambda x: x * 2, dynamic=False)
        for n in (3, 4, 5):
            compiled(torch.randn(n))
        assert framejit.stats()["graphs"] == 3


class TestGuardLiterals:
    @pytest.mark.parametrize("values", [(0.0, -0.0), (True, 1), (1, 1.0), (float("nan"), 1.0), (2 ** 70, 2 ** 71),
                                        ("a", "b")])
    def test_told_apart(self, values):
        def f(x, k):
            return x + 1, k, type(k).__name__, str(k)
        compiled = framejit.compile(f)
        x = torch.randn(3)
        for k in values + values:
            same(compiled(x, k), f(x, k))

    def test_changed_global_method_and_attribute(self):
        block, x = Block().eval(), torch.randn(2, 8)
        compiled = framejit.compile(block)
        same(compiled(x), block(x))
        original = Block.forward
        try:
            Block.forward = lambda self, x: self.lin(x) - x
            same(compiled(x), block(x))
        finally:
            Block.forward = original
        same(compiled(x), block(x))
        block.lin.bias = None
        same(compiled(x), block(x))
        handle = block.lin.register_forward_hook(lambda m, i, o: o * 3)
        same(compiled(x), block(x))
        handle.remove()
        same(compiled(x), block(x))


class TestModes:
    def test_grad_mode_is_guarded(self):
        def f(x):
            return torch.is_grad_enabled(), x * 2
        compiled = framejit.compile(f)
        x = torch.randn(3)
        for mode in (False, True, False, True):
            with torch.set_grad_enabled(mode):
                same(compiled(x), f(x))

    def test_anomaly_detection_is_guarded(self):
        def f(x):
            return torch.is_anomaly_enabled(), x * 2
        compiled = framejit.compile(f)
        for mode in (False, True, False, True):
            with torch.autograd.set_detect_anomaly(mode):
                same(compiled(torch.ones(3)), f(torch.ones(3)))

    def test_mode_changed_inside_is_restored(self):
        def f(x):
            with torch.enable_grad():
                a = torch.is_grad_enabled()
            return a, torch.is_grad_enabled(), x + 1
        same(framejit.compile(f)(torch.ones(2)), f(torch.ones(2)))
        assert not torch.is_grad_enabled()

    def test_is_compiling_is_true_inside_only(self):
        def f(x):
            return x + 1, torch.compiler.is_compiling(), framejit.is_compiling()
        compiled = framejit.compile(f, fullgraph=True)
        for _ in range(2):
            assert compiled(torch.ones(2))[1:] == (True, True)
            assert f(torch.ones(2))[1:] == (False, False)

    def test_autocast(self):
        lin = torch.nn.Linear(8, 8).eval()
        def f(x):
            with torch.autocast("cpu", torch.bfloat16):
                return lin(x)
        x = torch.randn(2, 8)
        assert framejit.compile(f)(x).dtype == torch.bfloat16
        same(framejit.compile(f)(x), f(x))

    @pytest.mark.nothing_captured
    def test_requires_grad_runs_plainly_with_gradients(self):
        with torch.enable_grad():
            x = torch.randn(3, requires_grad=True)
            framejit.compile(lambda x: (x * 2).sum())(x).backward()
            assert torch.equal(x.grad, torch.full((3,), 2.0))


class TestAliasing:
    @pytest.mark.breaks(overlapping_inputs=1)
    @pytest.mark.nothing_captured
    def test_overlapping_inputs_one_written(self):
        def f(a, b):
            a.add_(1)
            return b * 2
        base, plain = torch.zeros(6), torch.zeros(6)
        compiled = framejit.compile(f)
        same(compiled(base[:4], base[2:]), f(plain[:4], plain[2:]))
        same(base, plain)

    def test_the_same_tensor_twice(self):
        def f(a, b):
            a.mul_(2)
            return a + b
        compiled = framejit.compile(f)
        for shared in (False, True, False):
            a, p = torch.ones(3), torch.ones(3)
            b, q = (a, p) if shared else (torch.ones(3), torch.ones(3))
            same(compiled(a, b), f(p, q))

    def test_version_counter_moves(self):
        x = torch.ones(3)
        before = x._version
        framejit.compile(lambda x: x.add_(1))(x)
        assert x._version > before


class TestThreads:
    @pytest.mark.fallbacks(compile_running=range(8))  # of the threads that came while one compiled
    def test_first_calls_at_once(self):
        compiled = framejit.compile(lambda x: torch.sin(x) * 2)
        x, results = torch.randn(100), []
        def work():
            with torch.no_grad():
                results.append(compiled(x))
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert len(results) == 8
        for r in results:
            same(r, torch.sin(x) * 2)

    def test_recursion_and_reentrancy(self):
        @framejit.compile
        def f(x, n):
            return x if n == 0 else f(x + n, n - 1)
        same(f(torch.zeros(2), 5), torch.full((2,), 15.0))


class TestGenerators:
    @pytest.mark.breaks(generator_frame=1)
    @pytest.mark.nothing_captured
    def test_decorated_generator_runs_plainly(self):
        @framejit.compile
        def f(x):
            yield x + 1
            yield x + 2
        same(list(f(torch.zeros(2))), [torch.ones(2), torch.full((2,), 2.0)])


class TestTracebacks:
    @pytest.mark.breaks(exception_raised=1)
    def test_lines_are_plain_pythons(self):
        def inner(x):
            y = x + 1
            raise ValueError("here")

        def f(x):
            a = x * 2
            return inner(a)

        def lines(call):
            import traceback
            try:
                call(torch.ones(2))
            except ValueError as e:
                return [(s.name, s.lineno, s.line) for s in traceback.extract_tb(e.__traceback__)
                        if s.name in ("inner", "f")]
        assert lines(framejit.compile(f)) == lines(f)


def test_equal_values_in_two_outputs_of_any_layout_share_no_memory():
    def f(x):
        a, b = (x + 1).view(3, 1).expand(3, 3), (x + 1).view(1, 3).expand(3, 3)
        return a, b, torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij"), (x + 1)[::2], (x + 1)[::2]
    check(f, torch.randn(3), breaks=0)
    out = framejit.compile(f)(torch.randn(3))
    pointers = [t.untyped_storage().data_ptr() for t in (out[0], out[1], *out[2], out[3], out[4])]
    assert len(set(pointers)) == len(pointers)


class Holder:
    pass


def set_and_delete(x, a):
    a.n += 1
    a.q = 1
    del a.q
    return x + 1


def set_and_delete_in_the_dict(x, a):
    a.n += 1
    a.__dict__["q"] = a.n
    a.__dict__.pop("q")
    return x + 1


def set_and_delete_a_global(x, a):
    global TEMPORARY
    a.n += 1
    TEMPORARY = 1
    del TEMPORARY
    return x + 1


def set_within_a_try(x, a):
    a.n += 1
    try:
        a.q = x * 2
    finally:
        del a.q
    return x.add_(1)


def of_a_function(x, a):
    a.n += 1
    set_and_delete.mark = 1
    del set_and_delete.mark
    return x + torch.rand(2)


COLLECTED = Holder()


def collect(y):
    table = COLLECTED.table
    table["h"].append(y)
    return y


def collect_after_a_break(x):
    x = x + 1
    print(end="")
    for _ in range(3):
        x = collect(x * 2)
    return x


def collects(x):
    table = {"h": []}
    COLLECTED.table = table
    collect_after_a_break(x)
    COLLECTED.table = None
    table["h"] = table["h"][:-1]
    return {"h": tuple(table["h"])}


class TestEffectsOfTheSameTrace:
    @pytest.mark.parametrize("fn", [set_and_delete, set_and_delete_in_the_dict, set_and_delete_a_global,
                                    set_within_a_try, of_a_function])
    def test_what_is_set_and_deleted_happens_once(self, fn):
        seen = []
        for f in (fn, framejit.compile(fn)):
            torch.manual_seed(0)
            a, x = Holder(), torch.ones(2)
            a.n = 0
            results = [f(x, a).clone() for _ in range(3)]
            seen.append((vars(a), x, results, torch.rand(1)))
        assert seen[0][0] == seen[1][0] == {"n": 3}
        same(seen[1][1:], seen[0][1:])
        assert framejit.stats()["fallbacks"] == 0

    def test_deleted_where_it_may_have_been(self):
        def f(x, a):
            a.q = 1
            del a.q
            return x + 1
        compiled = framejit.compile(f)
        for start in ({}, {"q": 5}, {"p": 1}):
            a = Holder()
            vars(a).update(start)
            compiled(torch.ones(2), a)
            assert vars(a) == {key: value for key, value in start.items() if key != "q"}

    @pytest.mark.breaks(made_in_trace=1)
    def test_finalisers_run_where_the_last_reference_goes(self):
        class Resource:
            def __init__(self, log):
                self.log = log

            def __del__(self):
                self.log.append("gone")

        def f(x, log):
            resource = Resource(log)
            log.append("used")
            return x + 1
        compiled = framejit.compile(f)
        for _ in range(2):
            log = []
            compiled(torch.ones(2), log)
            assert log == ["used", "gone"]

    def test_divmod_of_a_tensor_is_eagers_answer(self):
        check(lambda x: divmod(x, 2), torch.ones(2), breaks=1)
        check(lambda x, n: x + divmod(n, 3)[1], torch.ones(2), 7)

    @pytest.mark.breaks(outside_effect=1)
    def test_items_outlive_the_list_that_held_them(self):
        compiled = framejit.compile(collects)
        x = torch.ones(3)
        def counts(f):
            results = f(x)
            return [sys.getrefcount(item) for item in results["h"]]
        held = [counts(compiled) for _ in range(4)]
        assert held == [counts(collects)] * 4
        same(compiled(x), collects(x))


CHANGED = {
    "dict grows": (lambda c: c.__setitem__("z", 1), lambda: {"a": 1}),
    "dict shrinks": (lambda c: c.pop("a"), lambda: {"a": 1, "b": 2}),
    "set grows": (lambda c: c.add(9), lambda: {1}),
    "set shrinks": (lambda c: c.discard(2), lambda: {2}),
}


@pytest.mark.breaks(changed_container=1, real_iterator=1)
@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("made_inside", [False, True])
def test_containers_that_change_while_they_are_iterated(name, made_inside):
    change, make = CHANGED[name]

    def f(x, c):
        if made_inside:
            c = make()
        x = x + 1
        for _ in c:
            x = x * 2
            change(c)
        return x
    compiled = framejit.compile(f)
    for _ in range(2):
        plain, ours = make(), make()
        with pytest.raises(RuntimeError) as error:
            f(torch.ones(2), plain)
        with pytest.raises(RuntimeError, match=str(error.value)):
            compiled(torch.ones(2), ours)
        assert plain == ours
