"""A forward with random numbers that runs again under autograd: it draws the same numbers, and its ops have eager's
histories. It runs again for gradients of gradients, for gradients of vmap, and if an input was given other data."""
import pytest
import torch
import torch.nn.functional as F

from steps import Program, check_step

DRAWS = {
    "dropout": lambda x: F.dropout(x * x, 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x * x, 0.5, training=True),
    "dropout of channels": lambda x: F.dropout2d((x * x).repeat(4, 4).view(1, 4, 4, 4), 0.5),
    "rrelu": lambda x: F.rrelu(x * x - 4, 0.1, 0.3, training=True),
    "rrelu in place": lambda x: F.rrelu(x * x - 4, 0.1, 0.3, training=True, inplace=True),
    "rrelu of columns": lambda x: F.rrelu((x * x - 4).view(2, 2).t(), 0.1, 0.3, training=True),
    "rrelu of one slope": lambda x: F.rrelu(x * x - 4, 0.2, 0.2, training=True),
    "rrelu that does not train": lambda x: F.rrelu(x * x - 4, 0.1, 0.3),
    "rrelu, with its noise": lambda x: (
        lambda noise: torch._C._nn.rrelu_with_noise(x * x - 4, noise, 0.1, 0.3, True) * noise)(torch.zeros(4)),
    "numbers like": lambda x: x * x * torch.randn_like(x) + torch.rand_like(x),
    "integers like": lambda x: x * x * torch.randint_like(x, 5),
    "integers of a range like": lambda x: x * x * torch.randint_like(x, 2, 5),
    "integers below a tensor like": lambda x: x * x * torch.randint_like(x, torch.tensor(5)),
    "integers of another dtype like": lambda x: x * x * torch.randint_like(x, 5, dtype=torch.int64),
    "integers like an expanded tensor": lambda x: x * x * torch.randint_like((x * 2).expand(3, 4), 5),
    "chosen": lambda x: x * x * torch.multinomial(x * x, 4, True),
    "written over": lambda x: x * x * (x * 1).bernoulli_(0.5),
    "pool": lambda x: F.fractional_max_pool2d((x * x).repeat(4, 4).view(1, 4, 4, 4), 2, output_size=(2, 3)),
}


def values():
    return torch.tensor([-1.0, -2, 3, -0.5], requires_grad=True)


def second(run, args, k):
    x, = args
    slope, = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    return slope, torch.autograd.grad(slope.sum(), x)[0], torch.rand(1)


def of_other_data(run, args, k):
    x = values()
    y = run(x)
    x.data = torch.tensor([2.0, 1, -1, 3])
    return torch.autograd.grad(y.sum(), x)[0], torch.rand(1)


def of_vmap(run, args, k):
    x, = args
    y = run(x)
    each = torch.arange(2.0 * y.numel()).view(2, *y.shape)
    return torch.autograd.grad(y, x, each, is_grads_batched=True)[0], torch.rand(1)


@pytest.mark.parametrize("step", [second, of_other_data, of_vmap], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", DRAWS)
def test_the_same_numbers(name, step):
    check_step(lambda: Program(DRAWS[name], values(), step=step), backward=None, graphs=1)
