"""The comparison that the other tests rely on: it refuses what the contract refuses, and its float64 reference is a
real one."""
import collections
import functools
import types

import pytest
import torch
import torch.nn.functional as F

import framejit
from bounds import norms, ulp
from check import check, fresh, same  # noqa: F401
import wide_attention
from wide import in_float64

pytestmark = pytest.mark.nothing_captured
HALF = [torch.bfloat16, torch.float16]
FLOATS = [*HALF, torch.float32, torch.float64]


def refused(*args, **kwargs):
    with pytest.raises(AssertionError) as raised:
        same(*args, **kwargs)
    return str(raised.value)


def instead_of(monkeypatch, wrong):
    """Makes framejit.compile return `wrong(fn)`."""
    monkeypatch.setattr(framejit, "compile", lambda fn, **options: wrong(fn))


class TestWithoutReference:
    """2 ulp of each element; 8 for float32."""

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_values(self, dtype):
        eager = torch.linspace(-2, 2, 100, dtype=torch.float64).to(dtype)
        ulp = torch.finfo(dtype).eps * {torch.float64: 16, torch.float32: 4}.get(dtype, 1)
        same(eager.clone(), eager)
        same(eager * (1 + ulp), eager)
        for wrong in (eager * (1 + 4 * ulp), eager + 5 * ulp, eager * (1 - 4 * ulp), -eager, torch.zeros_like(eager)):
            assert "off by" in refused(wrong, eager)

    @pytest.mark.parametrize("dtype,factor", [(torch.bfloat16, 1.05), (torch.float16, 1.01), (torch.float32, 1.000002)])
    def test_a_few_percent(self, dtype, factor):
        eager = torch.randn(50).to(dtype)
        refused(eager * factor, eager)
        refused([eager, {"k": (eager * factor,)}], [eager, {"k": (eager,)}])

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_one_element(self, dtype):
        eager = torch.ones(1000, dtype=dtype)
        wrong = eager.clone()
        wrong[7] = 1 + 64 * torch.finfo(dtype).eps
        refused(wrong, eager)

    def test_many_elements_that_are_each_near(self):
        eager = torch.zeros(10_000, dtype=torch.bfloat16)
        eager[0] = 1
        refused(eager + 2 ** -7, eager)

    def test_special_values(self):
        eager = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
        same(eager.clone(), eager)
        for k, value in ((0, float("nan")), (1, 1.0), (2, 3e38), (3, float("inf"))):
            wrong = eager.clone()
            wrong[k] = value
            refused(wrong, eager)

    @pytest.mark.parametrize("wrong", [
        lambda t: t.double(), lambda t: t.T.contiguous().T, lambda t: t[
            :1], lambda t: t.clone().requires_grad_(), lambda t: torch.cat([t, t])[2:], torch.nn.Parameter, list,
    ], ids=["dtype", "strides", "shape", "requires_grad", "offset", "class", "list"])
    def test_what_is_not_a_value(self, wrong):
        eager = torch.arange(6.0).view(2, 3)
        refused(wrong(eager), eager)

    def test_integers_and_structure(self):
        for got, eager in ((torch.tensor([1, 2]), torch.tensor([1, 3])), (torch.tensor([True]), torch.tensor([False])),
                           ([1], [1, 2]), ((1,), [1]), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
                           (0.0, -0.0), (1, True), (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2))):
            refused(got, eager)


class Text(str):
    pass


class Number(int):
    pass


class Set(set):
    pass


class List(list):
    pass


class Dict(dict):
    pass


class Silent(Exception):
    def __str__(self):
        return "no"


class Caller:
    def __init__(self, value):
        self.value = value

    def __call__(self):
        return self.value

    def method(self):
        return self.value


def with_attribute(value, tag):
    value.tag = tag
    return value


def linear(**attributes):
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def changed(change):
    made = linear()
    with torch.no_grad():
        change(made)
    return made


