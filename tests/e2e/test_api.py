"""What framejit.compile returns: it looks like what it was given, and its settings are checked."""
import copy
import functools
import gc
import inspect
import os
import pickle
import sys
import weakref
from pathlib import Path

import pytest
import torch

import framejit
import programs


@framejit.compile
def decorated(x, *, scale=2):
    """Scales."""
    return x * scale


@framejit.compile(backend="eager")
def decorated_with_arguments(x):
    return x + 1


class Holder:
    def __init__(self, offset):
        self.offset = offset

    @framejit.compile
    def method(self, x):
        return x + self.offset

    def __call__(self, x):
        return x - self.offset


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(x).relu()


@pytest.fixture
def net():
    return Net().eval()


def test_function_keeps_its_looks():
    assert decorated.__name__ == "decorated" and decorated.__doc__ == "Scales." and decorated.__module__ == __name__
    assert inspect.signature(decorated) == inspect.signature(decorated.__wrapped__)
    assert torch.equal(decorated(torch.ones(2), scale=3), torch.full((2,), 3.0))
    assert torch.equal(decorated_with_arguments(torch.ones(2)), torch.full((2,), 2.0))


def test_function_pickles_by_name():
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated


def test_methods_and_callables():
    x = torch.ones(2)
    assert torch.equal(Holder(3).method(x), x + 3)
    assert torch.equal(framejit.compile(Holder(3).__call__)(x), x - 3)
    assert torch.equal(framejit.compile(Holder(3))(x), x - 3)
    assert torch.equal(framejit.compile(torch.sin)(x), x.sin())
    assert framejit.compile(decorated).__wrapped__ is decorated.__wrapped__


def test_module_shares_the_original(net):
    compiled, x = framejit.compile(net), torch.randn(2, 4)
    assert isinstance(compiled, Net) and compiled is not net and repr(compiled) == repr(net)
    with torch.no_grad():
        assert torch.equal(compiled(x), net(x))
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert compiled.train() is compiled and net.training
    compiled.eval().to(torch.float64)
    assert net.lin.weight.dtype == torch.float64 and not net.training
    compiled.extra = 5
    assert net.extra == 5
    seen = []
    compiled.register_forward_hook(lambda module, inputs, output: seen.append(module))
    compiled(x.double())
    assert seen == [net]


def test_module_copies_and_pickles(net):
    compiled, x = framejit.compile(net), torch.randn(2, 4)
    copied = copy.deepcopy(compiled)
    assert type(copied) is type(compiled) and copied.lin.weight is not net.lin.weight
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded) is Net

    def hits_and_graphs(module):
        framejit.reset()
        with torch.no_grad():
            for _ in range(3):
                assert torch.equal(module(x), net(x))
        return framejit.stats()["hits"], framejit.stats()["graphs"]
    assert hits_and_graphs(copied) == hits_and_graphs(copy.copy(compiled)) == (2, 1)
    assert hits_and_graphs(loaded) == (0, 0)


@pytest.mark.parametrize("settings, error, listed", [
    ({"backend": "nope"}, ValueError, "'framejit'"),
    ({"mode": "fast"}, ValueError, "'max-autotune'"),
    ({"options": {"nope": 1}}, ValueError, "option 'nope'; known: 'autotune', 'freezing', 'graphs'"),
    ({"backend": "framjit"}, ValueError, "unknown backend 'framjit'; did you mean 'framejit'. Known: 'eager', "),
    ({"mode": "Max-Autotun"}, ValueError, "unknown mode 'Max-Autotun'; did you mean 'max-autotune'. Known: 'default'"),
    ({"mode": 3}, ValueError, "unknown mode 3; known: 'default'"),
    ({"options": {"max_autotune": True}}, ValueError, "option 'max_autotune'; did you mean 'autotune'. Known: 'auto"),
    ({"options": {"graphs": "auto"}}, ValueError, "option 'graphs' must be True or False, not 'auto'"),
    ({"backend": 3}, TypeError, "callable"),
    ({"fullgraph": "yes"}, TypeError, "True"),
    ({"disable": "no"}, TypeError, "disable must be True or False"),
    ({"mode": "default", "options": {"a": 1}}, ValueError, "together"),
])
def test_wrong_settings_say_what_is_known(settings, error, listed):
    with pytest.raises(error, match=listed):
        framejit.compile(decorated, **settings)


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_of_torch_are_accepted(mode):
    assert torch.equal(framejit.compile(lambda x: x + 1, mode=mode)(torch.ones(2)), torch.full((2,), 2.0))


