"""docs/from_torch_compile.md, row by row: what works, what breaks a graph and with which message, and what is an error.
test_torch_settings.py does so for the settings of torch; test_torch_compiler.py looks for names that the tables lack.
"""
import re

import numpy as np
import pytest
import torch
from torch import nn

import framejit
from check import check, fresh, same  # noqa: F401
from framejit import torch_settings
from test_torch_compiler import ROOT, page_rows
from test_torch_settings import settings_on_the_page

pytestmark = pytest.mark.cpu_only("the page is about the torch of requirements.txt")


# ---- functions


def no_change(wrapper):
    """A program with a function that torch's compiler would treat in another way; here it is traced like any other."""
    def make():
        marked = wrapper(lambda x: x.relu() + 1)
        return lambda x: marked(x) * 2
    return make


def calls(act):
    """A program that calls `act` between two ops."""
    def make():
        def f(x):
            x = x + 1
            act()
            return x * 2
        return f
    return make


def enters(manager):
    def make():
        def f(x):
            with manager():
                x = x + 1
            return x * 2
        return f
    return make


def comptime():
    from torch._dynamo.comptime import comptime as at_compile_time

    def f(x):
        x = x + 1
        at_compile_time.print_graph()
        return x * 2
    return f


def with_check():
    def f(x):
        torch._check(x.shape[0] > 2, lambda: "too short")
        return x + 1
    return f


def custom_op():
    from test_custom_ops import twice
    return lambda x: twice(x) + 1


# Row -> what makes the function, which is one graph.
CAPTURED = {
    "torch.compiler.allow_in_graph": no_change(lambda f: torch.compiler.allow_in_graph(f)),
    "torch._dynamo.allow_in_graph": no_change(lambda f: torch._dynamo.allow_in_graph(f)),
    "torch._dynamo.nonstrict_trace": no_change(lambda f: torch._dynamo.nonstrict_trace(f)),
    "torch._dynamo.dont_skip_tracing": no_change(lambda f: torch._dynamo.dont_skip_tracing(f)),
    "torch._dynamo.forbid_in_graph": no_change(lambda f: torch._dynamo.forbid_in_graph(f)),
    "torch._dynamo.optimize": no_change(lambda f: torch._dynamo.optimize("eager")(f)),
    "torch._dynamo.optimize_assert": no_change(lambda f: torch._dynamo.optimize_assert("eager")(f)),
    "torch._dynamo.run": no_change(lambda f: torch._dynamo.run(f)),
    "torch._dynamo.skip_frame": calls(lambda: torch._dynamo.skip_frame()),
    "torch._dynamo.step_unsupported": calls(lambda: torch._dynamo.step_unsupported()),
    "torch._dynamo.error_on_graph_break": enters(lambda: torch._dynamo.error_on_graph_break(True)),
    "torch._dynamo.override_cudagraphs": enters(lambda: torch._dynamo.override_cudagraphs(fwd=False)),
    "torch._dynamo.comptime.comptime": comptime,
    "torch.compiler.is_exporting": lambda: lambda x: x + 1 if torch.compiler.is_exporting() else x + 2,
    "torch._dynamo.is_compiling": lambda: lambda x: (torch._dynamo.is_compiling(), x + 1)[1],
    "torch._check": with_check,
    "torch.library.custom_op": custom_op,
}


def attention():
    from torch.nn.attention.flex_attention import flex_attention
    return lambda x: flex_attention(x[None, None], x[None, None], x[None, None])


def operators():
    from torch._higher_order_ops import associative_scan, scan, while_loop
    from torch._higher_order_ops import map as mapped
    return {
        "torch.cond": lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)),
        "while_loop": lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1],
        "scan": lambda x: scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), x)[0],
        "associative_scan": lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic"),
        "map": lambda x: mapped(lambda row: row.sin(), x),
    }


def leaf(x):
    from torch._dynamo.decorators import leaf_function
    marked = leaf_function(lambda x: x.sin())
    marked.register_fake(lambda x: torch.empty_like(x))
    return lambda x: marked(x)


def numpy_sine():
    return torch.compiler.wrap_numpy(np.sin)


def patches(x):
    with torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True):
        return x + 1