class TestWhatValuesHold:
    PAIRS = {
        "text": lambda k: Text("ab"[k]), "number": lambda k: Number(k), "set": lambda k: Set([k]),
        "of a text": lambda k: with_attribute(Text("a"), k), "of a number": lambda k: with_attribute(Number(1), k),
        "of a list": lambda k: with_attribute(List([1]), k), "of a dict": lambda k: with_attribute(Dict(a=1), k),
        "of a tensor": lambda k: with_attribute(torch.ones(2), k),
        "of an error": lambda k: with_attribute(Silent(1), k), "of a caller": Caller, "error": Silent,
        "method": lambda k: Caller(k).method, "default": lambda k: collections.defaultdict((int, float)[k], a=1),
        "maxlen": lambda k: collections.deque([1], 3 + k), "partial": lambda k: functools.partial(print, k),
        "keywords": lambda k: functools.partial(print, end=str(k)),
        "attribute of a module": lambda k: linear(tag=k),
        "buffer": lambda k: changed(lambda m: m[0].running_var.add_(k)),
        "parameter": lambda k: changed(lambda m: m[1].weight.mul_(1 + k)),
        "training": lambda k: changed(lambda m: m[0].train(bool(k))),
        "requires_grad": lambda k: changed(lambda m: m[1].bias.requires_grad_(bool(k))),
        "no parameter": lambda k: changed(lambda m: m[1].register_parameter("bias", None) if k else None),
        "hook": lambda k: changed(lambda m: m[1].register_forward_hook(print) if k else None),
    }

    @pytest.mark.parametrize("name", PAIRS)
    def test_refuses(self, name):
        make = self.PAIRS[name]
        same(make(0), make(0))
        refused(make(1), make(0))
        refused([make(1)], [make(0)])

    def test_what_holds_itself(self):
        def ring(k):
            made = linear(others=[k])
            made.others.append(made)
            return made
        same(ring(0), ring(0))
        refused(ring(1), ring(0))


class Average(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.calls = 0

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.calls += 1
        return x - self.mean


class TestOfElements:
    """Norms of a large tensor hide one element."""

    @staticmethod
    def with_one_wrong(dtype, by):
        """100,000 elements, one of them large; and the same with another element off by this many times its value."""
        eager = torch.randn(100_000).to(dtype)
        eager[0] = 64 / ulp(dtype)
        wrong = eager.clone()
        wrong[777] *= 1 + by
        off = wrong.double() - eager.double()
        assert all(o <= 2 * ulp(dtype) * n for o, n in zip(norms(off), norms(eager.double()))), "norms show it too"
        return eager, wrong

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
    def test_one_of_many(self, dtype):
        eager, wrong = self.with_one_wrong(dtype, 2)
        runs = []

        def reference(noise=None):
            runs.append(noise)
            return eager.double() * (1 if noise is None else 1 + ulp(dtype))
        for ref64 in (None, eager.double(), reference):
            same(eager.clone(), eager, ref64)
            assert "1 of 100000 elements differ" in refused(wrong, eager, ref64)
        assert runs == [None, *range(16)], "all disturbed runs were asked"

    @pytest.mark.cpu_only("the bound and the counts are wider there")
    def test_what_roundings_move_may_be_off(self):
        eager, wrong = self.with_one_wrong(torch.float32, 2)
        off = (wrong - eager).abs().double()
        for part, fits in ((1 / 4, True), (1 / 16, False)):
            def reference(noise=None):
                return eager.double() + (0 if noise is None else off * part)
            (same if fits else refused)(wrong, eager, reference)

    def test_signs_of_zeros(self):
        eager = torch.tensor([0.0, -0.0, 1.0])
        same(eager.clone(), eager)
        for exact in (None, eager.double()):
            assert "signs of 2 zeros" in refused(torch.tensor([-0.0, 0.0, 1.0]), eager, exact)
        # Where eager's zero is a rounding, its sign says nothing.
        same(torch.tensor([-0.0]), torch.tensor([0.0]), torch.tensor([1e-60], dtype=torch.float64))
        refused(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-30]))


class TestWithReference:
    def test_eagers_own_error_twice(self):
        eager, exact = torch.ones(100), torch.ones(100, dtype=torch.float64) + 1e-4
        for off, fits in ((0.0, True), (1.9e-4, True), (2.1e-4, False), (-2.1e-4, False)):
            got = (exact + off).float()
            same(got, eager, exact) if fits else refused(got, eager, exact)
        refused((exact + 1.9e-4).float(), eager)

    def test_is_none_if_roundings_do_not_explain_how_far_eager_is(self):
        eager, exact = torch.ones(100), torch.ones(100, dtype=torch.float64)
        exact[3] += 1e-3
        wrong = torch.where(exact > 1, 1 + 1e-4, 1.0).float()
        for moved, fits in ((1e-3, True), (1e-4, True), (1e-5, False)):
            def reference(noise=None):
                return exact + (0 if noise is None else moved)
            (same if fits else refused)(wrong, eager, reference)

    def test_is_asked_only_where_it_is_needed(self):
        asked = []
        eager = torch.ones(3)
        same([eager.clone()], [eager], lambda: asked.append(1))
        assert not asked
        refused([eager * 2], [eager], lambda *noise: asked.append(1))
        assert asked


