"""torchdiffeq: every method over small networks, dense and at given times; adjoint, events, states that are tuples."""
import random
import sys

import torch
import torchdiffeq

from wild_program import Program

METHODS = sorted(sys.modules["torchdiffeq._impl.odeint"].SOLVERS)  # the package's attribute of this name is a function
FORMS = ("plain", "tuple", "adjoint", "backwards", "function")


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))

    def forward(self, t, y):
        return self.net(y ** 3) * torch.cos(t)


class Pair(Net):
    def forward(self, t, y):
        return self.net(y[0]), -y[1]


def names(seed):
    found = [f"{method} {form}" for method in METHODS for form in FORMS] + ["event"]
    random.Random(seed).shuffle(found)
    return found


def event(y):
    return torchdiffeq.odeint_event(lambda t, y: -y, y, torch.tensor(0.0), event_fn=lambda t, y: y.sum() - 0.5,
                                    atol=1e-6, rtol=1e-6)


def make(name):
    torch.manual_seed(0)
    y, times = torch.rand(1, 2) + 0.5, torch.linspace(0.0, 1.0, 4)
    if name == "event":
        return Program(event, (y,))
    method, form = name.split()
    net = (Pair if form == "tuple" else Net)(8).eval()
    solve = torchdiffeq.odeint_adjoint if form == "adjoint" else torchdiffeq.odeint
    if form == "function":
        net = lambda t, y: -y * t  # noqa: E731  this form is about functions
    if form == "backwards":
        times = times.flip(0)
    rough = {"rtol": 1e-3, "atol": 1e-3}  # thousands of steps are the same program as ten
    if method == "dopri8":  # it would choose its first step by an error that is only rounding, and later steps follow
        rough["options"] = {"first_step": 1.0}
    return Program(lambda y, times: solve(net, (y, y * 2) if form == "tuple" else y, times, method=method, **rough),
                   (y, times))
