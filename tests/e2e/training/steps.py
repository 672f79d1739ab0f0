"""The one entry of the training tests: run a program's steps plainly and compiled, and compare what a user can see.

check_step(make) builds the program twice with make(), after the same seed. Step by step it runs one plainly and one
compiled, and compares: what the step returns or raises, every gradient (or None), parameters, buffers and inputs, which
of them were written, warnings, and the state of the generator. Values keep the contract's bound (check.py) in each
element, or are as near to eager as roundings move them: the program runs again in float64, exactly and disturbed
(wide.py).

The counts of breaks, graphs and backward runs are asserted too: a plain run does not count as success.
"""
import contextlib
import functools
import gc
import re

import pytest
import torch

import framejit
from check import outcome, same, told_by
from devices import DEVICE, off_device, on_device, random_state, set_random_state
from wide import Wide

PRECISIONS = ("f32", "bf16")
# torch writes these without a new version; if they get one, that is no difference.
UNVERSIONED = ("running_mean", "running_var")  # by batch norm
if DEVICE != "cpu":
    UNVERSIONED += ("['exp_avg']", "['grad_avg']")  # by _foreach_lerp_


@pytest.fixture(params=PRECISIONS)
def precision(request):
    """float32, or bfloat16 by autocast around the forward."""
    return request.param


@functools.cache
def has_lstm_of_bfloat16():
    """oneDNN has one only for processors with instructions for bfloat16; on others, eager raises."""
    try:
        with torch.autocast(DEVICE, torch.bfloat16):
            torch.nn.LSTM(2, 2, device=DEVICE)(torch.ones(1, 1, 2, device=DEVICE))
    except RuntimeError:
        return False
    return True


def skip_without_lstm_of_bfloat16():
    if not has_lstm_of_bfloat16():
        pytest.skip("not tested: an LSTM in bfloat16, which this processor does not have")


def cotangent(t):
    """Weights between -1 and 1 for each element of an output, none of them 0 and all different."""
    return torch.linspace(-1, 0.9, max(t.numel(), 1), device=t.device)[:t.numel()].view(t.shape).to(t.dtype)


def leaves_of(value, path=""):
    """(path, leaf) of nested containers, in order; what holds leaves is a leaf of its own, by its class and length."""
    if isinstance(value, dict):
        parts = [(f"[{k!r}]", v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"[{i}]", v) for i, v in enumerate(value)]
    else:
        return [(path, value)]
    return [(path, (type(value).__name__, len(parts)))] + [leaf for name, v in parts for leaf in leaves_of(v,
        path + name)]


def backward(result, **options):
    """The backward of every output that has one, with weights of its own."""
    outputs = [t for _, t in leaves_of(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [cotangent(t) for t in outputs], **options)


class Program:
    """What make() returns: `target` is compiled, step(run, args, k) is step number k of a user who calls it as `run`.

    inputs: the arguments, or a function of k that makes them. watch: more tensors, modules and lists of them whose
    values and gradients are compared.
    """

    def __init__(self, target, *inputs, step=None, watch=(), make_inputs=None, zero=True):
        self.target, self.inputs, self.make_inputs, self.zero = target, inputs, make_inputs, zero
        self.step = step or self.forward_and_backward
        self.watch = watch

    def forward_and_backward(self, run, args, k):
        result = run(*args)
        backward(result)
        return result

    def tensors(self):
        """name -> tensor: what lives from step to step."""
        found = {}

        def walk(name, value):
            if isinstance(value, torch.nn.Module):
                found.update({f"{name}.{n}": t for n, t in value.named_parameters()})
                found.update({f"{name}.{n}": t for n, t in value.named_buffers()})
            elif isinstance(value, torch.Tensor):
                found[name] = value
            elif isinstance(value, torch.optim.Optimizer):
                for group in value.param_groups:
                    walk(f"{name}.parameters", group["params"])
                    walk(f"{name}.state", [value.state[p] for p in group["params"] if p in value.state])
                    walk(f"{name}.settings", {k: v for k, v in group.items() if k != "params"})
            elif isinstance(value, (list, tuple, dict)):
                pairs = value.items() if isinstance(value, dict) else enumerate(value)
                for n, v in pairs:
                    walk(f"{name}[{n!r}]", v)
        walk("model", self.target)
        walk("inputs", self.inputs)
        walk("watch", self.watch)
        return found

    def run_step(self, run, k):
        """How step k ends, and what there is afterwards, by name."""
        kept = self.tensors()
        if self.zero and k:
            for t in kept.values():
                if t.is_leaf:
                    t.grad = None
        before = {name: t._version for name, t in kept.items() if not t.is_inference()}
        with on_device():
            args = self.inputs if self.make_inputs is None else self.make_inputs(k)
            ended, value, warned = outcome(self.step, (run, args, k), {})
        after = self.tensors()
        seen = {"ended": ended, "warnings": warned, "random": random_state()}
        seen |= {f"returned{p}": v for p, v in leaves_of(told(value) if ended == "raised" else value)}
        for name, t in after.items():
            seen[f"{name}"] = t
            seen[f"{name}.requires_grad, is_leaf"] = t.requires_grad, t.is_leaf
            seen[f"{name}.grad"] = t.grad if t.is_leaf else None
            if name in before and t is kept.get(name):
                seen[f"{name} was written"] = t._version != before[name] or name.endswith(UNVERSIONED)
        if self.make_inputs is not None:
            seen |= {f"args[{i}].grad": a.grad for i, a in enumerate(args) if isinstance(a, torch.Tensor)
                     and a.is_leaf}
        return seen


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def mlp(width=4):
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 2))


