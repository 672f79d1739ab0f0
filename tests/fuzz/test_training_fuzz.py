"""The short, seeded run of the fuzzer of differentiable programs, and the planted defects that it finds."""
import ast
import contextlib
import re

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import framejit
import training_fuzz

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("backend, seeds", [("framejit", range(80)), ("eager", range(80, 110))])
def test_programs(backend, seeds):
    failures, whole = training_fuzz.fuzz(seeds.start, len(seeds), backend)
    assert not failures, "\n".join(failures)
    assert whole >= 0.8 * len(seeds)


def test_programs_with_a_backward_inside():
    failures, whole = training_fuzz.fuzz(0, 25, "framejit", inner=True)
    assert not failures, "\n".join(failures)
    assert whole >= 10


def test_programs_go_backward():
    """Most programs have gradients; some have none, some raise, some write inputs."""
    facts = []
    for seed in range(60):
        program = training_fuzz.Program(seed)
        scope = {"torch": torch}
        exec(program.source(), scope)
        facts.append(training_fuzz.Steps(program, scope["f"]))
    gradients = [any(name.startswith(("gradient", "taken")) for name, _ in steps.numbers) for steps in facts]
    errors = [any(name in ("backward", "grad") and isinstance(rest[0], str) for name, *rest in steps.facts)
              for steps in facts]
    assert sum(gradients) > 35 and 0 < sum(errors) < 25, (sum(gradients), sum(errors))


# ---- planted defects: each stands in for framejit.compile


class Opaque(torch.autograd.Function):
    """f on detached copies, with its own graph: changes of the inputs are not seen, and every input has a gradient."""

    @staticmethod
    def forward(ctx, f, zeros, *inputs):
        ctx.zeros = zeros
        with torch.enable_grad():
            ctx.kept = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
            copies = [t * 1 if t.requires_grad else t.clone() for t in ctx.kept]
            ctx.made = f(*copies)
        for t, now in zip(inputs, copies):
            if now._version != 0:
                t.copy_(now.detach())
        ctx.set_materialize_grads(False)
        results = tuple(t.detach() for t in ctx.made)
        ctx.mark_non_differentiable(*[r for r, t in zip(results, ctx.made) if not t.requires_grad])
        return results

    @staticmethod
    def backward(ctx, *grads):
        pairs = [(t, g) for t, g in zip(ctx.made, grads) if g is not None and t.requires_grad]
        asked = [t for t in ctx.kept if t.requires_grad]
        found = iter(torch.autograd.grad([t for t, _ in pairs], asked, [g for _, g in pairs], allow_unused=True,
                                         retain_graph=True))
        taken = [next(found) if t.requires_grad else None for t in ctx.kept]
        if ctx.zeros:
            taken = [torch.zeros_like(t) if g is None and t.requires_grad else g for t, g in zip(ctx.kept, taken)]
        return None, None, *taken


def no_version_is_checked(f):
    return lambda *inputs: Opaque.apply(f, False, *inputs)


def none_becomes_zeros(f):
    return lambda *inputs: Opaque.apply(f, True, *inputs)


@contextlib.contextmanager
def other_numbers():
    """The generator returns other numbers, but its state afterwards is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        yield


def a_mask_is_drawn_twice(f):
    return lambda *inputs: checkpoint(f, *inputs, use_reentrant=False, preserve_rng_state=False,
                                      context_fn=lambda: (contextlib.nullcontext(), other_numbers()))


def the_generator_stands_still(f):
    def call(*inputs):
        state = torch.get_rng_state()
        result = f(*inputs)
        torch.set_rng_state(state)
        return result
    return call


def a_hook_is_lost(f):
    return lambda *inputs: tuple(t * 1 if t.requires_grad and not t._is_view() else t for t in f(*[
        t.detach().requires_grad_(t.requires_grad) if t.is_leaf and t.is_floating_point() else t for t in inputs]))


class OfAnotherForward(torch.autograd.Function):
    """The first gradient is right, but computed from another value."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.detach() + (g * 2 - (g * 2).detach()) if torch.is_grad_enabled() else g


def a_gradient_has_another_history(f):
    return lambda *inputs: f(*[OfAnotherForward.apply(t) if t.requires_grad else t for t in inputs])


def a_write_is_lost(f):
    return lambda *inputs: f(*[t.clone() for t in inputs])


def mutated(mutant):
    """f with another source, as seen by compile()."""
    def compiled(f):
        seed = int(f.__code__.co_filename.split()[1][:-1])
        tree = ast.parse(training_fuzz.Program(seed).source())
        scope = {"torch": torch}
        exec(compile(ast.fix_missing_locations(mutant().visit(tree)), f.__code__.co_filename, "exec"), scope)
        return scope["f"]
    return compiled


class IgnoresDetach(ast.NodeTransformer):
    def visit_Call(self, node):
        self.generic_visit(node)
        return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "detach" else node


class IgnoresNoGrad(ast.NodeTransformer):
    def visit_With(self, node):
        self.generic_visit(node)
        node.items = [ast.parse("with torch.enable_grad(): pass").body[0].items[0]]
        return node


class WritesWithoutAutograd(ast.NodeTransformer):
    """An in-place op that does not change the derivative."""

    def visit_Expr(self, node):
        text = ast.unparse(node)
        if ".mul_(" not in text:
            return node
        return ast.parse(text.replace(".mul_(", ".detach().mul_(")).body[0]


# With the words that the fuzzer must print.
PLANTS = {"no version is checked": (no_version_is_checked, r"instead of \('(backward|grad).*modified by an inplace"),
          "None becomes zeros": (none_becomes_zeros, r"instead of \('(gradient of \w|taken)', None\)"),
          "a mask is drawn twice": (a_mask_is_drawn_twice, r"^(gradient|taken|hook).*off by"),
          "the generator stands still": (the_generator_stands_still, "generator"),
          "a hook is lost": (a_hook_is_lost, "hook"), "a write is lost": (a_write_is_lost, "written"),
          "detach is ignored": (mutated(IgnoresDetach), "off by"),
          "no_grad is ignored": (mutated(IgnoresNoGrad), "gradient of|True"),
          "a gradient has another history": (a_gradient_has_another_history, "^taken: off by"),
          "a write has no derivative": (mutated(WritesWithoutAutograd), "off by")}


def seeds_until_found(compiled, told="", limit=150):
    """How many seeds the fuzzer needs to find the defect of `compiled` and to describe it; None if it does not find
    it."""
    real = framejit.compile
    framejit.compile = lambda f, **options: compiled(f)
    try:
        for seed in range(limit):
            why = training_fuzz.run(training_fuzz.Program(seed), seed, "framejit")
            if why and re.search(told, why):
                return seed + 1
    finally:
        framejit.compile = real
    return None


@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_defect_is_found(name):
    assert seeds_until_found(*PLANTS[name])


@pytest.mark.nothing_captured
def test_without_a_defect_nothing_is_found():
    assert seeds_until_found(lambda f: f, limit=30) is None
