"""Each fuzzer finds defects that are planted in the code that it compares with eager."""
import ast
import contextlib
import io

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import framejit
import frames_fuzz
import graphs_fuzz
import values_fuzz

aten = torch.ops.aten


class Planted(TorchDispatchMode):
    """`wrong(op, args, kwargs)` replaces op `name`."""

    def __init__(self, name, wrong):
        super().__init__()
        self.name, self.wrong = name, wrong

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        call = self.wrong if str(func.overloadpacket) == f"aten.{self.name}" else lambda op, a, k: op(*a, **k)
        return call(func, args, kwargs or {})


def backend_with(name, wrong):
    """A backend that runs the graph with a defect."""
    def backend(graph, examples):
        def run(*inputs):
            with Planted(name, wrong):
                return graph(*inputs)
        return run
    return backend


def seeds_until_found(fuzzer, limit, backend):
    """How many seeds the fuzzer needs to fail."""
    for count in range(1, limit + 1):
        program = fuzzer.Program(count - 1)
        source = program.source()
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                if fuzzer.run(source if fuzzer is frames_fuzz else program, count - 1, backend):
                    return count
            except SyntaxError:
                continue
    pytest.fail(f"{limit} seeds found nothing")


OPS = {
    "an add that subtracts": ("add", lambda op, a, k: aten.sub.Tensor(*a, **k) if op is aten.add.Tensor
                              else op(*a, **k)),
    "a sum that misses an element": ("sum", lambda op, a, k: op(a[0].narrow(-1, 0, a[0].size(-1) - 1) if a[0].dim()
                                                                and a[0].size(-1) > 1 else a[0], *a[1:], **k)),
    "a relu that keeps negatives": ("relu", lambda op, a, k: a[0].clone()),
    "a half that is off by 3%": ("mul", lambda op, a, k: op(*a, **k) * 1.03 if a[0].dtype.is_floating_point
                                 else op(*a, **k)),
}


@pytest.mark.parametrize("name", OPS)
def test_graphs_fuzz_finds_wrong_ops(name):
    assert seeds_until_found(graphs_fuzz, 40, backend_with(*OPS[name]))


@pytest.mark.parametrize("name",
                         ["an add that subtracts", "a sum that misses an element", "a relu that keeps negatives"])
def test_frames_fuzz_finds_wrong_ops(name):
    assert seeds_until_found(frames_fuzz, 40, backend_with(*OPS[name]))