def regression():
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.LayerNorm(16),
                                torch.nn.Linear(16, 1))
    return model, torch.randn(32, 6), torch.randn(32, 1)


def with_step(step):
    """make() for an mlp whose steps are step(y, x, k): y is what it returns, x its input."""
    def make():
        model, x = mlp(), leaf(5, 3)
        return Program(model, x, step=lambda run, args, k: step(run(x), x, k))
    return make


# Which saved tensor was changed: a plan saves others than eager, and its nodes have names of their own.
WHICH_SAVED = re.compile(r": \[[\w.]+ \[[\d, ]*\]\](, which is output \d+ of [\w:]+,)? is at version \d+; "
                         r"expected version \d+|(?<=^Output )\d+ of \w+")


def told(error):
    """The parts of an exception that are compared."""
    said = told_by(error)
    said["text"] = WHICH_SAVED.sub("", said["text"])
    return {key: said[key] for key in ("class", "text", "causes", "suppressed", "notes")}


def program_of(make, seed):
    torch.manual_seed(seed)
    with on_device():
        made = make()
    return made if isinstance(made, Program) else Program(*made) if isinstance(made, tuple) else Program(made)


def caller(target, autocast=False):
    """autocast: True, or the dtype."""
    def run(*args, **kwargs):
        with off_device(), torch.autocast(DEVICE, torch.bfloat16 if autocast is True else autocast or None,
                                          enabled=bool(autocast)):
            return target(*args, **kwargs)
    return target if DEVICE == "cpu" and not autocast else run


class Again:
    """The same program once more, plainly, in float64. What each step leaves, by name."""

    def __init__(self, make, count, seed, autocast, float64):
        self.make, self.count, self.seed, self.autocast, self.float64 = make, count, seed, autocast, float64

    @functools.cache
    def steps(self, noise=None):
        """What each step leaves, up to the first that fails. noise: the number of a disturbed run."""
        before, kept = random_state(), []
        try:
            with Wide(noise) as mode:
                program = program_of(self.make, self.seed)
                run = caller(framejit.disable(program.target), self.autocast)
                for k in range(self.count):
                    kept.append(mode.values(program.run_step(run, k)))
        except Exception:  # a program that cannot run so
            pass
        finally:
            set_random_state(before)
        return kept

    def in_float64(self, k, name, *noise):
        known = self.steps(*noise) if self.float64 else []
        return known[k].get(name) if k < len(known) else None


def compare(got, want, again, k, strides=True, partial=False, luck="norms"):
    where = f"step {k}"
    assert got["ended"] == want["ended"], f"{where}: {ending(got)} instead of {ending(want)}"
    for name, value in want.items():
        if want["ended"] == "raised" and name.endswith(".grad") and not partial:
            continue
        assert name in got, f"{where}: {name} is missing; there are {list(got)}"
        same(got[name], value, functools.partial(again.in_float64, k, name), f"{where}: {name}", strides, luck)
    assert set(got) == set(want), f"{where}: {set(got) ^ set(want)}"


def ending(seen):
    return {key: value for key, value in seen.items() if key == "ended" or key.startswith("returned")}


@contextlib.contextmanager
def generator_in(states, which):
    """Each of the two programs continues with its own generator state."""
    set_random_state(states[which])
    yield
    states[which] = random_state()


def check_step(make, *, steps=3, breaks=0, graphs=1, backward=True, backward_graphs=None, seed=0, autocast=False,
               strides=True, float64=True, partial=False, captured=True, luck="norms", **options):
    """Asserts that compiled steps are eager's; returns the stats. breaks, graphs, backward_graphs: how many (None: not
    asked). backward: whether backward plans ran in every step, or how many ran in all (None: not asked). float64: False
    for programs whose ops wide.py does not see, those of other threads. partial: what a backward had accumulated before
    it raised is compared too. captured: False for programs that run plainly. luck: as in bounds.py."""
    framejit.reset()
    plain, ours = program_of(make, seed), program_of(make, seed)
    states = dict.fromkeys(("plain", "ours"), random_state())
    compiled = framejit.compile(ours.target, **options)
    again = Again(make, steps, seed, autocast, float64)
    for k in range(steps):
        with generator_in(states, "plain"):
            want = plain.run_step(caller(plain.target, autocast), k)
        with generator_in(states, "ours"):
            got = ours.run_step(caller(compiled, autocast), k)
        compare(got, want, again, k, strides, partial, luck)
    stats = framejit.stats()
    assert_counts(stats, steps, breaks, graphs, backward, backward_graphs,
                  raised=want["ended"] == "raised" or not captured)
    del want, got, plain, ours
    gc.collect(0)
    return stats


def assert_counts(stats, steps=1, breaks=0, graphs=None, backward=True, backward_graphs=None, raised=False):
    """Compares stats(). An expected count of None is not read, so the test states it in another way (stated.py)."""
    shown = dict(stats)  # states nothing
    assert raised or not stats["fallbacks"], f"compiled code failed and plain Python ran: {shown}"
    if breaks is not None:
        assert stats["graph_breaks"] == breaks, f"{stats['graph_breaks']} breaks instead of {breaks}: {shown}"
    if graphs is not None:
        assert stats["graphs"] == graphs, f"{stats['graphs']} graphs instead of {graphs}: {shown}"
    assert raised or breaks is None or shown["graphs"] > 0, f"nothing was compiled: {shown}"
    if backward is True:
        assert stats["backward_graphs"] > 0 and stats["backward_runs"] >= steps, f"a backward ran plainly: {shown}"
    elif backward is not None:
        assert stats["backward_runs"] == int(backward), f"backward runs: {shown}"
    if backward_graphs is not None:
        assert stats["backward_graphs"] == backward_graphs, f"backward graphs: {shown}"
