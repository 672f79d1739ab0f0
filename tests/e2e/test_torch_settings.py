"""The settings of torch on docs/from_torch_compile.md: which of them are logged, which are ignored, and what framejit
does in place of them."""
import os
import re
import sys

import numpy as np
import pytest
import torch
from torch import nn

import framejit
import programs
from check import check, fresh, same  # noqa: F401
from framejit import torch_settings
from test_torch_compiler import PAGE, page_rows, said

pytestmark = pytest.mark.cpu_only("the page is about the torch of requirements.txt")
SETTINGS_TABLE = r"^\| setting of `([\w.]+)`.*\n\|.*\n((?:\|.*\n)+)"


def modules_of_settings():
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config  # noqa: F401


def settings_on_the_page():
    """(module, setting) of each row of the tables that are ignored without a line."""
    for module, table in re.findall(SETTINGS_TABLE, PAGE.read_text(), re.M):
        for cell in re.findall(r"^\|(.*?)\|", table, re.M):
            for name in re.findall(r"`([\w.]+)`", cell):
                yield module, name


@pytest.mark.nothing_captured
def test_every_setting_on_the_page_is_torchs():
    modules_of_settings()
    named = [tuple(row.rsplit(".", 1)) for row in page_rows() if re.match(r"torch\.[\w.]*config\.", row)]
    named += settings_on_the_page()
    assert len(named) > 100
    for module, setting in named:
        assert setting in sys.modules[module]._config, (module, setting)


