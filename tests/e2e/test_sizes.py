"""Sizes that differ from call to call, and ints: how often they compile, and that every result equals eager's."""
import gc
import math
import random
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import backend, fresh, same, same_as  # noqa: F401
from framejit import _framejit

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import demo  # noqa: E402


def runs(fn, calls, backend, **options):
    """Compares every call with eager; returns the number of compiled graphs."""
    compiled = framejit.compile(fn, backend=backend, **options)
    for args in calls:
        same_as(fn, compiled(*args), *args)
    assert framejit.stats()["fallbacks"] == 0
    return framejit.stats()["graphs"]


def pairs(count, seed):
    """Distinct (batch, length) pairs; no later one shares a size with the first, and none is square: no two sizes are
    equal by chance."""
    rng, found = random.Random(seed), []
    while len(found) < count:
        pair = rng.randint(2, 6), rng.randint(8, 24)
        if all(pair[0] != p[0] and pair[1] != p[1] for p in found[:1]) and pair not in found:
            found.append(pair)
    return found


def rows(n):
    return torch.rand(2, n, 8)


def image(n):
    return torch.rand(1, 3, n + 4, n + 5)


def matrix(n):
    return torch.rand(n, n) + n * torch.eye(n)


ATTENTION = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
LAYER = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
BAG = torch.nn.EmbeddingBag(20, 8)
OF_ANY_SIZE = {
    "attention": (lambda x: ATTENTION(x, x, x), rows),
    "attention_alone": (lambda x: ATTENTION(x, x, x, need_weights=False)[0], rows),
    "encoder_layer": (lambda x: LAYER(x), rows),
    "sdpa_of_one_head": (lambda x: F.scaled_dot_product_attention(x, x, x), rows),
    "sdpa_mask": (lambda x, m: F.scaled_dot_product_attention(x, x, x, m), lambda n: (rows(n),
        torch.ones(n, n).bool().tril())),
    "cache": (lambda q, k: F.scaled_dot_product_attention(q, k, k), lambda n: (rows(1), rows(n))),
    "bag": (lambda i: BAG(i), lambda n: torch.randint(0, 20, (2, n))),
    "cross_entropy": (lambda x, t: F.cross_entropy(x.mT.unsqueeze(-1), t.unsqueeze(-1), ignore_index=0),
        lambda n: (rows(n), torch.randint(1, 8, (2, n)))),
    "bce": (lambda x: F.binary_cross_entropy_with_logits(x, x), rows),
    "smooth_l1": (lambda x: F.smooth_l1_loss(x, x * 2) + F.huber_loss(x, x * 3) + F.binary_cross_entropy(x, x), rows),
    "glu": (lambda x: F.glu(x), rows), "unfold": (lambda x: F.unfold(x, 2), image),
    "fold": (lambda x, n: F.fold(x, (n + 1, 3), 2), lambda n: (torch.rand(1, 4, n * 2), n)),
    "pool": (lambda x: F.adaptive_max_pool2d(x, 2), image),
    "grid": (lambda x, g: F.grid_sample(x, g, align_corners=False), lambda n: (image(2), torch.rand(1, n, 4, 2))),
    "shuffle": (lambda x: F.pixel_shuffle(x, 2), lambda n: torch.rand(1, 4, n, n + 1)),
    "affine": (lambda t, n: F.affine_grid(t, (1, 1, n, 4), align_corners=False), lambda n: (torch.rand(1, 2, 3), n)),
    "bilinear": (lambda x, w: F.bilinear(x, x, w), lambda n: (rows(n), torch.rand(2, 8, 8))),
    "searches": (lambda x: torch.searchsorted(x.sort()[0], x) + torch.bucketize(x, x[0, 0].sort()[0]), rows),
    "isin": (lambda x: torch.isin(x, x[0]), rows), "cdist": (lambda x: torch.cdist(x, x), rows),
    "selections": (lambda x: (x.median(1), x.kthvalue(2, 1), x.mode(1), x.nanmedian()), rows),
    "linalg": (lambda x: (torch.linalg.inv(x), torch.linalg.solve(x, x), torch.linalg.svdvals(x), torch.det(x)),
        matrix),
    "factors": (lambda x: (torch.linalg.cholesky(x @ x.mT), torch.linalg.qr(x), torch.linalg.eigvalsh(x),
        torch.matrix_exp(x / 9)), matrix),
    "cross": (lambda x: torch.linalg.cross(x[..., :3], x[..., 1:4]), rows), "histc": (lambda x: x.histc(4, 0, 1), rows),
    "block_diag": (lambda x: torch.block_diag(x[0], x[1]), rows),
    "random": (lambda x: (torch.randperm(x.size(1)) * 0, x[0].multinomial(2) * 0), rows),
    "kron": (lambda x: torch.kron(x, x[0]), rows),
    "pad_sequence": (lambda x: torch.nn.utils.rnn.pad_sequence([x[0], x[1, :1]]), rows),
    "take_along": (lambda x: x.take_along_dim(x.argsort(1), 1), rows),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), image),
    "interpolate_bilinear": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), image),
    "interpolate_to": (lambda x, y: F.interpolate(x, size=y.shape[-2:], mode="bilinear"), lambda n: (image(2),
        image(n))),
}


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_an_op_of_any_size_compiles_twice(name, backend):
    fn, make = OF_ANY_SIZE[name]
    with torch.no_grad():
        calls = [args if isinstance(args, tuple) else (args,) for args in map(make, (3, 4, 6, 7, 9, 11))]
        assert runs(fn, calls, backend) == 2 and framejit.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("name", ["encoder_layer", "bilinear"])
