"""What programs written for torch.compile call and set: functions, stances, marks, backends by name, the way back.
docs/from_torch_compile.md says what each name does here; the last tests compare that page with torch and with framejit.
"""
import contextlib
import copy
import inspect
import operator
import re
import sys
from pathlib import Path

import pytest
import torch

import framejit
import programs
from check import check, exactly_as, fresh, same, same_as  # noqa: F401
from framejit import options, torch_settings

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def said():
    """What is logged inside, as (asked, instead)."""
    events = []
    token = framejit._framejit.add_listener(lambda e: events.append((e["fields"]["asked"], e["fields"]["instead"]))
                                            if e["event"] == "Unheeded" else None)
    try:
        yield events
    finally:
        framejit._framejit.remove_listener(token)


class TestSubstituteInGraph:
    """A replacement that torch's compiler would use: one line if a call of the function breaks."""

    @pytest.mark.slow
    @pytest.mark.nothing_captured
    def test_is_said_where_the_function_is_met(self):
        code = """
import torch, framejit, readline
torch.compiler.substitute_in_graph(readline.get_history_length)(lambda: 0)
def f(x):
    return x * 2 + readline.get_history_length()
compiled = framejit.compile(f)
for _ in range(3):
    assert compiled(torch.ones(2)).tolist() == [2 + readline.get_history_length()] * 2
framejit.compile(lambda x: [x + 1, readline.get_completer()])(torch.ones(2))
"""
        ran = programs.run(code)
        lines = [line for line in ran.stderr.splitlines() if "substitute_in_graph" in line]
        assert ran.returncode == 0 and len(lines) == 1 and "get_history_length" in lines[0], ran.stderr


class TestFunctionsInTracedCode:
    def test_a_nested_region_is_traced_like_any_call(self):
        @torch.compiler.nested_compile_region
        def layer(x, w, *, bias=0.0):
            return torch.relu(x @ w) + bias

        def f(x, w):
            for _ in range(3):
                x = layer(x, w, bias=1.0)
            return x
        check(f, torch.randn(4, 4), torch.randn(4, 4), breaks=0, compiles=1)

    @pytest.mark.cpu_only("the torch there may not have the argument")
    def test_a_region_with_settings_in_a_region(self):
        @torch.compiler.nested_compile_region(max_reuse_entries=2)
        def inner(x):
            return x.sin()

        @torch.compiler.nested_compile_region
        def outer(x):
            return inner(x) + inner(x * 2)
        check(lambda x: outer(x) * 2, torch.randn(3), breaks=0, compiles=1)

    def test_a_break_in_a_region(self, capsys):
        @torch.compiler.nested_compile_region
        def layer(x):
            y = x + 1
            print("plain")
            return y * 2
        check(lambda x: layer(x) - 1, torch.randn(3), breaks=1, compiles=3)

    @pytest.mark.slow
    @pytest.mark.nothing_captured
    def test_a_step_of_graphs_that_nobody_has_is_marked_for_nobody(self):
        program = ("import sys, torch, framejit\n"
                   "@framejit.compile(fullgraph=True)\n"
                   "def f(x):\n    torch.compiler.cudagraph_mark_step_begin()\n    return x + 1\n"
                   "with torch.no_grad():\n    assert f(torch.zeros(2)).tolist() == [1, 1]\n"
                   "assert framejit.stats()['graphs'] == 1 and 'torch._inductor.cudagraph_trees' not in sys.modules\n"
                   "from torch._inductor import cudagraph_trees\n"
                   "before, framejit.compile = cudagraph_trees.MarkStepBox.mark_step_counter, framejit.reset()\n"
                   "def g(x):\n    torch.compiler.cudagraph_mark_step_begin()\n    return x + 1\n"
                   "from framejit import api\nwith torch.no_grad():\n    api.compile(g)(torch.zeros(2))\n"
                   "assert cudagraph_trees.MarkStepBox.mark_step_counter != before\n")
        done = programs.run(program)
        assert done.returncode == 0, done.stderr


