"""Tensors that depend only on constants: reads of their data are answered while tracing, and nothing breaks."""

import pytest
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


def test_what_is_written_is_known_at_each_moment():
    def in_place(x):
        t = torch.zeros(2)
        before = t + 1
        t.add_(3)
        return x * t[0].item() + before[0].item()

    def through_a_view(x):
        t = torch.zeros(4)
        t[1:].fill_(2)
        return x * t[1].item() + t.sum().item()

    def before_and_after(x):
        t = torch.ones(2)
        first = t[0].item()
        double = t * 2
        t.fill_(7)
        return x * first * double[0].item() * t[0].item()

    def asked_late(x):
        t = torch.arange(4.0)
        old, view = t * 2, t[1:]
        t.mul_(3)
        newer = view + 1
        t[::2] = -1
        return x * newer[0].item(), old.tolist(), view.tolist(), t.tolist()

    def of_two_storages(x):
        a, b = torch.ones(2), torch.arange(2.0)
        b.add_(a)
        c = b + 1
        b.mul_(5)
        return x * c[0].item(), b.tolist(), torch.add(a, a, out=torch.empty(2))[0].item()

    def lists(x):
        t = torch.arange(3.0)
        t += 1
        return x * torch.stack([t[0], t[2]]).sum().item(), torch.maximum(t[:2], t[1:]).tolist()

    def reshaped(x):
        t = torch.arange(6.0).view(2, 3).t().reshape(6)
        t[0] = 7
        first = t[0].item()
        t[1] += 1
        return x + first, t.tolist(), t.tolist()

    def masks(x):
        q = torch.tensor([0.25, 0.5])
        inside = q.ge(0)
        inside.logical_and_(q.le(1))
        return x + 1 if inside.all() else x - 1

    def counted(x):
        i = torch.zeros((), dtype=torch.long)
        while i < 5:
            x = x * 2 + i
            i += 1
        return x, i

    def lifted(x):
        t = torch.tensor([3, 1, 2])
        t[0] = 9
        return x + t.argmax().item(), t

    for f in (in_place, through_a_view, before_and_after, asked_late, of_two_storages, lists,
              reshaped, masks, counted, lifted):
        check(f, X, breaks=0)


@pytest.mark.breaks(data_dependent_value=1)
def test_what_is_not_known():
    def of_an_input(x):
        t = torch.arange(4.0) + x
        return t[1].item(), x + 1

    def random(x):
        return torch.rand(3).tolist(), x + 1

    def random_in_place(x):
        t = torch.zeros(3)
        t.uniform_()
        return t.tolist(), x + 1

    def written_from_an_input(x):
        t = torch.zeros(4)
        t.add_(x)
        return t[0].item(), x + 1

    def written_with_an_input_later(x):
        t = torch.zeros(4)
        t[0] = x[0]
        t[1] = 2
        return t.tolist(), x + 1

    def each_from_the_other(x):
        a, b = torch.ones(2), torch.ones(2)
        b.add_(a)
        a.add_(b)
        return a.tolist(), x + 1

    for f in (of_an_input, random, random_in_place, written_from_an_input, written_with_an_input_later):
        check(f, X, compiles=2, breaks=1)
    compiled = framejit.compile(each_from_the_other)
    assert compiled(X)[0] == each_from_the_other(X)[0] == compiled(X)[0]


def test_many_writes_end_the_search():
    def f(x):
        i = torch.zeros(())
        for _ in range(400):
            i += 1
        return x * i.item()
    check(f, X, compiles=2, breaks=1)


def test_quantiles():
    def f(x):
        return (torch.quantile(x, 0.3), torch.quantile(x, torch.tensor([0.1, 0.9]), dim=0, keepdim=True),
                torch.nanquantile(x, 0.5, interpolation="lower"), x.median())
    check(f, torch.randn(7, 5), breaks=0)
    check(lambda x: torch.quantile(x, 1.5), torch.randn(7))
    check(lambda x: torch.quantile(x, torch.tensor([0.5, -1.0])), torch.randn(7))


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