class TestCheck:
    """check() itself, when compile is replaced by something else."""

    PROGRAMS = {
        "a few percent": lambda fn: lambda x: fn(x) * 1.05,
        "another op": lambda fn: lambda x: fn(x) - x,
        "a cast that is left out": lambda fn: lambda x: fn(x.float()).to(x.dtype),
        "writes": lambda fn: lambda x: fn(x.mul_(2)) if x.sum() > 1e9 else (fn(x), x.mul_(2))[0],
        "the argument itself": lambda fn: lambda x: x,
        "another error": lambda fn: lambda x: x.view(-1, 7),
    }

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_refuses(self, name, dtype, monkeypatch):
        def fn(x):
            return torch.softmax(x, -1) * 3 if name != "a cast that is left out" else x.to(
                torch.bfloat16).sin().float() * x
        if name == "a cast that is left out":
            if dtype in HALF:
                return
            instead_of(monkeypatch, lambda _: lambda x: x.sin() * x)
        else:
            instead_of(monkeypatch, self.PROGRAMS[name])
        with pytest.raises(AssertionError):
            check(fn, torch.randn(4, 32).to(dtype), compiles=0)

    CHANGES = {"nothing": lambda m: None, "a buffer": lambda m: m.mean.fill_(99), "a flag": lambda m: m.eval(),
               "an attribute": lambda m: setattr(m, "calls", 0)}
    PLACES = {"argument": (lambda m, x: m(x), True), "module": (None, False), "method": (Average.forward, False)}

    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("change", CHANGES)
    def test_state_of_modules(self, change, place, monkeypatch):
        """Of an argument, of the module that is compiled, and of the one whose method is."""
        module = Average()
        fn, is_argument = self.PLACES[place]
        if fn is None:
            fn = module
        elif not is_argument:
            fn = types.MethodType(fn, module)

        def wrong(fn):
            def call(*args):
                result = fn(*args)
                self.CHANGES[change](args[0] if is_argument else module)
                return result
            return call
        instead_of(monkeypatch, wrong)
        args = [module] * is_argument + [torch.randn(6, 4)]
        if change == "nothing":
            check(fn, *args, compiles=0)
        else:
            with pytest.raises(AssertionError):
                check(fn, *args, compiles=0)

    @pytest.mark.cpu_only("NumPy has no arrays there")
    @pytest.mark.parametrize("place", ["argument", "made in the program"])
    def test_writes_that_the_reference_does_not_see(self, place, monkeypatch):
        """Those of NumPy. Eager is the reference then."""
        def program(factor):
            def fn(x):
                x = x if place == "argument" else x * 2
                x.numpy().__imul__(1000)
                return x * factor + 1
            return fn
        instead_of(monkeypatch, lambda _: program(1 + 2 ** -22))
        check(program(1), torch.rand(8), compiles=0)
        instead_of(monkeypatch, lambda _: program(0.99))
        with pytest.raises(AssertionError, match="off by"):
            check(program(1), torch.rand(8), compiles=0)

    def test_the_state_of_the_generator(self, monkeypatch):
        instead_of(monkeypatch, lambda fn: lambda x: (fn(x), torch.rand(1))[0])
        with pytest.raises(AssertionError, match="generator"):
            check(lambda x: x + torch.rand(2), torch.ones(2), compiles=0)

    def test_what_errors_hold(self, monkeypatch):
        def raises(tag):
            def fn(x):
                raise with_attribute(Silent(tag[0]), tag[1])
            return fn
        for tag in ((1, 0), (0, 1)):
            instead_of(monkeypatch, lambda _: raises(tag))
            with pytest.raises(AssertionError, match="of the error"):
                check(raises((0, 0)), torch.ones(2), compiles=0)

    @pytest.mark.parametrize("dtype", HALF)
    def test_accepts_the_program_in_float32(self, dtype, monkeypatch):
        """What a fused kernel may do: round once, at the end."""
        def fn(x):
            for _ in range(6):
                x = torch.softmax(x * 1.7 - x.mean(-1, keepdim=True), -1) + x
            return x
        instead_of(monkeypatch, lambda _: lambda x: fn(x.float()).to(dtype))
        check(fn, torch.randn(4, 32).to(dtype), compiles=0)

    SUMS = {"sums": lambda x: x.sum(-1), "products": lambda x: (x @ x.mT)[:, 5],
            "means of roots": lambda x: (x + x.abs().sqrt() * x[0, 0]).mean(-1)}

    @pytest.mark.parametrize("dtype,by", [(torch.bfloat16, 8), (torch.float16, 2), (torch.float32, 1e-4),
                                          (torch.float64, 1e-11)])
    @pytest.mark.parametrize("name", SUMS)
    def test_accepts_other_orders_and_no_wrong_element(self, name, dtype, by, monkeypatch):
        """Where terms cancel, eager is right by luck. A wrong element is not bad luck. Norms show neither."""
        fn = self.SUMS[name]
        x = (torch.randn(40, 96, dtype=torch.float64) * torch.logspace(-4, 0, 40)[:, None]).to(dtype)
        x[:, 0] = x[0, 0]
        reordered = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(95)])
        instead_of(monkeypatch, lambda _: lambda x: fn(x[:, reordered]))
        check(fn, x, compiles=0)

        def wrong(x):
            result = fn(x[:, reordered])
            result[3] *= 1 + by
            return result
        instead_of(monkeypatch, lambda _: wrong)
        with pytest.raises(AssertionError, match="1 of 40 elements differ"):
            check(fn, x, compiles=0)

    @pytest.mark.breaks(outside_effect=1)  # of the check that differs in its graphs already
    @pytest.mark.cpu_only("the bound and the counts are wider there")
    def test_counts(self):
        for told, stated in (("1 graphs, 0 breaks and 0 fallbacks instead of", {"compiles": 2}),
                             ("instead of", {"breaks": 1}), ("instead of", {"fallbacks": 1})):
            with pytest.raises(AssertionError, match=told):
                check(lambda x: x + 1, torch.ones(2), **stated)
        check(lambda x: x + 1, torch.ones(2))

        def breaks(x):
            x = x + 1
            print(end="")
            return x * 2
        with pytest.raises(AssertionError, match="2 graphs, 1 breaks"):
            check(breaks, torch.ones(2))
        check(breaks, torch.ones(2), compiles=2, breaks=1)

    @pytest.mark.cpu_only("an index that is out of range ends the process")
    def test_counts_of_programs_that_raise(self):
        """The raise itself does not count as a break; another break does."""
        def fails(x):
            x = x + 1
            raise ValueError("no")

        def breaks_and_fails(x):
            print(end="")
            fails(x)
        check(fails, torch.ones(2))
        check(fails, torch.ones(2), breaks=1)
        check(lambda x, i: x[i], torch.ones(2), torch.tensor([2]))
        with pytest.raises(AssertionError, match="1 breaks"):
            check(breaks_and_fails, torch.ones(2))

    @pytest.mark.cpu_only("the bound and the counts are wider there")
    def test_each_backend_is_counted(self, monkeypatch):
        """One backend's counts say nothing about the other's."""
        real = framejit.compile
        monkeypatch.setattr(framejit, "compile", lambda fn, backend: real(fn, backend=backend) if backend == "eager"
                            else fn)
        with pytest.raises(AssertionError, match="0 graphs"):
            check(lambda x: x + 1, torch.ones(2))


