"""On a machine with a GPU: training steps on CUDA tensors equal eager, and both halves are compiled.

    make test-gpu                       builds, and runs this file with TEST_DEVICE=cuda

The programs and the comparison are those of tests/e2e/training. Tests that are imported here run on the GPU as they
are.
"""
import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("not tested: there is no GPU", allow_module_level=True)

import torch.nn.functional as F
import transformers
from torch import nn

import framejit
from devices import DEVICE, on_device
from small_trainings import MODELS
from steps import Program, caller, check_step, precision, program_of, regression  # noqa: F401
from test_backward_calls import (  # noqa: F401
    test_a_parameter_that_is_changed_between_forward_and_backward, test_a_saved_tensor_that_is_changed,
    test_a_second_backward_is_the_error_of_eager, test_backward_from_another_thread, test_gradient_penalty,
    test_gradient_penalty_with_dropout, test_gradients_accumulate, test_retain_graph, test_third_order,
    test_two_losses_one_after_the_other)
from test_backward_hooks import (  # noqa: F401
    test_a_whole_step_inside, test_backward_inside, test_grad_inside, test_grad_inside_with_create_graph)
from test_loops import test_a_scaler_around  # noqa: F401
from test_model_training import (  # noqa: F401
    CASES, test_a_gan_with_two_optimizers, test_a_gan_with_a_gradient_penalty, training)
from test_optimizers import OPTIMIZERS, clipped, stepping
from test_second_order import FUNCTIONS, second_order, test_dropout_is_drawn_once, values  # noqa: F401

assert DEVICE != "cpu", "set TEST_DEVICE=cuda: make test-gpu does"

# Ops of the GPU without a shape rule end a graph there: the LSTM of cuDNN, the fused GRU cell.
BREAKS = {"character LSTM": 1, "graph": 2}
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 23):
    BREAKS["Whisper"] = None  # it keeps a token of a ContextVar
# The backward of cuDNN's LSTM reads what its forward kept in a form of its own, so there is none in float64: gradients
# are compared with eager's, in which terms cancel.
REFERENCES = {"character LSTM": {"float64": False, "luck": "terms"}}
# Constants on the CPU.
NOT_HERE = {"solve", "det", "slogdet", "inverse", "cholesky", "prod of zeros", "cross-entropy", "stft"}


@pytest.fixture(autouse=True)
def fresh_with_gradients():
    framejit.reset()
    torch.manual_seed(0)
    with torch.enable_grad():
        yield


def model_of(name, dropout):
    """make(). transformers gives ViT's attention a mask only where it is traced, and dropout then draws other numbers:
    such tests use the written-out attention."""
    def make():
        program = training(name, dropout)()
        if name == "ViT" and dropout:
            program.target.set_attn_implementation("eager")
        return program
    return make


@pytest.mark.parametrize("name, dropout", CASES)
def test_gradients_of_models(name, dropout, precision):
    if (name, precision) == ("character LSTM", "bf16"):
        pytest.skip("not tested: cuDNN's layers have no form in float64, the reference of bfloat16")
    breaks = BREAKS.get(name, 0)
    check_step(model_of(name, dropout), steps=2, breaks=breaks, autocast=precision == "bf16",
               captured=breaks is not None, backward=None if breaks is None else True, graphs=None,
               **REFERENCES.get(name, {}))


@pytest.mark.parametrize("name", ["GPT-2", "ViT", "ResNet"])
def test_half_precision_with_a_scaler(name):
    def make():
        model, inputs = MODELS[name](0.0)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), torch.amp.GradScaler(DEVICE)

        def step(run, args, k):
            optimizer.zero_grad()
            loss = run(**inputs).loss
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss, norm, scaler.get_scale()
        return Program(model.train(), step=step, zero=False)
    check_step(make, autocast=torch.float16, graphs=None)


@pytest.mark.parametrize("name, flags", [
    ("sgd", {}), ("sgd, nesterov", {"foreach": False}), ("adamw", {}), ("adamw", {"foreach": False}),
    ("adamw", {"capturable": True}), ("adamw", {"capturable": True, "foreach": False}), ("adamw", {"fused": True}),
    ("adam, amsgrad", {"capturable": True}), ("rmsprop", {"capturable": True}), ("nadam", {"capturable": True})])
@pytest.mark.parametrize("target", [None, clipped], ids=["step", "clipped"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_optimizer_steps(name, flags, target, mode):
    where = {} if target is None else {"target": target}
    check_step(stepping(lambda p: OPTIMIZERS[name](p, **flags), **where), steps=8, backward=False, mode=mode,
               graphs=None)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NOT_HERE])
def test_second_derivatives_on_a_gpu(name):
    check_step(lambda: Program(FUNCTIONS[name], values(), step=second_order), backward=None, graphs=1)


# ---- replays


class Replays:
    """Counts replays, and why other calls were not replayed."""
    def __enter__(self):
        self.reasons, before = [], framejit.stats()["replays"]
        self.token = framejit._framejit.add_listener(
            lambda e: e["event"] == "NotReplayed" and self.reasons.append(e["fields"]["reason"]))
        self.count = lambda: framejit.stats()["replays"] - before
        return self

    def __exit__(self, *error):
        framejit._framejit.remove_listener(self.token)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_forward_that_saves_is_not_replayed(dropout):
    with Replays() as seen:
        check_step(training("GPT-2", dropout), steps=4, mode="reduce-overhead", graphs=None)
    assert "saves" in seen.reasons, seen.reasons


def whole_step(make_optimizer, dropout=0.0):
    """make() of a program that compiles forward, backward and update as one function."""
    def make():
        model, x, y = regression()
        drop = nn.Dropout(dropout)
        optimizer = make_optimizer(model.parameters())

        def train(x, y):
            loss = F.mse_loss(model(drop(x)), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()
        return Program(train, make_inputs=lambda k: (torch.randn(32, 6), torch.randn(32, 1)), watch=[model, optimizer],
                       zero=False, step=lambda run, args, k: run(*args))
    return make


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("make_optimizer", [
    lambda p: torch.optim.AdamW(p, 0.01, capturable=True), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)])
def test_a_whole_step_is_replayed(make_optimizer, dropout):
    with Replays() as seen:
        check_step(whole_step(make_optimizer, dropout), steps=10, mode="reduce-overhead", backward=None, graphs=None)
        assert seen.count() >= 6, (seen.reasons, framejit.stats())


def test_a_step_count_on_the_cpu_is_not_replayed():
    """Not capturable: the guards read the count, and its numbers are inputs."""
    with Replays() as seen:
        check_step(whole_step(lambda p: torch.optim.AdamW(p, 0.01)), steps=10, mode="reduce-overhead", backward=None,
                   graphs=None)
    assert seen.reasons, framejit.stats()


def test_the_loss_of_many_replayed_steps():
    make = whole_step(lambda p: torch.optim.AdamW(p, 0.01, capturable=True), 0.1)
    losses = []
    for compiles in (False, True):
        program = program_of(make, seed=1)
        run = caller(framejit.compile(program.target, mode="reduce-overhead") if compiles else program.target)
        torch.manual_seed(5)
        with on_device():
            losses.append(torch.stack([run(*program.make_inputs(k)) for k in range(100)]))
    # Roundings grow from step to step, and disturbed runs of 100 steps in float64 take minutes.
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-4)
    assert framejit.stats()["replays"] > 90
