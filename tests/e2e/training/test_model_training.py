"""Small versions of models that people train: gradients and state equal to eager's, one forward and one backward; the
loss of 20 steps as near to float64 as eager's."""
import functools
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from check import same
from devices import on_device, random_state
from small_trainings import MODELS, NO_DROPOUT
from steps import (  # noqa: F401
    Program, assert_counts, caller, check_step, precision, program_of, skip_without_lstm_of_bfloat16)
from wide import Wide

pytest.importorskip("transformers")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

CASES = [(name, dropout) for name in MODELS for dropout in (0.0, 0.2) if not (dropout and name in NO_DROPOUT)]
CURVE = 20


def training(name, dropout, learning_rate=None):
    """Forward and backward of a model in training mode, and steps of AdamW if there is a learning rate."""
    def make():
        model, inputs = MODELS[name](dropout)
        optimizer = learning_rate and torch.optim.AdamW(model.parameters(), learning_rate)

        def step(run, args, k):
            result = run(**inputs)
            result.loss.backward()
            if optimizer:
                optimizer.step()
                optimizer.zero_grad()
            return result.loss, getattr(result, "logits", None)
        return Program(model.train(), step=step)
    return make


# An output from which other outputs are computed has its own backward: it gets a gradient from each of them, and from
# the program. So has the base of an output that is a view, such as BERT's logits.
BACKWARDS = {"BERT": 3, "DistilBERT": 3, "GPT-2": 2, "Llama": 2, "ViT": 2, "ResNet": 2, "ConvNeXt": 2, "T5": 3,
             "Whisper": 3, "CLIP": 8}


@pytest.mark.parametrize("name, dropout", CASES)
def test_gradients(name, dropout, precision):
    if name == "character LSTM" and precision == "bf16":
        skip_without_lstm_of_bfloat16()
    check_step(training(name, dropout), steps=2, graphs=1, backward_graphs=BACKWARDS.get(name, 1),
               autocast=precision == "bf16")


def curve_of(make, compile_=lambda target: target):
    """The losses of CURVE steps, and the state of the generator after them."""
    program = program_of(make, seed=1)
    run = caller(compile_(program.target))
    with on_device():
        losses = [program.step(run, (), k)[0].detach().clone() for k in range(CURVE)]
    return losses, random_state()


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_loss_curves(name):
    make = training(name, 0.1, learning_rate=0.003)

    @functools.cache
    def exact(noise=None):
        with Wide(noise) as mode:
            return torch.stack(mode.values(curve_of(make)[0]))
    plain, state = curve_of(make)
    ours, our_state = curve_of(make, framejit.compile)
    plain, ours = torch.stack(plain), torch.stack(ours)
    assert float(plain.std()) > 0.01 * float(plain.abs().mean()), "nothing is learned"
    same(ours, plain, exact, luck="norms")
    assert all(map(torch.equal, our_state, state))
    assert_counts(framejit.stats(), CURVE, graphs=1, backward_graphs=BACKWARDS.get(name, 1))


# ---- GANs


def maker_and_judge():
    maker = nn.Sequential(nn.Linear(3, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))
    judge = nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(12, 1))
    return maker, judge


def test_a_gan_with_two_optimizers():
    def make():
        maker, judge = maker_and_judge()
        optimizers = torch.optim.Adam(maker.parameters(), 0.01), torch.optim.Adam(judge.parameters(), 0.01)
        real = torch.randn(8, 4)

        def step(run, args, k):
            made = run(maker, torch.randn(8, 3))
            optimizers[1].zero_grad()
            loss = F.softplus(run(judge, made.detach())).mean() + F.softplus(-run(judge, real)).mean()
            loss.backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            cost = F.softplus(-run(judge, made)).mean()
            cost.backward()
            optimizers[0].step()
            return loss, cost
        return Program(lambda model, x: model(x), step=step, watch=[maker, judge], zero=False)
    check_step(make, backward=None, graphs=None)


def test_a_gan_with_a_gradient_penalty():
    def make():
        maker, judge = maker_and_judge()
        real = torch.randn(8, 4)

        def step(run, args, k):
            made = run(maker, torch.randn(8, 3)).detach()
            mixed = torch.lerp(made, real, torch.rand(8, 1)).requires_grad_()
            [slope] = torch.autograd.grad(run(judge, mixed).sum(), mixed, create_graph=True)
            loss = run(judge, made).mean() - run(judge, real).mean() + 10 * (slope.norm(dim=1) - 1).pow(2).mean()
            loss.backward()
            return loss
        return Program(lambda model, x: model(x), step=step, watch=[maker, judge])
    check_step(make, breaks=None, backward=None, graphs=None)


# ---- as people write loops around them


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "ViT"])
def test_a_model_that_is_evaluated_between_steps(name):
    def make():
        model, inputs = MODELS[name](0.1)
        optimizer = torch.optim.AdamW(model.parameters(), 0.003)

        def step(run, args, k):
            model.train()
            result = run(**inputs)
            result.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                return result.loss, run(**inputs).loss
        return Program(model, step=step, zero=False)
    check_step(make, graphs=2, backward_graphs=BACKWARDS[name])


@pytest.mark.parametrize("name", ["BERT", "Llama"])
def test_gradient_checkpointing(name):
    """As transformers enables it: layers are recomputed in the backward."""
    def make():
        program = training(name, 0.1)()
        program.target.gradient_checkpointing_enable(dict(use_reentrant=False))
        return program
    check_step(make, breaks=None, backward=None, graphs=None)


@pytest.mark.parametrize("name", ["BERT", "ViT"])
def test_a_frozen_body(name):
    """Only the head learns: all other gradients stay None."""
    def make():
        program = training(name, 0.1)()
        body = next(m for _, m in program.target.named_children())
        body.requires_grad_(False)
        return program
    check_step(make, graphs=1, backward_graphs=BACKWARDS[name])


def test_attention_that_is_written_out():
    def make():
        program = training("BERT", 0.1)()
        program.target.set_attn_implementation("eager")
        return program
    check_step(make, graphs=1, backward_graphs=BACKWARDS["BERT"])
