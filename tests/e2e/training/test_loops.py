"""Training loops, compiled: optimizers, schedulers, clipping, autocast, epochs of many lengths, flat memory."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import framejit
from check import assert_flat
from devices import DEVICE
from steps import Program, assert_counts, check_step, precision, regression  # noqa: F401

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "sgd, nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd, dampening, maximize": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, dampening=0.1, maximize=True),
    "sgd, foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "sgd, fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adam, amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.01),
    "adam, foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.05),
    "adamw, foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "adamw, fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "adamax": lambda p: torch.optim.Adamax(p, 0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
    "rmsprop, centered": lambda p: torch.optim.RMSprop(p, 0.01, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, 0.5),
    "nadam": lambda p: torch.optim.NAdam(p, 0.01),
    "radam": lambda p: torch.optim.RAdam(p, 0.01),
    "asgd": lambda p: torch.optim.ASGD(p, 0.05),
    "tensor learning rate": lambda p: torch.optim.Adam(p, torch.tensor(0.01)),
    "groups": lambda p: (lambda ps: torch.optim.AdamW([{"params": ps[:1], "lr": 0.05},
                                                       {"params": ps[1:], "weight_decay": 0.0}], 0.01))(list(p)),
}


def make_loop(make_optimizer):
    """The model is compiled and the rest is plain, as most people write it."""
    def make():
        model, x, y = regression()
        optimizer = make_optimizer(model.parameters())

        def step(run, args, k):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            optimizer.step()
            return loss
        return Program(model, x, step=step, watch=[optimizer], zero=False)
    return make


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_loops_around_a_compiled_model(name):
    check_step(make_loop(OPTIMIZERS[name]), steps=4, graphs=1, backward_graphs=1)


def test_a_loop_under_autocast():
    check_step(make_loop(OPTIMIZERS["adamw"]), steps=4, autocast=True, graphs=1, backward_graphs=1)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_optimizer_steps(name):
    """compile(opt.step): forward and backward are plain."""
    def make():
        model, x, y = regression()
        optimizer = OPTIMIZERS[name](model.parameters())

        def step(run, args, k):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            run()
            return loss
        return Program(optimizer.step, step=step, watch=[model, optimizer], zero=False)
    check_step(make, steps=4, breaks=None, backward=False, graphs=None)


@pytest.mark.parametrize("name", ["sgd", "sgd, nesterov", "adam", "adamw, foreach", "rmsprop"])
def test_compiled_training_steps(name):
    """compile(train_step): forward, backward and optimizer."""
    def make():
        model, x, y = regression()
        optimizer = OPTIMIZERS[name](model.parameters())

        def train_step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss.detach()
        return Program(train_step, x, y, step=lambda run, args, k: run(*args), watch=[model, optimizer], zero=False)
    check_step(make, steps=4, breaks=None, backward=None, graphs=2)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("norm", [2.0, float("inf")])
def test_clipping(inside, norm):
    def make():
        model, x, y = regression()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def clipped():
            total = nn.utils.clip_grad_norm_(model.parameters(), 0.25, norm)
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
            optimizer.step()
            return total

        def step(run, args, k):
            optimizer.zero_grad()
            loss = F.mse_loss((model if inside else run)(x), y)
            loss.backward()
            return loss, (run if inside else clipped)()
        return Program(clipped if inside else model, step=step, watch=[model, optimizer], zero=False)
    check_step(make, steps=4, breaks=None if inside else 0, backward=None)


SCHEDULERS = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
    "warm up": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: min(1.0, (k + 1) / 4)),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(name):
    def make():
        model, x, y = regression()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scheduler = SCHEDULERS[name](optimizer)

        def step(run, args, k):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss, scheduler.get_last_lr()
        return Program(model, step=step, watch=[optimizer], zero=False)
    check_step(make, steps=6, graphs=1, backward_graphs=1)


@pytest.mark.parametrize("name", ["sgd, nesterov", "adamw"])
def test_learning_rates_that_change_compile_at_most_once_more(name):
    def make():
        model, x, y = regression()
        optimizer = OPTIMIZERS[name](model.parameters())
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (k + 1))

        def step(run, args, k):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            run()
            scheduler.step()
        return Program(optimizer.step, step=step, watch=[model, optimizer], zero=False)
    check_step(make, steps=4, breaks=None, backward=False, graphs=3)
    few = framejit.stats()["graphs"]
    check_step(make, steps=10, breaks=None, backward=False, graphs=3)
    assert framejit.stats()["graphs"] == few, "graphs grow with the learning rates"


def test_closures():
    def make():
        model, x, y = regression()
        optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3)

        def step(run, args, k):
            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(run(x), y)
                loss.backward()
                return loss
            return optimizer.step(closure)
        return Program(model, step=step, zero=False)
    check_step(make, backward=None)


def test_micro_batches():
    """Gradients accumulate over four of them; the optimizer steps after the last."""
    def make():
        model, x, y = regression()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)

        def step(run, args, k):
            for part, target in zip(x.chunk(4), y.chunk(4)):
                (F.mse_loss(run(part), target) / 4).backward()
            optimizer.step()
            optimizer.zero_grad()
        return Program(model, step=step, watch=[optimizer], zero=False)
    check_step(make, graphs=1, backward_graphs=1, backward=12)


def test_a_scaler_around():
    def make():
        model, x, y = regression()
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(DEVICE, init_scale=1024.0)

        def step(run, args, k):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x).float(), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss, scaler.get_scale()
        return Program(model, step=step, watch=[optimizer], zero=False)
    check_step(make, graphs=1, backward_graphs=1, autocast=True)


def test_an_average_of_the_weights():
    def make():
        model, x, y = regression()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))

        def step(run, args, k):
            optimizer.zero_grad()
            F.mse_loss(run(x), y).backward()
            optimizer.step()
            average.update_parameters(model)
            with torch.no_grad():
                return average(x)
        return Program(model, step=step, watch=[optimizer, average], zero=False)
    check_step(make)


def test_weights_that_are_loaded_between_steps():
    """load_state_dict(assign=True) replaces the parameters of the module."""
    def make():
        model, x, y = regression()
        other = {name: torch.randn_like(p) * 0.1 for name, p in model.state_dict().items()}

        def step(run, args, k):
            if k == 2:
                model.load_state_dict(other, assign=True)
            loss = F.mse_loss(run(x), y)
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.1)
            return loss
        return Program(model, step=step)
    check_step(make, steps=4)


def test_two_optimizers_and_two_models():
    """As in a GAN: while one is trained, the other is frozen."""
    def make():
        maker = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
        judge = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        optimizers = torch.optim.Adam(maker.parameters(), 0.01), torch.optim.Adam(judge.parameters(), 0.01)
        real = torch.randn(8, 3)

        def step(run, args, k):
            made = run(maker, torch.randn(8, 2))
            optimizers[1].zero_grad()
            loss = F.softplus(run(judge, made.detach())).mean() + F.softplus(-run(judge, real)).mean()
            loss.backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            judge.requires_grad_(False)
            cost = F.softplus(-run(judge, made)).mean()
            cost.backward()
            judge.requires_grad_(True)
            optimizers[0].step()
            return loss, cost
        return Program(lambda model, x: model(x), step=step, watch=[maker, judge, *optimizers], zero=False)
    check_step(make, steps=4, backward=None, graphs=3)


# ---- epochs


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.hidden = nn.Embedding(20, 8), nn.Linear(8, 16)
        self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, ids, labels):
        y = self.out(self.norm(F.gelu(self.hidden(self.embedding(ids)))))
        return F.cross_entropy(y.flatten(0, 1), labels.flatten(), ignore_index=-100)


def batch_of(rows, length):
    return torch.randint(0, 20, (rows, length)), torch.randint(0, 5, (rows, length))


def epoch(shapes):
    def make():
        model = Tagger()
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)

        def step(run, args, k):
            optimizer.zero_grad()
            loss = run(*batch_of(*shapes[k]))
            loss.backward()
            optimizer.step()
            return loss
        return Program(model, step=step, watch=[optimizer], zero=False)
    return make


def assert_few_compiles(stats, most=2):
    assert stats["graphs"] <= most and stats["backward_graphs"] <= most, stats


def test_an_epoch_with_a_smaller_last_batch():
    assert_few_compiles(check_step(epoch([(4, 6)] * 3 + [(3, 6)] + [(4, 6)] * 2), steps=6, graphs=2))


def test_an_epoch_with_twenty_lengths():
    lengths = [5, 17, 9, 30, 2, 11, 24, 7, 13, 19, 3, 28, 21, 15, 6, 26, 4, 10, 23, 8]
    assert_few_compiles(check_step(epoch([(4, n) for n in lengths] + [(2, 12)]), steps=21, graphs=2))


def test_images_of_other_sizes():
    def make():
        model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 2, 3))

        def step(run, args, k):
            y = run(torch.randn(2, 3, [8, 12, 9, 16, 7][k % 5], 8))
            loss = y.pow(2).mean()
            loss.backward()
            return y
        return Program(model, step=step)
    assert_few_compiles(check_step(make, steps=6, graphs=2))


def test_a_data_loader():
    data = torch.utils.data.TensorDataset(torch.randn(21, 6), torch.randn(21, 1))

    def make():
        model, *_ = regression()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)

        def step(run, args, k):
            losses = []
            for x, y in torch.utils.data.DataLoader(data, batch_size=8, shuffle=True):
                optimizer.zero_grad()
                loss = F.mse_loss(run(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return len(losses)
        return Program(model, step=step, watch=[optimizer], zero=False)
    assert_few_compiles(check_step(make, steps=2, backward=6, graphs=2))


# ---- memory


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_memory_stays_flat(dropout):
    """Hundreds of steps; in some of them the outputs are dropped without a backward, or go backward twice."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(dropout), nn.LayerNorm(128), nn.Linear(128, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    compiled, x = framejit.compile(model), torch.randn(16, 64)

    def run():
        for k in range(300):
            optimizer.zero_grad()
            loss = compiled(x).pow(2).mean()
            if k % 7 == 0:
                continue
            if k % 11 == 0:
                loss.backward(retain_graph=True)
            loss.backward()
            optimizer.step()
    run()
    assert_flat(run, 2500)
    assert_counts(framejit.stats(), 500, graphs=1, backward_graphs=1, breaks=0)


def test_memory_of_models_that_are_made_and_dropped():
    def run():
        for _ in range(60):
            model = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8))
            framejit.compile(model)(torch.randn(4, 256)).sum().backward()
    run()
    assert_flat(run, 2500)
    assert_counts(framejit.stats(), 120)


def test_a_loop_learns():
    """Everything together: the loss falls as far as eager's."""
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    y = (x[:, :1] * x[:, 1:2]).tanh()
    start, *_ = regression()
    ends = []
    for compile_ in (lambda m: m, framejit.compile):
        model = copy.deepcopy(start)
        optimizer, run = torch.optim.Adam(model.parameters(), 0.02), compile_(model)
        for _ in range(150):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            optimizer.step()
        ends.append(loss.item())
    first = F.mse_loss(start(x), y).item()
    assert ends[0] < 0.2 * first and abs(ends[1] - ends[0]) < 0.05 * first, (first, ends)
    assert_counts(framejit.stats(), 150, graphs=1, backward_graphs=1)