OF_TORCH = r"unknown_callable: call of torch\.ops\.higher_order\.\w+, which is not known to be safe"
# Row -> what makes the function, and the reason, as the message of fullgraph=True has it.
BREAKS = {
    "torch.cond": (lambda: operators()["torch.cond"], OF_TORCH),
    "while_loop": (lambda: operators()["while_loop"], OF_TORCH),
    "scan": (lambda: operators()["scan"], OF_TORCH),
    "associative_scan": (lambda: operators()["associative_scan"], "mode_entered: a functorch transform is entered"),
    "map": (lambda: operators()["map"], OF_TORCH),
    "flex_attention": (attention, "mode_entered: a functorch transform is entered"),
    "torch._dynamo.decorators.leaf_function": (lambda: leaf(None), OF_TORCH),
    "torch.compiler.wrap_numpy": (numpy_sine, r"data_dependent_value: Tensor\.numpy\(\) needs the data of a tensor"),
    "torch._dynamo.patch_dynamo_config": (lambda: patches, "made_in_trace: a class statement cannot be traced"),
    "torch._dynamo.graph_break": (calls(lambda: torch._dynamo.graph_break()), "explicit_break: graph break requested"),
    "torch._dynamo.disable": (no_change(lambda f: torch._dynamo.disable(f)), "disabled_function: call of a function"),
    "torch.compiler.disable": (no_change(lambda f: torch.compiler.disable(f)), "disabled_function: call of a function"),
}


@pytest.fixture
def dynamo():
    import torch._dynamo
    yield torch._dynamo
    torch._dynamo.reset()
    framejit.reset()


class TestFunctions:
    @pytest.mark.parametrize("row", CAPTURED)
    def test_one_graph(self, row, dynamo):
        x, f = torch.randn(4), CAPTURED[row]()
        same(framejit.compile(f, fullgraph=True)(x), f(x))
        assert framejit.stats()["graphs"] == 1

    def test_a_condition_that_does_not_hold_is_eagers_error(self):
        compiled = framejit.compile(with_check())
        compiled(torch.ones(3))
        with pytest.raises(RuntimeError, match="^too short$"):
            compiled(torch.ones(2))
        assert framejit.stats()["break_reasons"] == {"exception_raised": 1}

    @pytest.mark.nothing_captured
    @pytest.mark.parametrize("row", BREAKS)
    def test_a_graph_break_says_why(self, row, dynamo):
        make, message = BREAKS[row]
        with pytest.raises(framejit.GraphBreakError, match=f"graph break with fullgraph=True: {message}") as error:
            framejit.compile(make(), fullgraph=True)(torch.randn(4, 4))
        assert "\nhint: " in str(error.value) and framejit.stats()["graph_breaks"] == 1

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")  # torch's own: flex_attention without torch.compile
    @pytest.mark.parametrize("row, reason", [("torch.cond", "unknown_callable"), ("map", "unknown_callable"),
                                             ("associative_scan", "mode_entered"), ("flex_attention", "mode_entered"),
                                             ("torch.compiler.wrap_numpy", "data_dependent_value")])
    def test_after_a_break_the_result_is_eagers(self, row, reason, dynamo):
        f, x = BREAKS[row][0](), torch.randn(4, 4)
        compiled = framejit.compile(lambda x: f(x * 2) + 1)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), f(x * 2) + 1)
        assert framejit.stats()["break_reasons"].copy()[reason] > 0 and framejit.stats()["fallbacks"] == 0

    def test_counters_have_nothing_of_framejit(self, dynamo):
        dynamo.utils.counters.clear()
        framejit.compile(lambda x: x + 1)(torch.ones(3))
        assert not dynamo.utils.counters and framejit.stats()["graphs"] == 1

    def test_disabled_by_error_on_graph_break_is_no_error(self, dynamo):
        def f(x):
            with torch._dynamo.error_on_graph_break(True):
                x = x + 1
                print(end="")
            return x * 2
        check(f, torch.randn(3), breaks=1, compiles=2)


ARGUMENTS = {
    "name": ({"name": "a"}, TypeError, "'name'; framejit has no names for compiled functions; known: fullgraph"),
    "recompile_limit": ({"recompile_limit": 3}, TypeError, "FRAMEJIT_ENTRIES sets the limit for the whole process"),
    "isolate_recompiles": ({"isolate_recompiles": True}, TypeError,
                           "callables compiled with different settings never share entries"),
    "shapes_spec": ({"shapes_spec": {}}, TypeError, "use framejit.mark_dynamic and framejit.mark_static"),
    "options of inductor": ({"options": {"triton.cudagraphs": True}}, ValueError,
                            "unknown option 'triton.cudagraphs'; 'graphs' replays the work of a GPU; known: "),
    "mode and options": ({"mode": "default", "options": {"graphs": True}}, ValueError,
                         "mode and options cannot be given together"),
}
GUARD_FILTERS = ("keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
                 "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe", "skip_all_guards_unsafe")


@pytest.mark.nothing_captured
class TestErrors:
    @pytest.mark.parametrize("row", ARGUMENTS)
    def test_of_an_argument(self, row):
        settings, kind, message = ARGUMENTS[row]
        with pytest.raises(kind, match=re.escape(message)):
            framejit.compile(lambda x: x, **settings)

    @pytest.mark.parametrize("name", GUARD_FILTERS)
    def test_no_guard_can_be_left_out(self, name):
        with pytest.raises(ValueError, match="'guard_filter_fn'; framejit leaves out no guard; known: 'autotune'"):
            framejit.compile(lambda x: x, options={"guard_filter_fn": getattr(torch.compiler, name)})