def test_a_mode_that_decides_as_the_default_shares_what_is_compiled():
    def f(x):
        return x + 1
    graphs = framejit.stats()["graphs"]
    framejit.compile(f)(torch.ones(2))
    framejit.compile(f, mode="default")(torch.ones(2))
    assert framejit.stats()["graphs"] == graphs + 1
    framejit.compile(f, mode="reduce-overhead")(torch.ones(2))
    framejit.compile(f, options=framejit.list_mode_options("reduce-overhead"))(torch.ones(2))
    assert framejit.stats()["graphs"] == graphs + 2


def test_modes_are_options():
    listed = framejit.list_mode_options()
    assert list(listed) == ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
    assert listed["default"] == {} and listed["max-autotune"] == {"autotune": True, "graphs": True}
    assert framejit.list_mode_options("reduce-overhead", dynamic=True) == {"graphs": True}
    listed["default"]["graphs"] = True
    assert framejit.list_mode_options("default") == {}
    with pytest.raises(ValueError, match="unknown mode 'fast'; known: 'default'"):
        framejit.list_mode_options("fast")
    for options in framejit.list_mode_options().values():
        assert torch.equal(framejit.compile(lambda x: x + 1, options=options)(torch.ones(2)), torch.full((2,), 2.0))


def test_what_cannot_be_compiled():
    for thing in (3, Net):
        with pytest.raises(TypeError, match="a function, a method, a callable object or an nn.Module"):
            framejit.compile(thing)
    plain = lambda x: x  # noqa: E731
    assert framejit.compile(plain, disable=True) is plain


def test_disable(net):
    calls = []

    @framejit.disable(reason="counts")
    def plain(x):
        calls.append(framejit.is_compiling())
        return x + 1
    x = torch.ones(2)
    assert torch.equal(framejit.compile(lambda x: plain(x) * 2)(x), (x + 1) * 2)
    assert calls == [False] and framejit.compile(plain) is plain and framejit.stats()["graph_breaks"] == 1
    wrapped = framejit.disable(net)
    assert isinstance(wrapped, Net) and framejit.compile(wrapped) is wrapped
    assert torch.equal(wrapped(torch.ones(1, 4)), net(torch.ones(1, 4)))


def test_a_users_backend_lives_as_long_as_what_it_compiled():
    class Backend:
        def __call__(self, graph, examples):
            made = lambda *inputs: graph(*inputs)  # noqa: E731
            alive.append(weakref.ref(made))
            return made
    alive, x = [], torch.ones(2)

    def f(x):
        return x + 1
    backend = Backend()
    alive.append(weakref.ref(backend))
    with torch.no_grad():
        compiled = framejit.compile(f, backend=backend)
        assert torch.equal(compiled(x), x + 1) and len(alive) == 2
        del backend
        gc.collect()
        assert alive[0]() is not None and torch.equal(compiled(x), x + 1) and len(alive) == 2
        del compiled
        gc.collect()
        assert [ref() for ref in alive] == [None, None]
        before = framejit.stats()["graphs"]
        for _ in range(20):  # more than the limit: entries of objects that are gone are dropped
            assert torch.equal(framejit.compile(f, backend=lambda graph, examples: graph)(x), x + 1)
        assert framejit.stats()["graphs"] == before + 20


