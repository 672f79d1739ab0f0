"""torch.utils.checkpoint inside of compiled code: what it covers is computed again, with eager's random numbers."""
import os

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import framejit
import programs
from small_trainings import MODELS
from steps import Program, check_step, leaf


def block(dropout=0.0, width=32):
    return nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, 8))


def layered(reentrant, dropout=0.0, checkpointed=True):
    blocks = nn.ModuleList([block(dropout) for _ in range(3)])

    def f(x):
        for b in blocks:
            x = x + (checkpoint(b, x, use_reentrant=reentrant) if checkpointed else b(x))
        return x.sin()
    f.blocks = blocks
    return f


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_layers(reentrant, dropout):
    def make():
        f = layered(reentrant, dropout)
        return Program(f, leaf(5, 8), watch=[f.blocks])
    check_step(make, graphs=1, backward_graphs=1)


def saved_bytes(f, x):
    """What autograd's graph holds of a compiled call, by its saved tensors."""
    sizes = {}

    def pack(t):
        sizes[t.data_ptr()] = t.numel() * t.element_size()
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = framejit.compile(f)(x)
    weights = {p.data_ptr() for p in f.blocks.parameters()}
    return sum(size for at, size in sizes.items() if at not in weights), result


@pytest.mark.parametrize("reentrant", [False, True])
def test_activations_inside_are_not_saved(reentrant):
    torch.manual_seed(0)
    x = leaf(64, 8)
    framejit.reset()
    plain, _ = saved_bytes(layered(reentrant, checkpointed=False), x)
    ours, result = saved_bytes(layered(reentrant), x)
    assert framejit.stats()["graph_breaks"] == 0
    hidden, outer = 64 * 32 * 4, 64 * 8 * 4
    assert plain >= 3 * hidden
    assert ours <= 5 * outer, f"{ours} bytes are saved: more than the inputs of three layers"
    result.sum().backward()


@pytest.mark.parametrize("f", [lambda b, x: checkpoint(b, x, use_reentrant=False, determinism_check="none"),
                               lambda b, x: checkpoint_sequential(b, 2, x, use_reentrant=False),
                               lambda b, x: checkpoint(lambda v, by: b(v) * by, x, use_reentrant=False, by=2.0),
                               lambda b, x: checkpoint(lambda v: (b(v), v * 2), x, use_reentrant=True)[0]],
                         ids=["determinism", "sequential", "keywords", "two outputs"])
def test_ways_to_call_it(f):
    def make():
        b = block(0.5)
        return Program(lambda x: f(b, x), leaf(5, 8), watch=[b])
    check_step(make, steps=2, breaks=None, backward=None)


@pytest.mark.parametrize("read", [lambda x, at: torch.gather(x, -1, at), lambda x, at: x[at[0]],
                                  lambda x, at: x.index_select(0, at[0]), lambda x, at: x // (at + 1)],
                         ids=["gather", "index", "index_select", "division"])
def test_one_of_two_results_is_differentiated(read):
    """What may raise is not computed again for a gradient that nobody asks for."""
    def make():
        w = leaf(5)

        def f(x, at):
            y = checkpoint(lambda v: (read(v, at) * w) @ v, x, use_reentrant=False)
            return y.pow(2).sum(), y

        def step(run, args, k):
            w.grad = None
            results = run(*args)
            (results[k % 2].sum() if k < 2 else sum(r.sum() for r in results)).backward()
            return w.grad
        return Program(f, torch.randn(5, 5), torch.arange(5).expand(5, 5), step=step, watch=[w])
    check_step(make)


@pytest.mark.nothing_captured
@pytest.mark.breaks(gradient_call=1)
def test_random_numbers_that_are_drawn_again():
    def make():
        b = block(0.5)
        return Program(lambda x: checkpoint(b, x, use_reentrant=False, preserve_rng_state=False), leaf(5, 8), watch=[b])
    check_step(make, steps=2, breaks=None, backward=None, graphs=0)


def test_without_gradients():
    def make():
        b = block(0.5)

        def f(x):
            with torch.no_grad():
                return checkpoint(b, x, use_reentrant=False)
        return Program(f, leaf(5, 8))
    check_step(make, backward=False)


@pytest.mark.nothing_captured
@pytest.mark.breaks(unknown_callable=1)
def test_a_reentrant_one_whose_arguments_need_no_gradient():
    def make():
        b = block()
        return Program(lambda x: checkpoint(b, x, use_reentrant=True), torch.randn(5, 8), watch=[b])
    check_step(make, breaks=None, backward=None, graphs=0)


@pytest.mark.nothing_captured
@pytest.mark.breaks(gradient_call=1)
def test_a_function_that_counts():
    """Eager runs it twice."""
    def make():
        b, counts = block(), []

        def counted(x):
            counts.append(1)
            return b(x)

        def step(run, args, k):
            run(*args).sum().backward()
            return len(counts)
        return Program(lambda x: checkpoint(counted, x, use_reentrant=False), leaf(5, 8), step=step, watch=[b])
    check_step(make, breaks=None, backward=None, graphs=0)


@pytest.mark.nothing_captured
@pytest.mark.breaks(gradient_call=1)
def test_batch_statistics_move_twice():
    def make():
        b = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        return Program(lambda x: checkpoint(b, x, use_reentrant=False), leaf(5, 8), watch=[b])
    check_step(make, breaks=None, backward=None, graphs=0)


def test_nested():
    def make():
        a, b = block(), block()

        def inner(x):
            return checkpoint(a, x, use_reentrant=False).cos()
        return Program(lambda x: b(checkpoint(inner, x, use_reentrant=False)), leaf(5, 8), watch=[a, b])
    check_step(make, graphs=1)


def test_with_the_backward_inside():
    def make():
        f = layered(False, 0.5)

        def step(x):
            loss = f(x).pow(2).mean()
            loss.backward()
            return loss.detach()
        return Program(step, leaf(5, 8), step=lambda run, args, k: run(*args), watch=[f.blocks], zero=False)
    check_step(make, backward=None, graphs=2)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama"])
def test_models(name, reentrant):
    def make():
        model, inputs = MODELS[name](0.1)
        model.train()
        model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))

        def step(run, args, k):
            loss = run(**inputs).loss
            loss.backward()
            return loss
        return Program(model, step=step)
    check_step(make, breaks=None, backward=None, graphs=None)


SAVED = """
import torch, framejit
torch.manual_seed(0)
first, second = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)
def f(x):
    h = first(x)
    h = torch.softmax(h, -1) * torch.tanh(h) + torch.sigmoid(h).exp()
    return second(h).sin()
kept = {}
def pack(t):
    kept[t.data_ptr()] = t.numel() * t.element_size()
    return t
x = torch.randn(128, 16, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
    y = framejit.compile(f)(x)
y.sum().backward()
print(sum(kept.values()), float(x.grad.double().sum()))
"""


@pytest.mark.nothing_captured  # in this process
def test_the_budget_of_what_is_saved():
    """FRAMEJIT_MEMORY_BUDGET: less is saved where less may be, and the gradient stays."""
    found = []
    for budget in (100, 40, 0):
        done = programs.run(SAVED, env=os.environ | {"FRAMEJIT_MEMORY_BUDGET": str(budget)})
        assert done.returncode == 0, done.stderr
        found.append([float(word) for word in done.stdout.split()])
    assert found[0][0] >= found[1][0] >= found[2][0]
    assert found[2][0] < found[0][0], found
    assert all(abs(gradient - found[0][1]) < 1e-4 for _, gradient in found), found