# Defects that show only with odd dtypes, layouts and numbers.
ODD = {
    "a remainder with the sign of the first number": ("remainder", lambda op, a, k: torch.fmod(*a)),
    "a zero that loses its sign": ("neg", lambda op, a, k: 0 - a[0]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_values_fuzz_finds_wrong_ops(name):
    assert seeds_until_found(values_fuzz, 600, backend_with(*ODD[name]))


# Defects of a tracer: the compiled side runs a slightly different program.

class DropsEffect(ast.NodeTransformer):
    def visit_AugAssign(self, node):
        return ast.Pass() if ast.unparse(node.target) == "o.count" else node


class SwapsEffects(ast.NodeTransformer):
    def visit_Call(self, node):
        self.generic_visit(node)
        if ast.unparse(node.func) == "xs.append":
            return ast.parse(f"xs.insert(0, {ast.unparse(node.args[0])})", mode="eval").body
        return node


class SkipsFinally(ast.NodeTransformer):
    def visit_Try(self, node):
        self.generic_visit(node)
        node.finalbody = [ast.Pass()] if node.finalbody else []
        return node


class ForgetsContinue(ast.NodeTransformer):
    def visit_Continue(self, node):
        return ast.Pass()


class LosesNonlocal(ast.NodeTransformer):
    def visit_Nonlocal(self, node):
        return ast.parse("n1 = 1").body[0]


class SkipsBreaks(ast.NodeTransformer):
    def visit_Expr(self, node):
        return ast.Pass() if ast.unparse(node).startswith("log(") else node


class TakesOtherBranch(ast.NodeTransformer):
    def visit_If(self, node):
        self.generic_visit(node)
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return node


class CopiesArguments(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        if node.name == "f":
            node.body.insert(0, ast.parse("xs = list(xs)").body[0])
        return node


class InF(ast.NodeTransformer):
    def visit_FunctionDef(self, node):
        return self.generic_visit(node) if node.name == "f" else node


def taken_first(node):
    """list(...) of an expression: all its items are taken before the first is used."""
    return ast.Call(ast.Name("list", ast.Load()), [node], [])


class TakesItemsFirst(InF):
    def visit_Call(self, node):
        self.generic_visit(node)
        written = isinstance(node.func, ast.Attribute) and node.func.attr
        if written in ("extend", "extendleft", "update", "difference_update"):
            node.args = [taken_first(a) if isinstance(a, ast.GeneratorExp) else a for a in node.args]
        return node

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        if isinstance(node.value, ast.GeneratorExp):
            node.value = taken_first(node.value)
        return node


class LosesWhatWasTaken(InF):
    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.args and ast.unparse(node.args[0]).startswith("half("):
            node.args[0] = taken_first(node.args[0])
        return node


class AddsUpLater(InF):
    def visit_Call(self, node):
        self.generic_visit(node)
        if ast.unparse(node.func) == "sum":
            node.args[0] = taken_first(node.args[0])
        return node


class AsksKeysLater(InF):
    def visit_Call(self, node):
        self.generic_visit(node)
        asks = ast.unparse(node.func) in ("min", "any", "itertools.takewhile")
        if asks and isinstance(node.args[-1], (ast.Call, ast.GeneratorExp)):
            node.args[-1] = taken_first(node.args[-1])
        return node


class SortsInSight(InF):
    def visit_Expr(self, node):
        text = ast.unparse(node)
        if ".sort(" not in text:
            return node
        name, rest = text.split(".sort(", 1)
        return ast.parse(f"{name}[:] = sorted({name}, {rest}").body[0]


class KeepsDeleted(InF):
    def visit_Delete(self, node):
        return ast.Pass()


class StaysUnbound(InF):
    def visit_Assign(self, node):
        return ast.Expr(node.value) if ast.unparse(node.targets[0]) in ("u0", "u1") else node


class IsAlwaysBound(InF):
    def visit_FunctionDef(self, node):
        if node.name == "f":
            node.body.insert(0, ast.parse("u0 = u1 = x").body[0])
        return node


class CopiesAliases(InF):
    def visit_Assign(self, node):
        if ast.unparse(node) in ("ys = xs", "o.items = xs", "o.items = ys"):
            node.value = taken_first(node.value)
        return node


class IteratesOverACopy(InF):
    def visit_Assign(self, node):
        if ast.unparse(node) in ("it0 = iter(xs)", "it0 = iter(ys)", "it0 = iter(o.items)"):
            node.value.args[0] = taken_first(node.value.args[0])
        return node


class KeepsYes(ast.NodeTransformer):
    def visit_Call(self, node):
        self.generic_visit(node)
        return ast.Constant(True) if ast.unparse(node.func) == "torch.compiler.is_compiling" else node


MUTANTS = [DropsEffect, SwapsEffects, SkipsFinally, ForgetsContinue, LosesNonlocal, SkipsBreaks, TakesOtherBranch,
           CopiesArguments, TakesItemsFirst, LosesWhatWasTaken, AddsUpLater, AsksKeysLater, SortsInSight, KeepsDeleted,
           StaysUnbound, IsAlwaysBound, CopiesAliases, IteratesOverACopy, KeepsYes]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_frames_fuzz_finds_wrong_frames(mutant, monkeypatch):
    def compile_mutant(fn, **options):
        seed = int(fn.__code__.co_filename.split()[1][:-1])
        tree = ast.fix_missing_locations(mutant().visit(ast.parse(frames_fuzz.Program(seed).source())))
        scope, log = fn.__globals__, fn.__globals__["LOG"]
        exec(compile(tree, fn.__code__.co_filename, "exec"), scope)
        scope["LOG"] = log  # the log that is compared
        return scope["f"]
    monkeypatch.setattr(framejit, "compile", compile_mutant)
    assert seeds_until_found(frames_fuzz, 100, "eager")


# Defects of a compiler: strides, shared memory, writes.

RESULTS = {
    "strides": lambda t: t.clone(memory_format=torch.contiguous_format),
    "a copy in place of a view": lambda t: t.clone(),
    "dtype": lambda t: t.float() if t.dtype == torch.bfloat16 else t.double() if t.dtype == torch.float32
    and not t.dim() else t,
    "one element": lambda t: t.clone().index_fill_(-1, torch.tensor([t.size(-1) - 1]), 0) if t.dim() and t.numel()
    else t,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*RESULTS, "a write that is lost"])
def test_graphs_fuzz_finds_wrong_results(name, monkeypatch):
    def altered(fn, **options):
        def call(*inputs):
            if name == "a write that is lost":
                return fn(*[t.clone(memory_format=torch.preserve_format) for t in inputs])
            result = fn(*inputs)
            return tuple(map(RESULTS[name], result)) if isinstance(result, tuple) else RESULTS[name](result)
        return call
    monkeypatch.setattr(framejit, "compile", altered)
    assert seeds_until_found(graphs_fuzz, 100, "framejit")


def test_without_a_defect_nothing_is_found():
    with pytest.raises(pytest.fail.Exception):
        seeds_until_found(graphs_fuzz, 5, backend_with("add", lambda op, a, k: op(*a, **k)))
    with pytest.raises(pytest.fail.Exception):
        seeds_until_found(frames_fuzz, 5, backend_with("add", lambda op, a, k: op(*a, **k)))
