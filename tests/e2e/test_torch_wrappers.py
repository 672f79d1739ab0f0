"""torch's own disable wrappers, in checkpoint and optimizers, are not breaks: the wrapped function is traced. Only the
user's disable is honoured."""
import copy
import importlib

import pytest
import torch
import torch.utils.checkpoint

import framejit
from check import backend, check, exactly_as, fresh, same  # noqa: F401

checkpoint = torch.utils.checkpoint.checkpoint


@pytest.fixture(autouse=True, scope="module")
def real_wrappers():
    """torch's lazy wrappers become those of its compiler once the compiler is imported."""
    importlib.import_module("torch._dynamo")


def block(x):
    return x.sin() + 1


def test_checkpoint_is_one_graph():
    # keeps the default device in a class attribute from now on, which is a break once
    checkpoint(block, torch.randn(3, 4), use_reentrant=False)
    check(lambda x: checkpoint(block, x * 2, use_reentrant=False, preserve_rng_state=False) * 3, torch.randn(3, 4),
          breaks=0, compiles=1)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("settings",
                         [{"use_reentrant": False}, {"use_reentrant": True},
                          {"use_reentrant": False, "preserve_rng_state": False}], ids=str)
def test_checkpoint_breaks_at_no_wrapper(settings):
    """The reentrant one warns, and the other reads the state of the generator: both are breaks."""
    breaks = 1 if settings["use_reentrant"] else 0
    stats = check(lambda x: checkpoint(block, x * 2, **settings) * 3, torch.randn(3, 4), grad=False,
                  compiles=breaks + 1, breaks=breaks)
    assert "disabled_function" not in stats["break_reasons"] and "explicit_break" not in stats["break_reasons"], stats
    assert stats["hits"] == 2 * stats["graphs"]


def test_the_users_disable_is_honoured():
    wrapped = torch.compiler.disable(block)
    stats = check(lambda x: wrapped(x * 2) * 3, torch.randn(3, 4), breaks=1, compiles=2)
    assert stats["break_reasons"] == {"disabled_function": 1}


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {}),
    "SGD momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "SGD foreach": (torch.optim.SGD, {"momentum": 0.9, "foreach": True}),
    "Adam": (torch.optim.Adam, {}),
    "Adam amsgrad": (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.01}),
    "Adam foreach": (torch.optim.Adam, {"foreach": True}),
    "AdamW": (torch.optim.AdamW, {}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_an_optimizer(name, backend):
    kind, settings = OPTIMIZERS[name]
    torch.manual_seed(0)
    plain = torch.nn.Linear(4, 3)
    start, ours = copy.deepcopy(plain), copy.deepcopy(plain)
    a, b = kind(plain.parameters(), lr=0.1, **settings), kind(ours.parameters(), lr=0.1, **settings)

    def step(optimizer, x):
        y = x + 1
        optimizer.step()
        return y * 2
    def once_more():
        module = copy.deepcopy(start)
        optimizer = kind(module.parameters(), lr=0.1, **settings)
        for gradients in given:
            for p, g in zip(module.parameters(), gradients):
                p.grad = g.clone()
            optimizer.step()
        return list(module.parameters()), state_of(optimizer)
    compiled, x, given = framejit.compile(step, backend=backend), torch.randn(3), []
    for _ in range(5):
        given.append([torch.randn_like(p) for p in plain.parameters()])
        for p, q, g in zip(plain.parameters(), ours.parameters(), given[-1]):
            p.grad, q.grad = g.clone(), g.clone()
        before = framejit.stats()
        same(compiled(b, x), step(a, x))
        same((list(ours.parameters()), state_of(b)), (list(plain.parameters()), state_of(a)), exactly_as(once_more))
        b.zero_grad()
        assert all(q.grad is None for q in ours.parameters())
    stats = framejit.stats()
    assert not stats["graph_breaks"] and not stats["fallbacks"], stats
    # The update and the code before and after it are one graph.
    assert stats["hits"] - before["hits"] == 1 and stats["graphs"] == before["graphs"], stats


def state_of(optimizer):
    return {str(key): value for key, value in optimizer.state_dict()["state"].items()}


def test_numbers_in_a_tensor_are_read_by_foreach():
    def f(x, numbers):
        y, z = x + 1, x + 2
        torch._foreach_addcmul_([y, z], [x, x], [x, x], numbers)
        return y * z
    framejit.reset()
    compiled, x = framejit.compile(f), torch.randn(3)
    for numbers in ([1.0, 2.0], [3.0, 4.0]):
        same(compiled(x, torch.tensor(numbers)), f(x, torch.tensor(numbers)))
    assert framejit.stats()["break_reasons"] == {"data_dependent_value": 1}