@pytest.mark.breaks(outside_effect=1)
def test_fullgraph_names_place_cause_and_remedy():
    def breaks(x):
        print("effect")
        return x + 1
    told = r"(?ms)test_api.py:\d+ .*breaks.*outside_effect.*print.*^hint: move it out of the compiled function$"
    with torch.no_grad(), pytest.raises(framejit.GraphBreakError, match=told):
        framejit.compile(breaks, fullgraph=True)(torch.ones(2))
    with pytest.raises(framejit.GraphBreakError, match="generator"):
        framejit.compile(lambda x: (yield x), fullgraph=True)


def test_explain_refuses_at_once_what_compile_refuses():
    opt = torch.optim.SGD([torch.zeros(1)])
    of_a_class = "the class int; decorate a method of the class, or call framejit.{} with an object of it"
    of_sgd = "an object of SGD; framejit.{}(optimizer.step) takes its step"
    for name in ("compile", "explain", "disable"):
        for wrong, shown in ((3, "3"), (None, "None"), (opt, of_sgd), (int, of_a_class)):
            if name == "explain" or wrong is not None:
                with pytest.raises(TypeError) as told:
                    getattr(framejit, name)(wrong)
                assert str(told.value) == (f"framejit.{name} takes a function, a method, a callable object or an "
                                           f"nn.Module, not {shown.format(name)}")


def test_a_generator_is_named_by_its_file_without_the_folder():
    def items(x):
        yield x
    line = items.__code__.co_firstlineno
    with pytest.raises(framejit.GraphBreakError, match=rf"^test_api.py:{line} .*items: "):
        framejit.compile(items, fullgraph=True)
    outside = eval(compile("lambda: (yield)", "/anywhere/logging/__init__.py", "eval"))
    with pytest.raises(framejit.GraphBreakError, match="^logging/__init__.py:1 <lambda>: "):
        framejit.compile(outside, fullgraph=True)


@pytest.mark.parametrize("wrapper", [classmethod, property])
def test_a_wrapper_of_a_class_is_told_where_to_stand(wrapper):
    with pytest.raises(TypeError, match=f"; put @framejit.compile below @{wrapper.__name__}$"):
        framejit.compile(wrapper(lambda owner: owner))


def test_mark_dynamic_checks_its_dim():
    with pytest.raises(IndexError):
        framejit.mark_dynamic(torch.ones(2, 3), 2)


@pytest.mark.parametrize("given, message",
                         [((3, 0), "takes a tensor and a dim, not int 3"),
                          ((torch.ones(2), "0"), "an int or a list of ints as dim, not '0'"),
                                            ((torch.ones(2), None), "as dim, not None"),
                          ((torch.ones(2), [0, 1.5]), "as dim, not")])
def test_mark_dynamic_says_what_it_takes(given, message):
    with pytest.raises(TypeError, match=message):
        framejit.mark_dynamic(*given)


@pytest.mark.parametrize("bounds, error, message", [
    ({"min": 5, "max": 2}, ValueError, "min must not be greater than max: min=5, max=2"),
    ({"min": -5}, ValueError, "min must be 0 or more, not -5"),
    ({"max": -1}, ValueError, "max must be 0 or more, not -1"),
    ({"min": "a"}, TypeError, "min must be an int or None, not 'a'"),
    ({"max": True}, TypeError, "max must be an int or None, not True"),
])
def test_mark_dynamic_checks_its_bounds(bounds, error, message):
    x = torch.ones(3)
    with pytest.raises(error) as raised:
        framejit.mark_dynamic(x, 0, **bounds)
    assert str(raised.value) == message and not hasattr(x, "_framejit_dynamic")


def test_options_and_sizes_of_a_wrong_type_are_named(tmp_path):
    with pytest.raises(TypeError, match="^options must be a dict or None, not 3$"):
        framejit.compile(lambda x: x, options=3)
    for wrong in ("a", 1.5, True):
        with pytest.raises(TypeError, match=f"^max_mb must be an int, not {wrong!r}$"):
            framejit.cache(tmp_path, max_mb=wrong)