def test_kernels_whose_own_ops_autocast_casts_are_left_to_plain_python(name, backend):
    fn, make = OF_ANY_SIZE[name]

    def cast(*args):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = fn(*args)
        return result + 1
    args = make(5) if isinstance(make(5), tuple) else (make(5),)
    with torch.no_grad():
        same_as(cast, framejit.compile(cast, backend=backend)(*args), *args)
    assert framejit.stats()["break_reasons"] == {"unsupported_op": 1}


class TestTensorSizes:
    @staticmethod
    def scaled(x):
        return (x * x.shape[0]).sum(0) + x.size(1)

    def test_automatic_makes_a_symbol_of_what_changed(self, backend):
        assert runs(self.scaled, [(torch.randn(n, 4),) for n in (5, 7, 9, 11, 30)], backend) == 2

    def test_always_compiles_once(self, backend):
        assert runs(self.scaled, [(torch.randn(n, 4 + n),) for n in (5, 7, 9, 11, 30)], backend, dynamic=True) == 1

    def test_never_compiles_for_each(self, backend):
        assert runs(self.scaled, [(torch.randn(n, 4),) for n in (5, 7, 9)], backend, dynamic=False) == 3

    def test_never_makes_no_room(self, backend):
        """A form with a symbol does the work of several; without symbols, none becomes needless."""
        compiled = framejit.compile(self.scaled, backend=backend, dynamic=False)
        for n in range(3, 15):
            compiled(torch.randn(n, 4))
        assert framejit.stats()["graphs"] == 8 and framejit.stats()["fallback_reasons"] == {"entry_limit": 4}

    def test_marked_compiles_once(self, backend):
        calls = [(torch.randn(n, 4),) for n in (5, 7, 9, 11)]
        framejit.mark_dynamic(calls[0][0], 0)
        assert runs(self.scaled, calls, backend) == 1

    def test_a_mark_does_not_move_never(self, backend):
        calls = [(torch.randn(n, 4),) for n in (5, 7)]
        framejit.mark_dynamic(calls[0][0], 0)
        assert runs(self.scaled, calls, backend, dynamic=False) == 2

    def test_zero_and_one(self, backend):
        def f(x):
            return x.sum(0) * x.shape[0] + 1, x + x[:1], x.squeeze(0), x.expand(-1, 3) * 2
        assert runs(f, [(torch.randn(n, 3),) for n in (4, 6, 1, 8, 1, 5)], backend) == 3

    def test_empty(self, backend):
        def f(x):
            return x.sum(0) * x.shape[0] + 1, torch.cat([x, x]), x.reshape(-1)
        assert runs(f, [(torch.randn(n, 3),) for n in (4, 0, 6, 0, 1, 9)], backend) <= 4

    def test_two_tensors_that_change_together(self, backend):
        def f(x, y):
            return x + y, (x @ y.T).relu()
        assert runs(f, [(torch.randn(n, 4), torch.randn(n, 4)) for n in (3, 5, 7, 9, 11)], backend) == 2

    def test_strides_follow_sizes(self, backend):
        def f(x):
            return torch.relu(x.t() * 2), x.contiguous() + 1
        assert runs(f, [(torch.randn(n, m).t(),) for n, m in ((5, 7), (9, 6), (4, 11), (12, 3))], backend) == 2

    def test_a_question_about_a_size_is_guarded(self, backend):
        def f(x):
            return x * 2 if x.shape[0] > 8 else x - 1
        assert runs(f, [(torch.randn(n),) for n in (4, 5, 20, 6, 30, 8, 9)], backend) == 3

    def test_sizes_leave_the_graph(self, backend):
        def f(x):
            n = x.shape[0]
            return x + 1, n, [n * 2, n // 2], {"shape": tuple(x.shape), "numel": x.numel()}, x.shape
        assert runs(f, [(torch.randn(n, 2),) for n in (3, 4, 5, 9)], backend) == 2

    def test_views_and_slices(self, backend):
        def f(x):
            b, t, c = x.shape
            heads = x.view(b, t, 2, c // 2).transpose(1, 2)
            return heads.reshape(b * 2, t, -1), x[:, 1:] - x[:, :-1], x[:, -1], torch.cat([x, x[:, :1]], 1), x.chunk(2,
                -1)[1]
        assert runs(f, [(torch.randn(b, t, 8),) for b, t in ((3, 5), (4, 7), (6, 11), (5, 9))], backend) == 2

    def test_factories(self, backend):
        def f(x):
            n = x.shape[0]
            mask = torch.ones(n, n, dtype=torch.bool).tril()
            scores = (x @ x.T).masked_fill(~mask, float("-inf")).softmax(-1)
            return scores, torch.arange(n), torch.zeros(n, 2) + 1, torch.full((n,), 2.5), x.new_zeros(n + 1)
        assert runs(f, [(torch.randn(n, 4),) for n in (5, 7, 9, 12)], backend) == 2

    def test_reductions_and_norms(self, backend):
        norm = torch.nn.LayerNorm(6)
        def f(x):
            return norm(x), x.mean(1), x.var(0), x.softmax(0), x.amax(-1), x.cumsum(0), x.argmax(1)
        assert runs(f, [(torch.randn(a, b, 6),) for a, b in ((3, 4), (5, 7), (8, 9), (4, 13))], backend) == 2


class TestModels:
    def mlp(self):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32),
                                   torch.nn.Linear(32, 8)).eval()

    @pytest.mark.parametrize("marked", (False, True))
    def test_mlp(self, backend, marked):
        calls = [(torch.randn(b, t, 16),) for b, t in pairs(20, 3)]
        if marked:
            framejit.mark_dynamic(calls[0][0], [0, 1])
        assert runs(self.mlp(), calls, backend) == (1 if marked else 2)

    @pytest.mark.parametrize("marked", (False, True))
    @pytest.mark.slow
    def test_sentence_model(self, backend, marked):
        model = demo.load_model()
        compiled = framejit.compile(model, backend=backend)
        for i, (b, t) in enumerate(pairs(20, 4)):
            ids, mask = torch.randint(5, 3000, (b, t)), torch.ones(b, t, dtype=torch.int64)
            mask[0, t // 2:] = 0
            if marked and i == 0:
                framejit.mark_dynamic(ids, [0, 1])
                framejit.mark_dynamic(mask, [0, 1])
            same_as(model, compiled(input_ids=ids, attention_mask=mask), input_ids=ids, attention_mask=mask)
        stats = framejit.stats()
        assert (stats["graphs"], stats["graph_breaks"], stats["fallbacks"]) == (1 if marked else 2, 0, 0)

    @pytest.mark.parametrize("dynamic, graphs", [(None, 3), (True, 1)])
    @pytest.mark.parametrize("least, ones", [(2, 0), (1, 3)])
    def test_any_pairs_of_the_mlp(self, backend, dynamic, graphs, least, ones):
        """Sizes may be equal by chance: one more graph for each size that changes, and for each combination of sizes of
        one."""
        for seed in range(5):
            rng = random.Random(seed)
            calls = [(rng.randint(least, 8), rng.randint(least, 12)) for _ in range(20)] + [(3, 3), (least, least)]
            framejit.reset()
            assert runs(self.mlp(), [(torch.randn(b, t, 16),) for b, t in calls], backend,
                        dynamic=dynamic) <= graphs + ones

    @pytest.mark.parametrize("dynamic, graphs", [(None, (2, 4)), (True, (1, 3))])
    @pytest.mark.slow
    def test_any_pairs_of_the_sentence_model(self, backend, dynamic, graphs):
        model = demo.load_model()
        compiled, counts = framejit.compile(model, backend=backend, dynamic=dynamic), []
        for b, t in ((3, 3), (3, 5), (5, 5), (2, 3), (5, 3), (1, 7), (4, 1), (6, 6)):
            inputs = dict(input_ids=torch.randint(5, 3000, (b, t)), attention_mask=torch.ones(b, t, dtype=torch.int64))
            inputs["attention_mask"][0, t // 2 + 1:] = 0
            same_as(model, compiled(**inputs), **inputs)
            counts.append(framejit.stats()["graphs"])
        assert (counts[4], counts[-1]) == graphs and framejit.stats()["graph_breaks"] == framejit.stats()[
            "fallbacks"] == 0


class TestNumbers:
    def test_int_argument(self, backend):
        def f(x, n):
            return x * n + n // 2, n + 1
        assert runs(f, [(torch.randn(3), n) for n in (3, 4, 5, 6, 50, -3, 0, 1)], backend) <= 2

    def test_loop_index(self, backend):
        def f(x, i):
            return x * i + 1, i * 2
        assert runs(f, [(torch.randn(3), i) for i in range(10)], backend) == 2

    @pytest.mark.parametrize("dynamic", (None, True))
    def test_int_attribute(self, backend, dynamic):
        class Counter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.step = 0

            def forward(self, x):
                self.step += 1
                return x * self.step
        ours, plain, x = Counter(), Counter(), torch.randn(3)
        compiled = framejit.compile(ours, backend=backend, dynamic=dynamic)
        for _ in range(10):
            same(compiled(x), plain(x))
        assert (ours.step, framejit.stats()["graphs"]) == (plain.step, 2)

    @pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8))
    def test_float_argument(self, backend, dtype):
        def f(x, k):
            return x * k + 1, k - x, x / k, (x - k).sum(), x // k, x < k, k >= x, k / x.float().square().sum()
        calls = [((torch.randn(3, 5) * 4).to(dtype), k) for k in (0.5, 1.5, 2.25, -3.0, 1e-3, 7.0)]
        assert runs(f, calls, backend) <= 2

    def test_float_that_python_asks_about(self, backend):
        def f(x, k):
            return x * k if k > 1 else x + k
        runs(f, [(torch.randn(3), k) for k in (0.5, 1.5, 2.25, 0.25, float("nan"), -0.0)], backend)


