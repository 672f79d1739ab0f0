"""Results whose size depends on data, in training: the graph breaks there, and both halves are trained compiled."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from steps import Program, check_step, leaf, mlp


def halves(make, **options):
    """Two graphs, each with a backward that runs in every step."""
    return check_step(make, **{"graphs": 2, "breaks": 1, "backward": 6, "backward_graphs": 2, **options})


def test_rows_by_a_mask():
    def make():
        body, head = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 2)

        def f(x):
            h = body(x)
            return head(h[x[:, 0] > 0]).sigmoid()
        return Program(f, leaf(6, 3), watch=[body, head])
    halves(make)


def test_the_mean_of_masked_losses():
    def make():
        model, labels = mlp(), torch.tensor([0, 1, 1, 0, 1, 0])
        mask = torch.tensor([True, False, True, True, False, True])

        def f(x):
            losses = F.cross_entropy(model(x), labels, reduction="none")
            return losses[mask].mean() * 2
        return Program(f, torch.randn(6, 3), watch=[model])
    halves(make)


def test_masked_select():
    def make():
        model = mlp()

        def f(x):
            h = model(x)
            return torch.masked_select(h, h > 0).square().sum()
        return Program(f, leaf(6, 3), watch=[model])
    halves(make)


def test_indices_that_are_found():
    def make():
        layer = nn.Linear(3, 4)

        def f(x):
            h = layer(x)
            return h.index_select(0, (x[:, 0] > 0).nonzero().squeeze(-1)).square().sum() + h.mean()
        return Program(f, leaf(6, 3), watch=[layer])
    halves(make)


@pytest.mark.breaks(data_dependent_size=2)
def test_token_classification():
    """Each step has another number of labels: sizes become symbols."""
    def make():
        model = mlp()

        def f(x, labels):
            logits = model(x).view(-1, 2)
            active = labels.view(-1) != -100
            return F.cross_entropy(logits[active], labels.view(-1)[active]), logits.softmax(-1)

        def inputs(k):
            labels = torch.randint(0, 2, (2, 6))
            labels[0, :k + 1] = -100
            return torch.randn(2, 6, 3), labels
        return Program(f, make_inputs=inputs, watch=[model])
    stats = check_step(make, steps=5, breaks=None, backward=None, graphs=None)
    assert stats["backward_runs"] >= 10, stats["backward_runs"]


def test_a_token_for_what_is_masked():
    """Written in place, it has a fixed size: one graph."""
    def make():
        model, token = mlp(), nn.Parameter(torch.randn(2))

        def f(x):
            h = model(x)
            h[x[:, 0] > 0] = token
            return h.square().sum()
        return Program(f, leaf(6, 3), watch=[model, token])
    check_step(make, graphs=1)


@pytest.mark.breaks(data_dependent_size=2, gradient_call=1)
def test_a_whole_step():
    def make():
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def f(x):
            optimizer.zero_grad()
            h = model(x)
            loss = h[x[:, 0] > 0].square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()
        return Program(f, torch.randn(6, 3), watch=[model, optimizer], zero=False,
                       step=lambda run, args, k: run(*args))
    check_step(make, breaks=None, backward=6, graphs=None)