@pytest.mark.parametrize("name, message",
                         [("fullgrpah", "'fullgrpah'; did you mean 'fullgraph'. Known: fullgraph, dynamic"),
                          ("recompile_limit", "'recompile_limit'; FRAMEJIT_ENTRIES sets the limit for the whole "
                                              "process; known: fullgraph, dynamic"),
                          ("name", "'name'; framejit has no names for compiled functions; known: fullgraph, dynamic"),
                          ("zzz", "'zzz'; known: fullgraph, dynamic")])
def test_an_unknown_setting_names_the_closest(name, message):
    with pytest.raises(TypeError, match=message):
        framejit.compile(**{name: True})
    with pytest.raises(TypeError, match=message):
        framejit.compile(lambda x: x, **{name: True})
    with pytest.raises(TypeError, match=r"^explain\(\) .*" + message):
        framejit.explain(lambda x: x, **{name: True})


def test_explain_takes_no_arguments_of_the_call():
    with pytest.raises(TypeError, match=r"in a second pair of parentheses: framejit.explain\(f\)\(x\)$"):
        framejit.explain(lambda x: x, torch.ones(2))


def test_an_optimizer_is_no_function_but_its_step_is():
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)])
    for function in (framejit.compile, framejit.explain, framejit.disable):
        with pytest.raises(TypeError, match=rf"object of SGD; framejit.{function.__name__}\(optimizer.step\) takes"):
            function(optimizer)
    framejit.compile(optimizer.step)


def test_explain_names_the_settings_that_it_takes():
    with pytest.raises(TypeError) as raised:
        framejit.explain(lambda x: x, disable=True)
    assert str(raised.value) == ("explain() got an unexpected keyword argument 'disable'; known: fullgraph, dynamic, "
                                 "backend, mode, options")


def test_signature_of_compile():
    model, *settings = inspect.signature(framejit.compile).parameters.values()
    assert (model.name, model.default, model.kind) == ("model", None, model.POSITIONAL_OR_KEYWORD)
    assert {p.name: p.default for p in settings if p.kind == p.KEYWORD_ONLY} == {
        "fullgraph": False, "dynamic": None, "backend": "framejit", "mode": None, "options": None, "disable": False}


def test_list_backends_names_what_compile_takes():
    names = run("import framejit; print(*framejit.list_backends())").stdout.split()  # without those that tests add
    assert names == ["eager", "framejit", "interp"] and set(names) <= set(framejit.list_backends())
    with torch.no_grad():
        for name in names:
            assert torch.equal(framejit.compile(lambda x: x + 1, backend=name, fullgraph=True)(torch.ones(2)),
                               torch.full((2,), 2.0))


def test_stats_are_flat_totals_since_import_or_reset():
    numbers = ["graphs", "graph_breaks", "recompiles", "fallbacks", "ops", "kernels", "hits", "plain_hits",
               "left_alone", "frames", "compile_seconds", "trace_seconds", "traced_instructions", "inlined_calls",
               "cache_hits", "cache_misses", "cache_stored", "derived_values", "derived_bytes", "derived_made",
               "derived_again", "derived_private_bytes", "recordings", "replays", "recording_bytes", "backward_graphs",
               "backward_runs", "python_shapes", "executed_shapes", "interrupted"]

    @framejit.compile
    def f(x):
        x = x.sin() + 1
        print(end="")
        return helper(x) @ x

    def helper(x):
        return x * 2
    framejit.reset()
    with torch.no_grad():
        for size in (2, 3, 3):
            f(torch.ones(size))
    stats = framejit.stats()
    assert sorted(stats) == sorted([*numbers, "break_reasons", "fallback_reasons", "plain_hit_reasons"])
    assert {name: stats[name] for name in ("graphs", "graph_breaks", "recompiles", "fallbacks", "ops", "kernels",
                                           "hits", "plain_hits", "frames", "inlined_calls")} == {
        "graphs": 4, "graph_breaks": 2, "recompiles": 2, "fallbacks": 0, "ops": 8, "kernels": 4, "hits": 2,
        "plain_hits": 0, "frames": 3, "inlined_calls": 2}
    assert stats["break_reasons"] == {"outside_effect": 2} and stats["traced_instructions"] > 20 and stats[
        "compile_seconds"] > stats["trace_seconds"] > 0
    framejit.reset()
    held = framejit.stats()["derived_private_bytes"]  # of modules that other tests keep alive
    assert framejit.stats() == {name: 0 for name in numbers} | {
        "derived_private_bytes": held, "break_reasons": {}, "fallback_reasons": {}, "plain_hit_reasons": {}}
    assert run("import framejit; print(any(framejit.stats().values()))").stdout == "False\n"