def test_what_torch_disabled_is_not_compiled():
    @torch.compiler.disable
    def f(x):
        return x + 1
    assert framejit.compile(f) is f
    check(lambda x: f(x * 2) * 2, torch.randn(3), breaks=1, compiles=2)


@pytest.mark.breaks(outside_effect=1)
def test_locals_of_a_frame_that_a_refusal_leaves():
    """Its cells exist, although none of its code has run."""
    y = 2

    def f(x):
        x = x + 1
        print(x)
        return x + y
    x = torch.randn(3)
    with pytest.raises(framejit.GraphBreakError) as refused:
        framejit.compile(f, fullgraph=True)(x)
    assert refused.traceback[-1].frame.raw.f_locals == {"x": x, "y": 2}
    same(framejit.compile(lambda x: x + y)(x), x + 2)


class TestAConstantResult:
    """assume_constant_result: called while tracing, once for each set of arguments."""

    def test_is_asked_once(self):
        calls = []

        @torch.compiler.assume_constant_result
        def setting(name, *, scale=1):
            calls.append(name)  # outside of what can be traced
            return {"a": 2, "b": 3}[name] * scale

        def f(x):
            return x * setting("a") + setting("b", scale=2) + setting("a")
        compiled, x = framejit.compile(f, fullgraph=True), torch.randn(3)
        for _ in range(3):
            same(compiled(x), x * 2 + 6 + 2)
        assert calls == ["a", "b"]

    def test_of_a_method(self):
        class Config:
            def __init__(self, path):
                self.path = path

            @torch.compiler.assume_constant_result
            def size(self):
                return len(open(self.path).read())
        config, x = Config(__file__), torch.randn(3)

        def f(x):
            return x + config.size()
        same(framejit.compile(f, fullgraph=True)(x), f(x))

    @pytest.mark.parametrize("kind",
                             [list, lambda numbers: {n: n for n in numbers}, lambda numbers: torch.tensor(
                                 list(numbers))], ids=["list", "dict", "tensor"])
    def test_that_could_change_is_traced(self, kind):
        @torch.compiler.assume_constant_result
        def numbers(n):
            return kind(range(n))

        def f(x):
            found = numbers(3)
            return x + len(found), found
        check(f, torch.randn(3))

    def test_that_raises_is_the_programs_error(self):
        @torch.compiler.assume_constant_result
        def missing():
            raise KeyError("name")

        def f(x):
            x = x + 1
            try:
                return x * missing()
            except KeyError:
                return x * 2
        check(f, torch.randn(3))


@pytest.fixture
def stance():
    with torch.compiler.set_stance("default"):  # this loads torch's compiler
        yield torch.compiler.set_stance