def other_than(value):
    """Another value of the same kind, or None if that is not clear."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, (int, float)) else value + "x" if isinstance(value, str) else None


class TestSettings:
    @pytest.mark.parametrize("module, name, usual, instead", torch_settings.SETTINGS, ids=lambda part: str(part)[-24:])
    def test_one_line_says_that_it_is_not_followed(self, module, name, usual, instead):
        modules_of_settings()
        x = torch.randn(3)
        with said() as lines, sys.modules[module].patch({name: other_than(usual)}):
            for _ in range(2):
                same(framejit.compile(lambda x: x + 1)(x), x + 1)
        assert lines == [(f"{module}.{name} is not followed", instead)]

    def test_the_others_are_ignored_without_a_line(self):
        modules_of_settings()
        told = {(module, name) for module, name, _, _ in torch_settings.SETTINGS}
        x, changed = torch.randn(4, 4), 0
        for module, name in settings_on_the_page():
            config = sys.modules[module]
            holder = config
            for part in name.split("."):
                holder = getattr(holder, part)
            value = other_than(holder)
            if value is None or (module, name) in told:
                continue
            framejit.reset()
            with said() as lines, config.patch({name: value}):
                same(framejit.compile(lambda x: (x @ x).relu() + 1)(x), (x @ x).relu() + 1)
            assert lines == [] and framejit.stats()["graphs"] == 1, (module, name)
            changed += 1
        assert changed > 80

    @pytest.mark.slow
    @pytest.mark.nothing_captured
    def test_variables_of_the_environment_are_ignored_without_a_line(self, tmp_path):
        names = re.findall(r"`(TORCH\w+)`", PAGE.read_text().split("| environment variable |")[1].split("\n\n")[0])
        assert len(names) > 8
        values = {"TORCH_LOGS": "graph_breaks", "TORCH_TRACE": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        done = programs.run("import torch, framejit\nf = framejit.compile(lambda x: x.relu() + 1)\n"
                            "for _ in range(3):\n    assert f(torch.ones(3)).tolist() == [2.0] * 3\n"
                            "print(framejit.stats()['graphs'], framejit.stats()['hits'])",
                            env=os.environ | {name: values.get(name, "1") for name in names})
        assert done.returncode == 0 and done.stdout == "1 2\n" and "framejit" not in done.stderr, done.stderr


# ---- what the last column of a setting's row says


class Weights(nn.Module):
    """A parameter and a buffer of n elements each."""

    def __init__(self, n):
        super().__init__()
        self.weight, self.count = nn.Parameter(torch.ones(n)), 0
        self.register_buffer("mask", torch.ones(n))


def graphs_for(function, calls, **settings):
    """How many graphs a function needs for these calls."""
    framejit.reset()
    compiled = framejit.compile(function, **settings)
    for args in calls:
        same(compiled(*args), function(*args))
    return framejit.stats()["graphs"]


class TestWhatSettingsWouldDo:
    def test_specialize_int_and_specialize_float(self):
        for numbers in ((2, 3, 4), (2.5, 3.5, 4.5)):
            calls = [(torch.ones(3), n) for n in numbers]
            assert graphs_for(lambda x, n: x * n, calls) == 2
            assert graphs_for(lambda x, n: x * n, calls, dynamic=False) == 3

    def test_inline_inbuilt_nn_modules(self):
        net, x = nn.Linear(3, 3), torch.randn(2, 3)
        compiled = framejit.compile(net)
        compiled(x)
        net.weight.data = torch.randn(3, 3)
        same(compiled(x), net(x))
        assert framejit.stats()["graphs"] == 1

    def test_guard_nn_modules_and_skip_nnmodule_hook_guards(self):
        net, x = nn.Sequential(nn.Linear(3, 3)), torch.randn(2, 3)
        compiled = framejit.compile(net)
        compiled(x)
        net[0].register_forward_hook(lambda module, args, result: result * 0)
        assert not compiled(x).any() and framejit.stats()["graphs"] == 2

    def test_force_parameter_static_shapes_and_force_nn_module_property_static_shapes(self):
        def graphs(name, wrapped):
            holder = Weights(3)
            compiled = framejit.compile(lambda: getattr(holder, name) * 2)
            for n in (3, 4, 5, 6):
                setattr(holder, name, wrapped(torch.ones(n)))
                assert compiled().tolist() == [2.0] * n
            return framejit.stats()["graphs"]
        assert graphs("weight", nn.Parameter) == 4
        framejit.reset()
        assert graphs("mask", lambda tensor: tensor) == 2

    def test_allow_unspec_int_on_nn_module(self):
        class Counts(Weights):
            def forward(self, x):
                self.count += 1
                return x * self.count
        compiled = framejit.compile(Counts(3))
        for n in range(1, 5):
            assert compiled(torch.ones(2)).tolist() == [n] * 2
        assert framejit.stats()["graphs"] == 2

    def test_nested_graph_breaks(self):
        def inner(x):
            x = x + 1
            print(end="")
            return x * 2
        check(lambda x: inner(x * 3) * 2, torch.randn(3), breaks=1, compiles=3)

    def test_rewrite_assert_with_torch_assert(self):
        def f(x):
            assert x.sum() < 100
            return x + 1

        def g(x):
            torch._assert_async(x.sum() < 100)
            return x + 1
        x = torch.ones(3)
        same(framejit.compile(f)(x), x + 1)
        assert framejit.stats()["break_reasons"] == {"data_dependent_jump": 1} and framejit.stats()["graphs"] == 2
        framejit.reset()
        compiled = framejit.compile(g, fullgraph=True)
        same(compiled(x), x + 1)
        with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value"):
            compiled(x * 100)
        assert framejit.stats()["graphs"] == 1 and framejit.stats()["fallback_reasons"] == {"run_failed": 1}

    def test_side_effect_replay_policy_and_replay_side_effects(self):
        seen = []

        def f(x):
            seen.append(x.shape[0])
            return x + 1
        compiled = framejit.compile(f, fullgraph=True)
        compiled(torch.ones(3)), compiled(torch.ones(3))
        assert seen == [3, 3] and framejit.stats()["graphs"] == 1

    @pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
    def test_allow_rnn(self, kind):
        layer, x = kind(3, 3), torch.randn(5, 2, 3)
        same(framejit.compile(layer, fullgraph=True)(x)[0], layer(x)[0])

    def test_trace_autograd_ops(self):
        weight = torch.ones(3, requires_grad=True)

        def f(x):
            weight.grad = None
            (x * weight).sum().backward()
            return weight.grad + 1
        x = torch.randn(3)
        with torch.enable_grad():
            same(framejit.compile(f, fullgraph=True)(x), x + 1)

    def test_capture_profiler_record_function(self):
        def f(x):
            with torch.profiler.record_function("label"):
                x = x + 1
            return x * 2
        compiled, x = framejit.compile(f), torch.ones(3)
        compiled(x)
        assert framejit.stats()["graph_breaks"] == 0
        with torch.profiler.profile():
            same(compiled(x), (x + 1) * 2)
        assert "unknown_callable" in framejit.stats()["break_reasons"].copy()
        assert framejit.stats()["graphs"] == 3

    def test_capture_func_transforms(self):
        x = torch.randn(3)
        same(framejit.compile(lambda x: torch.func.vmap(torch.sin)(x * 2) + 1)(x), (x * 2).sin() + 1)
        assert framejit.stats()["break_reasons"] == {"mode_entered": 1} and framejit.stats()["graphs"] == 2

    def test_capture_sparse_compute(self, capfd):
        sparse = torch.eye(3).to_sparse()
        assert torch.equal(framejit.compile(lambda s, x: s.sum() + (x + 1).sum())(sparse, torch.ones(3)),
                           torch.tensor(9.0))
        assert framejit.stats()["break_reasons"] == {"unsupported_tensor": 1}

    def test_use_graph_deduplication(self):
        def kernels(rounds):
            def f(x):
                for _ in range(rounds):
                    x = torch.softmax(x @ x, -1)
                return x
            framejit.reset()
            x = torch.randn(64, 64)
            same(framejit.compile(f)(x), f(x))
            assert framejit.stats()["graphs"] == 1
            return framejit.stats()["kernels"]
        assert kernels(3) == kernels(9) > 0

    def test_allow_ignore_mark_dynamic(self):
        import torch._dynamo
        x = torch.randn(4, 2)
        torch._dynamo.mark_dynamic(x, 0)
        same(framejit.compile(lambda x: x * 2 if x.shape[0] == 4 else x)(x), x * 2)

    def test_prefer_deferred_runtime_asserts_over_guards(self):
        report = framejit.explain(lambda x: x * 2 if x.shape[0] > 3 else x, dynamic=True)(torch.ones(5))
        assert any(event.fields["guard"].startswith("3 < s0 where s0") for event in report.guards), report.guards

    def test_trace_numpy(self):
        array = np.ones(3, np.float32)
        same(framejit.compile(lambda x, a: x * torch.from_numpy(a) + 1)(torch.ones(3), array), torch.full((3,), 2.0))
        assert framejit.stats()["break_reasons"] == {"unsupported_operand": 1}

    def test_implicit_fallbacks(self):
        x = torch.eye(3) * 2
        same(framejit.compile(torch.linalg.inv, fullgraph=True)(x), torch.linalg.inv(x))
        assert framejit.stats()["graphs"] == 1 and framejit.stats()["kernels"] == 0

    def test_fallback_random(self):
        def f(x):
            return torch.rand_like(x) + torch.randn(3)
        x = torch.ones(3)
        torch.manual_seed(7)
        eager = f(x)
        torch.manual_seed(7)
        assert torch.equal(framejit.compile(f, fullgraph=True)(x), eager)

    def test_donated_buffer(self):
        x = torch.randn(3, requires_grad=True)
        with torch.enable_grad():
            y = framejit.compile(lambda x: x.sin().exp())(x).sum()
            first, = torch.autograd.grad(y, x, retain_graph=True)
            kept = first.clone()
            second, = torch.autograd.grad(y, x)
        assert torch.equal(first, kept) and torch.equal(second, kept)

    def test_enable_activation_offloading(self):
        x = torch.randn(3, requires_grad=True)
        with torch.enable_grad():
            with torch.autograd.graph.save_on_cpu():
                y = framejit.compile(lambda x: x.sin().exp())(x)
            ours, = torch.autograd.grad(y.sum(), x)
            eager, = torch.autograd.grad(x.sin().exp().sum(), x)
        torch.testing.assert_close(ours, eager)