def test_dir_is_the_public_api():
    assert sorted(framejit.__all__) == [name for name in dir(framejit)
                                        if name != "__version__"] and "__version__" in dir(framejit)


def test_another_torch_is_told_how_to_go_on(monkeypatch):
    from framejit._required_build import require_matching_build
    require_matching_build()
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(ImportError) as raised:
        require_matching_build()
    wanted = ".".join(framejit._built_for.torch.split(".")[:2])
    assert f"torch=={wanted}.*" in str(raised.value) and "make build PYTHON=" in str(
        raised.value) and "torch 2.5.1" in str(raised.value)


def test_a_python_that_no_build_is_for_is_told_which_there_are(monkeypatch):
    from framejit import _required_build
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(ImportError, match=r"^framejit needs CPython 3.11, 3.12 or 3.13; this is Python 3.10 \("):
        _required_build.require_matching_build()


def run(code, forked=True, global_mode=False, **environment):
    env = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")} | environment
    return programs.run(code, env=env, forked=forked, global_mode=global_mode)


@pytest.mark.parametrize("environment, message", [
    ({"FRAMEJIT_LOGS": "nonsense"}, "graph_breaks"),
    ({"FRAMEJIT_MIN_CALLS": "many"}, "FRAMEJIT_MIN_CALLS"),
    ({"FRAMEJIT_LOGS_FORMAT": "xml"}, "json"),
    ({"FRAMEJIT": "1", "FRAMEJIT_FILTER": "["}, "FRAMEJIT_FILTER='[' is not accepted: expected a regular expression"),
    ({"FRAMEJIT": "1", "FRAMEJIT_SKIP": "("}, "FRAMEJIT_SKIP='(' is not accepted: expected a regular expression"),
    ({"FRAMEJIT": "1", "FRAMEJIT_MIN_CALLS": "-1"},
     "FRAMEJIT_MIN_CALLS='-1' is not accepted: expected an integer from 1 to"),
])
def test_bad_environment_is_an_error_at_import(environment, message):
    done = run("import framejit", **environment)
    assert done.returncode and message in done.stderr


def test_start_up_file_does_nothing_unless_asked():
    nothing = "import sys; assert 'torch' not in sys.modules and '_framejit_startup' not in sys.modules"
    assert run(nothing, forked=False).returncode == 0
    assert run("import sys; assert 'torch' not in sys.modules", FRAMEJIT="1").returncode == 0
    for off in ("0", ""):
        done = run("import sys; assert '_framejit_startup' not in sys.modules", FRAMEJIT=off)
        assert done.returncode == 0, done.stderr
    assert run("import sys; assert '_framejit_startup' in sys.modules", FRAMEJIT="1").returncode == 0


@pytest.mark.parametrize("room", [1, 3, 20])
def test_the_room_for_entries_is_a_knob(room):
    program = """
import torch, framejit
@framejit.compile(backend="eager")
def f(x, s): return x * len(s)
with torch.no_grad():
    for i in range(12): f(torch.ones(2), "a" * i)
print(framejit.stats()["graphs"], framejit.stats()["fallbacks"])
"""
    assert run(program, FRAMEJIT_ENTRIES=str(room)).stdout == f"{min(room, 12)} {max(12 - room, 0)}\n"


@pytest.mark.parametrize("first", ["framejit", "torch"])
def test_global_mode_in_a_program_that_imports_framejit_itself(first):
    program = f"""
import {first}
import torch, framejit
def step(x): return x.sin() + 1
with torch.no_grad():
    for _ in range(4): step(torch.ones(3))
assert framejit.stats()["graphs"] == 1, framejit.stats()
"""
    done = run(program, FRAMEJIT="1")
    assert done.returncode == 0, done.stderr