class TestStances:
    def count(self):
        return framejit.stats()["graphs"], framejit.stats()["hits"]

    def test_force_eager(self, stance):
        seen = []

        @framejit.compile
        def f(x):
            seen.append(torch.compiler.is_compiling())
            return x + 1
        x = torch.randn(3)
        f(x)
        with stance("force_eager"):
            f(x), f(x[:2])
        f(x)
        assert seen == [True, False, False, True] and self.count() == (1, 1)

        @stance("force_eager")
        def plainly():
            return f(x)
        plainly()
        assert seen[-1] is False

    def test_eager_on_recompile(self, stance):
        f, x = framejit.compile(lambda x: x + 1, dynamic=False), torch.randn(4)
        f(x)
        with stance("eager_on_recompile"):
            f(x)
            same(f(x[:2]), x[:2] + 1)
        assert self.count() == (1, 1)

    def test_fail_on_recompile(self, stance):
        f, x = framejit.compile(lambda x: x + 1, dynamic=False), torch.randn(4)
        f(x)
        with stance("fail_on_recompile"):
            same(f(x), x + 1)
            with pytest.raises(RuntimeError, match=r"fail_on_recompile.*\n.*x\.size\(0\) was 4, now it is 2"):
                f(x[:2])
            with pytest.raises(RuntimeError, match="Nothing is compiled here yet"):
                framejit.compile(lambda x: x + 2)(x)
        same(f(x[:2]), x[:2] + 1)
        assert self.count() == (2, 1)

    @pytest.mark.parametrize("name", ["eager_then_compile", "aot_eager_then_compile"])
    def test_eager_then_compile(self, stance, name):
        f, x = framejit.compile(lambda x: x + 1), torch.randn(4)
        with stance(name):
            f(x)
            assert self.count() == (0, 0)
            f(x), f(x)
        assert self.count() == (1, 1)

    def test_what_a_stance_asks_for_and_is_not_done_is_said_once(self, stance):
        f, x = framejit.compile(lambda x: x + 1), torch.randn(4)
        with said() as lines:
            for _ in range(2):
                with stance("default", force_backend="eager"):
                    f(x)
                with stance("default", skip_guard_eval_unsafe=True):
                    f(x)
        assert [asked for asked, _ in lines] == ["torch.compiler.set_stance(force_backend=...)",
                                                 "torch.compiler.set_stance(skip_guard_eval_unsafe=True)"]

    @pytest.mark.breaks(unknown_callable=3)
    def test_set_in_compiled_code(self, stance):
        def f(x):
            y = x + 1
            with stance("force_eager"):
                y = g(y)
            return y * 2
        g = framejit.compile(lambda y: y.sin())
        x = torch.randn(3)
        same(framejit.compile(f)(x), f(x))
        assert f is not None and torch._dynamo.eval_frame._stance.stance == "default"

    @pytest.mark.nothing_captured
    def test_every_stance_of_torch_is_a_row(self):
        rows = re.findall(r'^STANCE\("(\w+)",', (ROOT / "frame_hook/resume/stance.def").read_text(), re.M)
        known = re.findall(r'^\s+- "(\w+)":', torch.compiler.set_stance.__doc__, re.M)
        assert sorted(rows) == sorted(known) and len(rows) > 5


def tensors(*sizes):
    return [torch.randn(n, 4) for n in sizes]


def graphs_for(calls, **settings):
    """How many graphs a function needs for these inputs, one after the other."""
    def f(x):
        return x.relu() + 1
    compiled = framejit.compile(f, **settings)
    for x in calls:
        same(compiled(x), f(x))
    assert framejit.stats()["hits"] + framejit.stats()["graphs"] == len(calls)
    return framejit.stats()["graphs"]