class TestInFloat64:
    @staticmethod
    def assert_is(fn, wide, *args):
        """Asserts that the reference of `fn` is `wide` on the arguments in float64, to the last bits."""
        result, after, _ = in_float64(fn, [a.clone() for a in args])
        doubles = [a.double() if a.dtype.is_floating_point else a.clone() for a in args]
        torch.testing.assert_close(result, wide(*doubles), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(after, doubles, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("dtype", [*HALF, torch.float32])
    @pytest.mark.parametrize("fn", [
        lambda x, y: torch.softmax(x @ y.T / 3, -1).exp().mean(0),
        lambda x, y: F.layer_norm(F.gelu(x) + y, (8,)),
        lambda x, y: torch.where(y > 0, x, 0.1) + torch.full_like(x, 0.3) + torch.zeros(8, dtype=x.dtype),
        lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None])[0, 0],
        lambda x, y: torch.cat([x, y]).sort(0)[0][1:].sum(),
    ], ids=range(5))
    def test_ops(self, fn, dtype):
        self.assert_is(fn, fn, torch.randn(4, 8).to(dtype), torch.randn(4, 8).to(dtype))

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("has_bias", [False, True])
    def test_attention_of_a_gpu(self, has_bias, causal):
        """The forms of the GPU's kernels, and of their backward, are those of torch's own attention in float64."""
        q, k, v = (torch.randn(2, 3, n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7))
        bias = torch.randn(2, 1, 5, 7, dtype=torch.float64, requires_grad=True) if has_bias else None
        mask = torch.zeros(5, 7).masked_fill(torch.ones(5, 7).triu(1) == 1, -torch.inf) if causal else torch.zeros(5, 7)
        with torch.enable_grad():
            want = F.scaled_dot_product_attention(q, k, v, mask.double() if bias is None else mask + bias, scale=0.7)
            grad = torch.randn_like(want)
            wanted = torch.autograd.grad(want, [q, k, v] + [bias] * has_bias, grad)
        got, sums = wide_attention.attention(q, k, v, bias, 0.0, causal, 0.7)
        torch.testing.assert_close(got, want)
        made = wide_attention.attention_backward(grad, q, k, v, bias, 0.0, causal, 0.7)
        for mine, theirs in zip(made, wanted):
            torch.testing.assert_close(mine, theirs)
        assert sums.shape == (2, 3, 5)

    def test_dropout_keeps_what_it_has_drawn(self):
        def fn(x):
            kept, mask = torch.native_dropout(x.exp(), 0.25, True)
            return kept.sum(0), mask
        x = torch.randn(50, 3)
        torch.manual_seed(0)
        (result, mask), _, _ = in_float64(fn, [x])
        torch.testing.assert_close(result, (x.double().exp() * mask / 0.75).sum(0), rtol=1e-12, atol=1e-12)

    def test_views_and_writes(self):
        def fn(x, y):
            x[:, 1:].transpose(0, 1).mul_(y.sum())
            z = x.view(-1)
            x.add_(0.1)
            z[::2] = 0.75
            return (z / 3).sum()
        self.assert_is(fn, fn, torch.randn(4, 8).bfloat16(), torch.randn(3).bfloat16())

    def test_memory_that_is_freed_and_used_again(self):
        """set_() leaves memory without a tensor."""
        def fn(x):
            made = [x.clone().set_(torch.ones(8)) + x for _ in range(20)]
            return torch.stack(made)
        self.assert_is(fn, lambda x: (1 + x).expand(20, 8), torch.rand(8))

    def test_explicit_casts_round_and_nothing_else(self):
        def fn(x):
            return (x * 1.1).to(torch.bfloat16).float() * 1.1
        self.assert_is(fn, lambda x: (x * 1.1).bfloat16().double() * 1.1, torch.randn(50))
        self.assert_is(lambda x: (x * 1.1).float(), lambda x: x * 1.1, torch.randn(50).bfloat16())

    def test_branches_and_integers_are_eagers(self):
        x = torch.tensor([1.0, 1.0 + 2 ** -8]).bfloat16() * 3
        result, _, _ = in_float64(lambda x: ((x * 1.01).argmax(), (x * 1.01 > 3.04).tolist(), x.dtype,
                                             (x * 1.01)[0].item()), [x])
        assert result == [(x * 1.01).argmax(), (x * 1.01 > 3.04).tolist(), torch.bfloat16, (x * 1.01)[0].item()]

    def test_random_numbers_are_eagers(self):
        before = torch.get_rng_state()
        result, _, _ = in_float64(lambda: torch.rand(5) / 3, seed=3)
        assert torch.equal(before, torch.get_rng_state())
        torch.manual_seed(3)
        assert torch.equal(result, torch.rand(5).double() / 3)

    def test_a_module(self):
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(),
                                  torch.nn.Linear(16, 5)).eval().bfloat16()
        x = torch.randn(2, 3, 4, 4).bfloat16()
        result, _, _ = in_float64(net, [x])
        torch.testing.assert_close(result, net.double()(x.double()), rtol=1e-12, atol=1e-12)