def test_global_mode_compiles_an_untouched_program():
    program = """
import torch
def f(x):
    return torch.relu(x * 2 + 1)
with torch.no_grad():
    for _ in range(5):
        assert torch.equal(f(torch.ones(3)), torch.full((3,), 3.0))
import sys
print(sys.modules["framejit"].stats()["graphs"])
"""
    done = run(program, FRAMEJIT="1")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 1


@pytest.mark.parametrize("wrap", [framejit.compile, framejit.disable])
@pytest.mark.nothing_captured
def test_a_new_call_of_the_class_is_seen(net, wrap):
    class Doubling(Net):
        pass
    net.__class__ = Doubling
    wrapped, x = wrap(net), torch.randn(2, 4)
    with torch.no_grad():
        first = wrapped(x)
        Doubling.__call__ = lambda self, x: 2 * self.forward(x)
        for _ in range(3):
            assert torch.equal(wrapped(x), 2 * first)
        del Doubling.__call__
        assert torch.equal(wrapped(x), first)


def test_a_call_that_is_new_each_time_is_armed_once(net):
    class Partial(Net):
        __call__ = functools.partialmethod(torch.nn.Module.__call__)
    net.__class__ = Partial
    compiled, x = framejit.compile(net), torch.randn(2, 4)
    framejit.reset()
    with torch.no_grad():
        for _ in range(4):
            assert torch.equal(compiled(x), net(x))
    assert framejit.stats()["graphs"] == 1


@pytest.mark.parametrize("value, graphs", [("1", 1), ("true", 1), ("TRUE", 1), ("0", 0), ("False", 0), ("", 0)])
def test_words_that_turn_global_mode_on(value, graphs):
    program = """
import torch
def f(x):
    return torch.relu(x * 2 + 1)
with torch.no_grad():
    for _ in range(5):
        f(torch.ones(3))
import framejit
print(framejit.stats()["graphs"])
"""
    done = run(program, FRAMEJIT=value)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == graphs


def test_stress_runs_every_frame_of_a_program():
    """FRAMEJIT_STRESS is a setting of framejit, not only of its tests; it cannot be combined with FRAMEJIT=1."""
    program = """
import framejit, torch
def f(x):
    try:
        return [x + i for i in range(3)]
    finally:
        x = None
with torch.no_grad():
    print(sum(f(torch.ones(2))), sum(framejit.compile(f)(torch.ones(2))))
print(framejit.stats()["graphs"])
"""
    for seed in ("0", "7"):
        done = run(program, FRAMEJIT_STRESS=seed)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "tensor([6., 6.]) tensor([6., 6.])\n1\n"
    both = run("import torch", FRAMEJIT_STRESS="7", FRAMEJIT="1")
    assert "FRAMEJIT=1 and FRAMEJIT_STRESS cannot be set together" in both.stderr


@pytest.mark.slow
def test_every_frame_of_a_program_is_traced():
    """FRAMEJIT_TRACE_ALL, together with code that is compiled by name: a frame without tensors has a segment too, and
    it is used again."""
    program = """
import framejit, torch
def plain(items):
    return {len(items): [i for i in items if i]}
def f(x):
    return x * len(plain([1, 0, 2])) + 1
print(plain([1, 0]), plain([1, 0]), framejit.stats()["plain_hits"] > 0)
with torch.no_grad():
    print(f(torch.ones(2)), framejit.compile(f)(torch.ones(2)), framejit.stats()["graphs"])
"""
    done = run(program, FRAMEJIT_TRACE_ALL="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{2: [1]} {2: [1]} True\ntensor([2., 2.]) tensor([2., 2.]) 2\n"
    both = run("import torch", FRAMEJIT_TRACE_ALL="1", FRAMEJIT="1")
    assert "FRAMEJIT=1 and FRAMEJIT_TRACE_ALL cannot be set together" in both.stderr