class TestMarks:
    @pytest.mark.parametrize("mark", ["mark_dynamic", "maybe_mark_dynamic", "decorators.mark_unbacked"])
    def test_torchs_marks_make_symbols(self, mark):
        import torch._dynamo.decorators
        calls = tensors(5, 7, 9)
        operator.attrgetter(mark)(torch._dynamo)(calls[0], 0)
        assert graphs_for(calls) == 1

    def test_torchs_bounds(self):
        import torch._dynamo
        calls = tensors(5, 7, 20)
        torch._dynamo.mark_dynamic(calls[0], 0, min=2, max=10)
        assert graphs_for(calls) == 2

    @pytest.mark.parametrize("mark", [framejit.mark_static, "torch"], ids=["framejit", "torch"])
    def test_static_sizes_stay_constants(self, mark):
        if mark == "torch":
            import torch._dynamo
            mark = torch._dynamo.mark_static
        calls = tensors(5, 7, 9)
        for x in calls:
            mark(x)
        assert graphs_for(calls) == 3
        framejit.reset()
        calls = tensors(5, 7, 9)  # dim 0 changes, and is not marked
        for x in calls:
            mark(x, 1)
        assert graphs_for(calls) == 2

    def test_static_sizes_with_dynamic(self):
        calls = tensors(5, 7, 9)
        for x in calls:
            framejit.mark_static(x, [0])
        assert graphs_for(calls, dynamic=True) == 3

    def test_the_last_mark_counts(self):
        x, = tensors(5)
        framejit.mark_static(x)
        framejit.mark_dynamic(x, -2)
        assert graphs_for([x, *tensors(9)]) == 1
        framejit.reset()
        framejit.mark_static(x, 0)
        assert graphs_for([x, *tensors(9)]) == 2

    @pytest.mark.nothing_captured
    def test_what_cannot_be_marked(self):
        with pytest.raises(IndexError, match="dim 2 is out of range"):
            framejit.mark_static(torch.ones(2, 3), 2)
        with pytest.raises(TypeError, match="mark_static takes a tensor"):
            framejit.mark_static([1, 2])

    @pytest.mark.parametrize("mark", [framejit.mark_static_address, "torch"], ids=["framejit", "torch"])
    def test_marks_of_addresses_change_nothing(self, mark):
        if mark == "torch":
            from torch import _dynamo
            mark = _dynamo.mark_static_address
        mark(x := torch.randn(3))
        check(lambda x: x + 1, x, breaks=0, compiles=1)

    @pytest.mark.nothing_captured
    def test_only_tensors_have_addresses_that_stay(self):
        with pytest.raises(TypeError, match="mark_static_address takes a tensor, not list"):
            framejit.mark_static_address([1])

    def test_marks_of_addresses_that_the_function_leaves(self):
        import torch._dynamo
        mark = "_dynamo_static_input_type"

        def f(x):
            y = x * 2
            torch._dynamo.mark_static_address(y)
            torch._dynamo.mark_static_address(x, guard=True)
            z = y + 1
            torch._dynamo.mark_static_address(z)
            torch._dynamo.mark_static_address(z, guard=True)
            return y, z, y + z, getattr(y, mark), hasattr(y + z, mark)

        def broken(x):
            y = f(x)[0]
            print(end="")
            return y, x + 1, getattr(y, mark)
        for fn, breaks in ((f, 0), (broken, 1)):
            framejit.reset()
            compiled = framejit.compile(fn)
            with torch.no_grad():
                for _ in range(3):
                    x = torch.randn(3)
                    plain = x.clone()
                    got, want = [*compiled(x), x], [*fn(plain), plain]
                    same(got, want)
                    assert [getattr(v, mark, None) for v in got] == [getattr(v, mark, None) for v in want]
            assert framejit.stats()["graph_breaks"] == breaks


class TestBackendsByName:
    @pytest.mark.parametrize("name", options.ALIASES)
    def test_of_torch(self, name):
        x = torch.randn(3)
        with said() as lines:
            for _ in range(2):
                f = framejit.compile(lambda x: x.exp() + 1, backend=name)
                same(f(x), x.exp() + 1)
        assert [asked for asked, _ in lines] == [f"backend {name!r}"] and framejit.stats()["graphs"] == 1

    @pytest.mark.nothing_captured
    def test_others_are_errors(self):
        with pytest.raises(ValueError, match="unknown backend 'tvm'; known: 'eager', 'framejit', 'interp'"):
            framejit.compile(lambda x: x, backend="tvm")


@pytest.mark.cpu_only("the torch there may not have the setting")
def test_settings_of_torch_are_said_once():
    import torch._dynamo
    x = torch.randn(3)
    with said() as lines, torch._dynamo.config.patch(capture_scalar_outputs=True), torch.compiler.config.patch(
        dynamic_sources="L['x']"):
        for _ in range(2):
            framejit.compile(lambda x: x + 1)(x)
    assert [asked for asked, _ in lines] == ["torch.compiler.config.dynamic_sources is not followed",
                                             "torch._dynamo.config.capture_scalar_outputs is not followed"]
    import torch._inductor.config  # noqa: F401
    for module, name, usual, _ in torch_settings.SETTINGS:
        assert getattr(sys.modules[module], name) == usual, f"{module}.{name}"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x, scale=2.0):
        x = torch.nn.functional.gelu(self.first(x))
        return self.second(x * scale), x.mean()