class TestLogs:
    @pytest.fixture
    def events(self):
        """The events of the test, as dicts."""
        seen = []
        token = _framejit.add_listener(seen.append)
        yield seen
        _framejit.remove_listener(token)

    def test_recompile_names_guard_and_both_values(self, events):
        compiled = framejit.compile(lambda x: x * 2, backend="eager")
        for n in (3, 4):
            compiled(torch.randn(n))
        fields = [e["fields"] for e in events if e["event"] == "Recompile"]
        assert [f["guard"] for f in fields] == ["L['x'].size(0) == 3 but is 4"]
        assert fields[0]["count"] == "1/8"
        assert framejit.stats()["recompiles"] == 1

    @pytest.mark.fallbacks(entry_limit=4)
    def test_limit_is_said_once(self, events):
        compiled = framejit.compile(lambda x, s: x * len(s), backend="eager")
        for i in range(12):
            same(compiled(torch.ones(3), "a" * i), torch.ones(3) * i)
        assert framejit.stats()["graphs"] == 8
        limits = [e for e in events if e["event"] == "Limit"]
        assert len(limits) == 1 and limits[0]["channel"] == "recompiles"
        assert "8/8 entries" in limits[0]["text"] and "L['s']" in limits[0]["fields"]["guard"]
        assert "s was 'aaaaaaa', now it is 'aaaaaaaa'" in limits[0]["text"]

    def test_dead_entries_make_room(self):
        def scaled(model, x):
            return model(x)
        compiled, x = framejit.compile(scaled, backend="eager"), torch.ones(3)
        for i in range(20):
            model = type(f"Model{i}", (torch.nn.Module,), {"forward": lambda self, x: x + 1})()
            same(compiled(model, x), x + 1)
            del model
            gc.collect()
        assert framejit.stats()["graphs"] == 20 and framejit.stats()["recompiles"] == 19

    def test_objects_that_die_are_recompiles(self, events):
        """If each call brings an object that the graph is bound to, and lets it die, the log says so."""
        compiled, x = framejit.compile(lambda x, g: x + torch.randn(3, generator=g), backend="eager"), torch.ones(3)
        for i in range(12):
            expected = x + torch.randn(3, generator=torch.Generator().manual_seed(i))
            same(compiled(x, torch.Generator().manual_seed(i)), expected)
        stats = framejit.stats()
        assert stats["graphs"] == 12 and stats["recompiles"] == 11 and not stats["fallbacks"]
        assert [e["fields"]["guard"] for e in events
                if e["event"] == "Recompile"] == ["an object that the guards name is gone"] * 11

    def test_models_of_one_call_each(self):
        """They share the code of nn.Module's call: the last is compiled as the first was."""
        for i in range(12):
            model = type(f"Model{i}", (torch.nn.Module,), {"forward": lambda self, x: x + 1})()
            same(framejit.compile(model, backend="eager")(torch.ones(3)), torch.ones(3) + 1)
            del model
            gc.collect()
        assert framejit.stats()["graphs"] == 12 and not framejit.stats()["fallbacks"]