# ---- export


class TestExport:
    @pytest.fixture
    def modules(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
        return net, framejit.compile(net), torch.randn(2, 4)

    def test_torch_export(self, modules):
        net, compiled, x = modules
        same(compiled(x), net(x))
        exported = torch.export.export(compiled, (x,))
        assert torch.equal(exported.module()(x), net(x)) and "aten.linear" in str(exported.graph)
        assert framejit.stats()["break_reasons"] == {"memory_address": 1}

    @pytest.mark.slow
    @pytest.mark.nothing_captured
    @pytest.mark.filterwarnings("ignore")  # of torch's compiler, about framejit's C function
    def test_strict_export_takes_the_original_only(self, modules, dynamo):
        net, compiled, x = modules
        with pytest.raises(Exception, match="framejit"):
            torch.export.export(compiled, (x,), strict=True)
        assert torch.equal(torch.export.export(net, (x,), strict=True).module()(x), net(x))

    @pytest.mark.nothing_captured
    def test_symbolic_trace(self, modules):
        net, compiled, x = modules
        assert torch.equal(torch.fx.symbolic_trace(compiled)(x), net(x))
        with pytest.raises(Exception, match="ArmedCall"):
            torch.fx.symbolic_trace(framejit.compile(lambda x: x + 1))


# ---- distributed


@pytest.fixture
def one_process(tmp_path):
    import torch.distributed as dist
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("not tested: gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


class TestDistributed:
    def test_a_module_in_data_parallel_is_one_graph(self, one_process):
        torch.manual_seed(0)
        net, x = nn.Linear(4, 4), torch.randn(2, 4)
        parallel = nn.parallel.DistributedDataParallel(framejit.compile(net))
        with torch.enable_grad():
            for _ in range(2):
                net.weight.grad = None
                parallel(x).sum().backward()
        torch.testing.assert_close(net.weight.grad, x.sum(0).expand(4, 4))
        stats = framejit.stats()
        assert (stats["graphs"], stats["graph_breaks"], stats["backward_runs"]) == (1, 0, 2)

    @pytest.mark.nothing_captured  # without gradients, a part of the module runs in every small piece
    def test_data_parallel_in_compiled_code_breaks(self, one_process):
        net, x = nn.Linear(4, 4), torch.randn(2, 4)
        parallel = nn.parallel.DistributedDataParallel(net)
        torch.testing.assert_close(framejit.compile(parallel)(x), net(x))
        assert framejit.stats()["break_reasons"].copy()["unknown_callable"] > 0 and framejit.stats()["fallbacks"] == 0

    @pytest.mark.parametrize("kind", ["in place", "functional"])
    def test_collectives_break(self, one_process, kind):
        def in_place(x):
            y = x * 2
            one_process.all_reduce(y)
            return y + 1

        def functional(x):
            from torch.distributed._functional_collectives import all_reduce
            return all_reduce(x * 2, "sum", one_process.group.WORLD) + 1
        f, x = in_place if kind == "in place" else functional, torch.randn(3)
        with pytest.raises(framejit.GraphBreakError, match="unknown_callable: call of .*\n(.*\n)*hint: "):
            framejit.compile(f, fullgraph=True)(x)
        assert framejit.stats()["break_reasons"] == {"unknown_callable": 1}
        framejit.reset()
        same(framejit.compile(f)(x), x * 2 + 1)
        assert framejit.stats()["break_reasons"].copy()["unknown_callable"] > 0 and framejit.stats()["fallbacks"] == 0

    @pytest.mark.nothing_captured
    def test_tensors_of_many_devices_run_plainly(self, one_process, capfd):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        x = torch.randn(4)
        spread = distribute_tensor(x, init_device_mesh("cpu", (1,)), [Shard(0)])
        with pytest.raises(framejit.GraphBreakError, match="_tensor: x, a tensor of the subclass DTensor, cannot"):
            framejit.compile(lambda x: x * 2, fullgraph=True)(spread)
        assert framejit.stats()["graph_breaks"] == 1
        framejit.reset()
        same(framejit.compile(lambda x: x * 2 + 1)(spread).full_tensor(), x * 2 + 1)
        assert set(framejit.stats()["break_reasons"].copy()) == {"unsupported_tensor"}


# ---- no row without a test

# File::test -> the rows that it runs.
ELSEWHERE = {
    "test_api.py::test_methods_and_callables": ["model"],
    "test_api.py::test_fullgraph_names_place_cause_and_remedy": ["fullgraph"],
    "test_api.py::test_disable": ["disable"],
    "test_api.py::test_modes_of_torch_are_accepted": ["mode", 'mode="default"', 'mode="reduce-overhead"'],
    "test_api.py::test_modes_are_options": ["options", "list_mode_options"],
    "test_api.py::test_list_backends_names_what_compile_takes": ['backend="framejit"', 'backend="eager"',
                                                                 'backend="interp"'],
    "test_jit_trace.py::test_under_jit_trace_the_program_runs_plainly": ["torch.jit.trace"],
    "test_sizes.py::": ["dynamic"],
    "test_autotune.py::test_equal_to_eager_and_every_choice_is_named": ['mode="max-autotune"',
                                                                        'mode="max-autotune-no-cudagraphs"'],
    "test_is_compiling.py::": ["torch.compiler.is_compiling", "torch.compiler.is_dynamo_compiling"],
    "test_torch_compiler.py::test_of_torch": ["backend", 'backend="inductor"', 'backend="cudagraphs"',
                                              'backend="aot_eager"'],
    "test_torch_compiler.py::test_others_are_errors": ["any other name"],
    "test_torch_compiler.py::test_a_nested_region_is_traced_like_any_call": ["torch.compiler.nested_compile_region"],
    "test_torch_compiler.py::test_is_asked_once": ["torch.compiler.assume_constant_result",
                                                   "torch._dynamo.assume_constant_result"],
    "test_torch_compiler.py::test_torchs_reset_resets_what_was_compiled": ["torch.compiler.reset",
                                                                           "torch._dynamo.reset"],
    "test_torch_compiler.py::test_is_listed": ["torch.compiler.list_backends", "torch._dynamo.lookup_backend",
                                               "torch._dynamo.register_backend"],
    "test_torch_compiler.py::test_as_torchs_default": ["torch.compiler.set_default_backend",
                                                       "torch.compiler.get_default_backend"],
    "test_torch_compiler.py::test_a_function": ["torch.compiler.compile"],
    "test_torch_compiler.py::test_settings_of_torch_are_said_once": ["torch.compiler.config"],
    "test_torch_compiler.py::test_force_eager": ["torch.compiler.set_stance", "torch._dynamo.set_stance",
                                                 'set_stance("default")', 'set_stance("force_eager")'],
    "test_torch_compiler.py::test_eager_on_recompile": ['set_stance("eager_on_recompile")'],
    "test_torch_compiler.py::test_fail_on_recompile": ['set_stance("fail_on_recompile")'],
    "test_torch_compiler.py::test_eager_then_compile": ['set_stance("eager_then_compile")',
                                                        'set_stance("aot_eager_then_compile")'],
    "test_torch_compiler.py::test_what_a_stance_asks_for_and_is_not_done_is_said_once":
        ["set_stance(skip_guard_eval_unsafe=True)", "set_stance(force_backend=...)"],
    "test_torch_compiler.py::test_torchs_marks_make_symbols": ["torch._dynamo.mark_dynamic",
                                                               "torch._dynamo.maybe_mark_dynamic",
                                                               "torch._dynamo.decorators.mark_unbacked"],
    "test_torch_compiler.py::test_static_sizes_stay_constants": ["torch._dynamo.mark_static"],
    "test_torch_compiler.py::test_marks_of_addresses_change_nothing": ["torch._dynamo.mark_static_address"],
}
HERE = {"torch._dynamo.utils.counters", "torch.export.export", "torch.fx.symbolic_trace", "DistributedDataParallel",
        "DTensor", "torch._higher_order_ops"}
# Torch's own work, of which framejit sees nothing.
UNSEEN = {"torch.compiler.save_cache_artifacts", "torch.compiler.load_cache_artifacts",
          "torch.compiler.load_compiled_function", "torch._inductor.aoti_compile_and_package", "torch._dynamo.explain",
          "fully_shard"}


@pytest.mark.nothing_captured
def test_every_row_that_promises_something_is_run():
    for test in ELSEWHERE:
        file, _, name = test.partition("::")
        assert f"def {name or 'test_'}" in (ROOT / "tests/e2e" / file).read_text(), test
    settings = {name for _, name in settings_on_the_page()} | {"cache_size_limit"}
    run = {row for rows in ELSEWHERE.values() for row in rows} | HERE | UNSEEN | {*CAPTURED, *BREAKS, *ARGUMENTS}
    run |= {f"torch.compiler.{name}" for name in GUARD_FILTERS}
    run |= {f"{module}.{name}" for module, name, _, _ in torch_settings.SETTINGS}
    promises = {row for row, state in page_rows().items() if state != "no effect"} - settings
    assert len(promises) > 60 and promises - run == set()