@pytest.fixture
def dynamo():
    import torch._dynamo
    torch._dynamo.reset()
    yield torch._dynamo
    framejit.reset()  # the listener that conftest.py counts with
    torch._dynamo.reset()


class TestTorchCompilesWithOurBackend:
    def test_is_listed(self):
        assert "framejit" in torch.compiler.list_backends()
        framejit.compile(lambda x: x + 1)(torch.ones(2))

    def test_a_function(self, dynamo):
        def f(x, y):
            return torch.softmax(x @ y, -1), (x + 1).sum()
        compiled, args = torch.compile(f, backend="framejit"), (torch.randn(4, 8), torch.randn(8, 8))
        for _ in range(2):
            same(compiled(*args), f(*args))
        stats = framejit.stats()
        assert [stats[k] for k in ("graphs", "hits", "graph_breaks", "fallbacks")] == [1, 1, 0, 0], stats

    def test_a_module_in_place(self, dynamo):
        net, x = Net().eval(), torch.randn(3, 8)
        plain = copy.deepcopy(net)
        net.compile(backend="framejit")
        for _ in range(2):
            same_as(plain, net(x), x)
        assert framejit.stats()["graphs"] == 1 and framejit.stats()["kernels"] > 0

    @pytest.mark.cpu_only("the torch there may not have the function")
    def test_as_torchs_default(self, dynamo):
        net, x = Net().eval(), torch.randn(3, 8)
        plain = copy.deepcopy(net)
        torch.compiler.set_default_backend("framejit")
        try:
            net.compile()
            same_as(plain, net(x), x)
        finally:
            torch.compiler.set_default_backend(None)
        assert framejit.stats()["graphs"] == 1

    def test_sizes_that_change(self, dynamo):
        def f(x, n):
            return x.relu().reshape(-1, 2) * n
        compiled = torch.compile(f, backend="framejit")
        for rows, n in (2, 3), (4, 5), (6, 7), (8, 9):
            x = torch.randn(rows, 4)
            same(compiled(x, n), f(x, n))
        assert 1 <= framejit.stats()["graphs"] <= 4

    def test_training(self, dynamo):
        torch.manual_seed(0)
        net, x = Net(), torch.randn(5, 8)

        @torch.enable_grad()
        def trained(compiles=False):
            of = copy.deepcopy(net)
            if compiles:
                of.compile(backend="framejit")
            optimizer = torch.optim.SGD(of.parameters(), lr=0.1)
            for _ in range(3):
                a, b = of(x)
                (a.square().sum() + b).backward()
                optimizer.step()
            return [[p.detach(), p.grad] for p in of.parameters()], torch.no_grad()(of)(x)
        same(trained(True), trained(), exactly_as(trained))
        assert (framejit.stats()["graph_breaks"], framejit.stats()["backward_runs"]) == (0, 3), framejit.stats()

    def test_a_graph_that_breaks_and_writes(self, dynamo, capsys):
        def f(x, log):
            y = x.sin()
            x.add_(1)
            log.append(1)
            print("between")
            return y * x
        x, log = torch.randn(3), []
        eager = f(x.clone(), [])
        same(torch.compile(f, backend="framejit")(x, log), eager)
        assert log == [1] and framejit.stats()["graphs"] == 2

    def test_modes(self, dynamo):
        x = torch.randn(3)
        same(torch.compile(lambda x: x + 1, backend="framejit", mode="max-autotune")(x), x + 1)
        with pytest.raises(Exception, match="unknown option 'max_autotune'"):
            torch.compile(lambda x: x + 2, backend="framejit", options={"max_autotune": True})(x)

    def test_torchs_reset_resets_what_was_compiled(self, dynamo):
        f, x = torch.compile(lambda x: x + 1, backend="framejit"), torch.randn(3)
        f(x)
        torch.compiler.reset()
        assert framejit.stats()["graphs"] == 0
        same(f(x), x + 1)
        assert framejit.stats()["graphs"] == 1