def test_a_marked_range_is_guarded(backend):
    def f(x):
        return x.relu() + x.shape[0]
    inside, outside = [torch.randn(n, 3) for n in (4, 6, 8, 2)], [torch.randn(n, 3) for n in (9, 20)]
    framejit.mark_dynamic(inside[0], 0, min=2, max=8)
    compiled = framejit.compile(f, backend=backend)
    for x in inside:
        same(compiled(x), f(x))
    assert framejit.stats()["graphs"] == 1
    for x in outside:
        same(compiled(x), f(x))
    assert framejit.stats()["graphs"] == 3 and framejit.stats()["fallbacks"] == 0


# ---- arithmetic at the edges of int64

MOST, LEAST = 2**63 - 1, -2**63
EDGES = (5, -5, 7, 0, LEAST, LEAST + 1, MOST, 2**62, -1, 2**32, 3037000500, 2**63)


def poly_hash(x, n):
    h = 0
    for c in (3, 1, 4, 1, 5, 9, 2, 6):
        h = h * n + c
    return x + 1, h


class TestIntsHaveAnyLength:
    """Python's ints do not wrap: a symbol's expression has its true value, or the ints are constants."""

    PROGRAMS = {
        "congruential": (lambda x, n: (x + 1, n * 6364136223846793005 + 1442695040888963407), (1, 2, 3, -1, 10**6)),
        "Horner": (poly_hash, (3, 5, 7, 1000003, -1000003)),
        "negated": (lambda x, n: (x + 1, -n, n - 1, ~n, abs(n), 1 - n, +n), EDGES),
        "doubled": (lambda x, n: (x + 1, n * 2, n + n, n * n, n * n - n * n), EDGES),
        "divided": (lambda x, n: (x + 1, n // -1, n % -1, divmod(n, -1), n // 2, n // -3, n % 7, n % -7), EDGES),
        "divisor": (lambda x, n: (x + 1, 100 // n, 100 % n, -n // n) if n else x + 2, EDGES),
        "compared": (lambda x, n: (x + 1, -n > 0, n * 2 > n, n + 1 > n, n - 1 < n, -n == n, n * n >= 0), EDGES),
        "branched": (lambda x, n: x + 1 if n * 2 > n else x - 1, EDGES),
        "extremes": (lambda x, n: (x + 1, min(n, -n), max(n, -n, 0), sum([n, n, n]), math.prod([n, n])), EDGES),
        "shifted": (lambda x, n: (x + 1, n << 1, n << 40, n >> 3, n ** 2), EDGES),
        "nested": (lambda x, n: (x + 1, (n * 3 + 1) * (n - 2) // 5 % 11, n * 2**62 // 2**62), EDGES),
        "scalar": (lambda x, n: x * (n * n), (2, 3, 5, -7, 3037000499)),
        "tensors of it": (lambda x, n: (x + 1, torch.tensor(n), torch.tensor([n, 1]),
                                        torch.as_tensor(n - 1 if n > 0 else n)), EDGES[:-1]),
        "range": (lambda x, n: (x + 1, range(n * 2**60)[-1]), (1, 2, 3, 4, 9)),
    }

    @pytest.mark.breaks(unsupported_operand={"range": 1})
    @pytest.mark.parametrize("dynamic", [None, True])
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_program(self, name, dynamic, backend):
        fn, values = self.PROGRAMS[name]
        compiled = framejit.compile(fn, backend=backend, dynamic=dynamic)
        for n in values:
            same(compiled(torch.ones(2), n), fn(torch.ones(2), n))
        assert not framejit.stats()["fallbacks"]

    @pytest.mark.parametrize("dynamic", [None, True])
    def test_sizes(self, dynamic, backend):
        def f(x):
            return x + 1, x.shape[0] * 10**18, x.shape[0] << 62, x.numel() * -(2**61)

        runs(f, [(torch.ones(n),) for n in (2, 3, 5, 9, 10, 40)], backend, dynamic=dynamic)

    @pytest.mark.breaks(exception_raised=1)
    def test_an_int_too_big_for_the_op(self, backend):
        compiled = framejit.compile(lambda x, n: x * (n * n), backend=backend)
        for n in (2, 3, 4):
            same(compiled(torch.ones(2), n), torch.ones(2) * (n * n))
        with pytest.raises(OverflowError, match="int too big to convert"):
            compiled(torch.ones(2), 2**32)

    def test_small_ints_share_a_graph(self, backend):
        assert runs(lambda x, n: (x * (n + 1), -n, n * n), [(torch.ones(2), n) for n in (5, -6, 7, 10**9, -3)],
                    backend) == 2


class TestDivisors:
    """A symbol that divides is not zero, or eager's error is raised."""

    PROGRAMS = {
        "view": lambda x, n: x.view(n, -1),
        "reshape": lambda x, n: x.reshape(-1, n),
        "unflatten": lambda x, n: x.unflatten(0, (n, -1)),
        "conv1d": lambda x, n: F.conv1d(x[None], torch.ones(1, 1, 1), stride=n),
        "unfold": lambda x, n: x.unfold(0, 2, n),
        "step": lambda x, n: x[::n],
        "floor division": lambda x, n: (x + 1, 6 // n),
        "modulo": lambda x, n: (x + 1, 7 % n),
    }

    @pytest.mark.breaks(exception_raised={"view": 1, "reshape": 1, "unflatten-True": 1, "unfold": 1, "step": 1,
                                          "floor division": 1, "modulo": 1, "framejit-conv1d": 1},
                        unsupported_op={"unflatten-None": 1})
    @pytest.mark.fallbacks(run_failed={"eager-conv1d": 1}, size_out_of_range={"eager-conv1d": 2})
    @pytest.mark.parametrize("dynamic", [None, True])
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_zero(self, name, dynamic, backend):
        fn = self.PROGRAMS[name]
        compiled = framejit.compile(fn, backend=backend, dynamic=dynamic)
        for n in (2, 3, 4, 0, 6, 0, -1):
            try:
                expected = fn(torch.ones(12), n)
            except Exception as error:
                with pytest.raises(type(error)) as raised:
                    compiled(torch.ones(12), n)
                assert str(raised.value).partition("\n")[0] == str(error).partition("\n")[0]
            else:
                same(compiled(torch.ones(12), n), expected)


def added_in_place(x):
    x.reshape(-1, 2).add_(1)
    return x


RESHAPED = {
    "written": (added_in_place, [torch.zeros(n, m).t() for n, m in ((3, 8), (4, 4), (2, 8), (5, 2))]),
    "transposed": (lambda x: x.t().reshape(2, -1, 2), [torch.randn(n, 2) for n in (4, 6, 10)]),
    "stepped": (lambda x: x.reshape(x.shape[0] // 2, 2, 2), [torch.randn(2 * n, 2)[::2] for n in (4, 6, 10)]),
    "columns": (lambda x: x.reshape(-1, 2, 2), [torch.randn(2, n).t() for n in (4, 6, 10)]),
    "expanded": (lambda x: x.reshape(-1), [torch.randn(1, 3).expand(n, 3) for n in (1, 2, 5)]),
}


@pytest.mark.parametrize("name", RESHAPED)
@pytest.mark.parametrize("dynamic", [None, True])
def test_reshape_views_where_eager_does(name, dynamic, backend):
    """Whatever the sizes: writes through it, its strides and its memory are eager's."""
    fn, inputs = RESHAPED[name]
    compiled = framejit.compile(fn, backend=backend, dynamic=dynamic)
    for x in inputs:
        ours, plain = x.clone(memory_format=torch.preserve_format), x.clone(memory_format=torch.preserve_format)
        if name in ("stepped", "expanded"):  # clones are dense
            ours = plain = x
        same(((got := compiled(ours)), ours), ((want := fn(plain)), plain))
        assert (got.data_ptr() == ours.data_ptr()) == (want.data_ptr() == plain.data_ptr())


def test_an_expression_that_is_one_is_broadcast():
    """Its size is not a constant; that it is 1 is a fact of the graph."""
    def f(x):
        halves = x[::2].square()[::2]
        return torch.minimum(halves.sum(-1), halves), torch.where(halves > 0, halves.amax(-1),
                                                                  0.0), halves.amin(-1).expand(3, x.shape[1]) + 1
    compiled = framejit.compile(f)
    for x in (torch.randn(size) for size in ((3, 3), (4, 2), (4, 9), (3, 40))):
        same(compiled(x), f(x))


def counted_up(x):
    n = x.shape[0]
    return x + torch.arange(0.0, n) + torch.arange(0, n, 1.0)


def counted_down(x):
    n = x.shape[0]
    return x + torch.arange(n, -n, -2.0)[:n] + torch.arange(n, -n, -2.5, dtype=torch.int64)[:n]


@pytest.mark.parametrize("fn", [counted_up, counted_down])
def test_ranges_of_floats_without_a_fraction_have_a_varying_length(fn, backend):
    assert runs(fn, [(torch.randn(n),) for n in (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)], backend) == 2


def test_a_number_that_varies_and_is_one_is_broadcast_like_one(backend):
    four = torch.arange(4.0)
    for fn in (lambda n: torch.full((2, n), 2.0) + four, lambda n: (four * torch.full((3, n), 2.0)).view(-1),
               lambda n: torch.where(torch.ones(n, 2, 1, dtype=torch.bool), torch.ones(2, n), torch.zeros(4, 1, 4))):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for n in (4, 1, 4, 1):
            same(compiled(n), fn(n))
