"""Tensors that depend only on constants: reads of their data are answered while tracing, and nothing breaks."""

import torch

import framejit
from check import check, fresh  # noqa: F401

X = torch.ones(4)


def test_reads_of_what_constants_make():
    def steps(x):
        betas = torch.linspace(0.1, 0.9, 1000)
        alphas = torch.cumprod(1 - betas, 0)
        if (alphas[3] > alphas[4]).item():
            x = x + 1
        for t in torch.arange(3):
            x = x * alphas[t]
            if t > 1:
                x = x + 1
        return x, float(betas[1]), int(betas[999]), betas[:3].tolist(), [1, 2][torch.tensor(1)], bool(betas[0] > 0)

    def sizes(x):
        b = torch.linspace(0, 1, 8)
        chosen = (b > 0.5).nonzero()
        return x + len(chosen), chosen, b[b > 0.5], torch.unique(torch.tensor([3, 1, 3])), torch.where(b > 0.5)[0]

    def splits(x):
        low, high = torch.arange(6.0).chunk(2)
        return x * high[0].item(), low

    for f in (steps, sizes, splits):
        check(f, X, breaks=0)


def test_what_is_written_is_not_known():
    def in_place(x):
        t = torch.zeros(2)
        before = t + 1
        t.add_(3)
        return x * t[0].item() + before[0].item()

    def through_a_view(x):
        t = torch.zeros(4)
        t[1:].fill_(2)
        return x * t[1].item()

    def known_before_it_is_written(x):
        t = torch.ones(2)
        first = t[0].item()
        double = t * 2
        t.fill_(7)
        return x * first * double[0].item() * t[0].item()

    def of_an_input(x):
        t = torch.arange(4.0) + x
        return t[1].item(), x + 1

    def random(x):
        return torch.rand(3).tolist(), x + 1

    for f, breaks in ((in_place, 2), (through_a_view, 1), (known_before_it_is_written, 2), (of_an_input, 1),
                      (random, 1)):
        check(f, X, compiles=breaks + 1, breaks=breaks)


def test_contents_are_the_programs_own():
    def f(x):
        t = torch.tensor([1.0, 2.0])
        k = (t > 1).nonzero()
        return t, k, x * t[1].item()

    compiled = framejit.compile(f)
    for _ in range(3):
        t, k, _ = compiled(X)
        assert t.tolist() == [1, 2] and k.tolist() == [[1]]
        t.zero_()
        k.fill_(9)
    assert framejit.stats()["graph_breaks"] == 0


def test_the_class_tensor_is_called():
    def of_data(x):
        return torch.Tensor([1, 2.5]), torch.Tensor((1, 2)), torch.Tensor([[1], [2]]), torch.Tensor([]), x + 1

    def of_sizes(x):
        return torch.Tensor(2, 3).shape, torch.Tensor(torch.Size([2])).shape, torch.Tensor(x), x + 1
    check(of_data, X, breaks=0)
    check(of_sizes, X, breaks=3)