class TestWhatTorchCompiledInOurCode:
    """The function that it was made from is traced."""

    @pytest.mark.parametrize("name", ["framejit", "eager", "inductor"])
    def test_a_function(self, dynamo, name):
        inner = torch.compile(lambda x, k=3: x.sin() + k, backend=name)

        def f(x):
            return inner(x * 2) - inner(x, k=2)
        x = torch.randn(3)
        same(framejit.compile(f, fullgraph=True)(x), (x * 2).sin() + 3 - (x.sin() + 2))
        same(framejit.compile(inner, fullgraph=True)(x), x.sin() + 3)

    def test_a_module(self, dynamo):
        net, x = Net().eval(), torch.randn(3, 8)
        wrapped = torch.compile(net, backend="eager")
        same_as(net, framejit.compile(lambda x: wrapped(x), fullgraph=True)(x), x)
        same_as(net, framejit.compile(wrapped, fullgraph=True)(x), x)

    def test_a_module_compiled_in_place(self, dynamo):
        net, x = Net().eval(), torch.randn(3, 8)
        plain = copy.deepcopy(net)
        net.compile(backend="inductor")
        same_as(plain, framejit.compile(net, fullgraph=True)(x), x)


PAGE = ROOT / "docs/from_torch_compile.md"
STATES = ("same", "other", "not yet", "no effect")


def page_rows():
    """First cell without quotes and call brackets -> state, for every table of the page."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                rows[name] = cells[1]
    return rows


class TestThePage:
    pytestmark = [pytest.mark.nothing_captured, pytest.mark.cpu_only("the page is about the torch of requirements.txt")]

    def test_states(self):
        rows = page_rows()
        assert len(rows) > 60
        assert {name: state for name, state in rows.items() if state not in STATES} == {}

    def test_every_public_name_of_torch_compiler_has_a_row(self):
        public = set(torch.compiler.__all__) | {name for name, value in vars(torch.compiler).items()
                                                if inspect.isfunction(value) and value.__module__ == "torch.compiler"
                                                and not name.startswith("_")}
        assert {name for name in public if f"torch.compiler.{name}" not in page_rows()} == set()

    def test_every_argument_of_torch_compile_has_a_row(self):
        arguments = set(inspect.signature(torch.compile).parameters)
        assert {name for name in arguments if name not in page_rows()} == set()
        ours = set(inspect.signature(framejit.compile).parameters) - {"unknown"}
        assert {name for name in arguments if page_rows()[name] in ("same", "other")} == ours

    def test_every_setting_of_torch_compiler_is_named(self):
        settings, rows = set(torch.compiler.config._config), page_rows()
        named = set(re.findall(r"`(\w+)`", PAGE.read_text().split("Under `torch.compiler.config`")[1]))
        other_names = {name for name in settings if f"torch._dynamo.config.{name}" in rows}
        assert len(settings) > 20 and len(other_names) > 4
        assert settings - named - {row.rpartition(".")[2] for row in rows} == set() and other_names <= named

    def test_every_mode_stance_setting_and_mark_has_a_row(self):
        import torch._dynamo
        stances = re.findall(r'^STANCE\("(\w+)",', (ROOT / "frame_hook/resume/stance.def").read_text(), re.M)
        marks = [f"torch._dynamo.{name}" for name in dir(torch._dynamo) if re.match(r"(maybe_)?mark_", name)]
        settings = [f"{module}.{name}" for module, name, _, _ in torch_settings.SETTINGS]
        own = [name for name in framejit.list_backends() if name != "planted"]  # which tests add: _framejit_planted
        backends = [f'backend="{name}"' for name in (*options.ALIASES, *own)]
        expected = [*(f'mode="{mode}"' for mode in options.MODES), *(f'set_stance("{s}")' for s in stances), *marks,
                    *settings, *backends]
        assert {name for name in expected if name not in page_rows()} == set()
