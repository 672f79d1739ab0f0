"""Objects are recognised by identity: an object of the program is the program's, even if its name is one that torch,
NumPy or the standard library uses."""
import binascii
import collections
import functools
import importlib
import inspect
import pathlib
import re
import subprocess
import sys
import types
import zlib

import pytest
import torch

import framejit
from check import check, fresh, same  # noqa: F401


def made(name, *bases, **members):
    return type(name, bases, members)


def keep(self, *args):
    self.func, self.args, self.keywords = len, (), {}
    self.given = args


def double(self, x):
    return x * 2 + len(self.given)


CALLED = [made(name, __init__=keep, __call__=double) for name in (
    "functools.partial", "functools._lru_cache_wrapper", "framejit.ArmedCall", "method-wrapper", "torch.Size",
    "torch.nn.Linear", "numpy.ufunc", "numpy.ndarray", "itertools.count", "pybind11_builtins.pybind11_object")]


@pytest.mark.parametrize("cls", CALLED, ids=lambda cls: cls.__name__)
def test_a_class_that_is_called(cls):
    def f(x):
        return cls(1, 2, 3)(x) + 1
    check(f, torch.ones(3))
    outer = cls(1)
    check(lambda x: outer(x) + 1, torch.ones(3))


class OfMethods:
    def __init__(self):
        self.n = 3


@pytest.mark.parametrize("name", ["functools._lru_cache_wrapper", "framejit.ArmedCall", "collections._tuplegetter",
                                  "_collections._tuplegetter"])
def test_a_descriptor(name):
    cls = made(name, __get__=lambda self, owner, kind: (lambda x: x * owner.n))

    class Owner(OfMethods):
        times = cls()
    check(lambda o, x: o.times(x) + 1, Owner(), torch.ones(3))


@pytest.mark.parametrize("name, base, items", [
    ("collections.deque", list, [1, 2]),
    ("collections.defaultdict", dict, {1: 2}),
    ("collections.OrderedDict", dict, {2: 1, 1: 2}),
    ("torch.Size", tuple, (4, 5)),
])
def test_a_container(name, base, items):
    cls = made(name, base, __len__=lambda self: 40)

    def f(x, c):
        return x * len(c) + len(cls(items)), sum(c)
    check(f, torch.ones(3), cls(items))

    def g(x):
        return cls(items), x + 1
    check(g, torch.ones(3))


def test_attributes_of_a_namespace_that_is_none():
    class Refusing:
        def __init__(self, **given):
            self.seen = sorted(given)
    cls = made("types.SimpleNamespace", Refusing)
    check(lambda x: (cls(b=1, a=2).seen, x + 1), torch.ones(3))


@pytest.mark.parametrize("name", ["torch.device", "torch.dtype", "torch.finfo", "torch.layout", "types.UnionType",
                                  "types.GenericAlias", "_abc._abc_data", "numpy.float64", "numpy.dtype"])
def test_state_of_an_object_is_read_anew(name):
    """Immutable ones are constants of a trace."""
    o = made(name)()
    o.n = 1
    compiled = framejit.compile(lambda x: x * o.n)
    for n in (1, 2, 3):
        o.n = n
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), float(n)))


def test_equality_of_an_object_is_the_programs():
    cls = made("torch.device", __eq__=lambda self, other: self.n == other, __hash__=lambda self: 1)
    o = cls()
    compiled = framejit.compile(lambda x: x + 1 if o == 1 else x - 1)
    for n in (1, 2, 1):
        o.n = n
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0 if n == 1 else 0.0))


def module(name, source):
    found = types.ModuleType(name)
    exec(source, found.__dict__)
    return found


MODULES = {
    "torch._compile": "def _disable_dynamo(fn):\n    def inner(x):\n        return fn(x) + 100\n    return inner\n"
                      "inner = _disable_dynamo(lambda x: x * 2)\ninner.fn = None",
    "torch._dynamo.eval_frame": "def compile_wrapper(x):\n    return x * 3 + 100\ncompile_wrapper.mark = 1\n"
                                "inner = compile_wrapper",
    "torch._dynamo.decorators": "def graph_break(x):\n    return x + 100\ninner = graph_break",
    "torch._dynamo.mutation_guard": "def tag(x):\n    return x + 100\ninner = tag",
    "torch._dynamo.external_utils": "def is_compiling():\n    return 7\n"
                                    "def inner(x):\n    return x + 100 * is_compiling()",
    "torch._refs": "def _broadcast_shapes(*shapes):\n    return [100]\n"
                   "def inner(x):\n    return x + _broadcast_shapes(x.shape)[0]",
    "numpy": "def inner(x):\n    return x + 100",
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_program(name):
    inner = module(name, MODULES[name]).inner
    check(lambda x: inner(x) - 1, torch.ones(3))


def test_a_c_function_that_claims_another_module(monkeypatch):
    """A program may write the __module__ of a C function. It does not make it one of module math."""
    monkeypatch.setattr(zlib.crc32, "__module__", "math")
    check(lambda x: x + zlib.crc32(b"abc") % 7, torch.ones(3), breaks=1)
    monkeypatch.setattr(zlib.adler32, "__module__", "torch")
    check(lambda x: x + zlib.adler32(b"abc") % 7, torch.ones(3), breaks=1)


def test_a_c_function_that_denies_its_module(monkeypatch):
    monkeypatch.setattr(binascii.crc32, "__module__", "elsewhere")
    monkeypatch.setattr(torch.relu, "__module__", "elsewhere")
    check(lambda x: torch.relu(x) + binascii.crc32(b"abc") % 7, torch.ones(3))


def test_a_size_that_looks_like_torchs_own_mark():
    """torch hides a symbolic number behind this one."""
    compiled = framejit.compile(lambda x, n: x * n + 7777777, dynamic=True)
    for n in (7777777, 3, 7777777):
        x = torch.ones(2, dtype=torch.int64)
        assert torch.equal(compiled(x, n), x * n + 7777777)


def test_the_real_ones_are_known():
    def f(x, items):
        queue = collections.deque(items)
        queue.append(3)
        counts = collections.defaultdict(int)
        counts["a"] += len(queue)
        space = types.SimpleNamespace(n=2)
        return functools.partial(torch.mul, other=space.n)(x) + counts["a"], isinstance(3, int | str)
    check(f, torch.ones(3), [1, 2])


def test_torchs_own_disable_is_unwrapped():
    """torch._compile._disable_dynamo: imports torch's compiler when it runs."""
    inner = torch._compile._disable_dynamo(lambda x: x * 2)
    assert framejit.compile(lambda x: inner(x) + 1, fullgraph=True)(torch.ones(2)).tolist() == [3.0, 3.0]
    assert sys.modules["torch._compile"].__dict__ is inner.__globals__


NAMES = """
import sys
import {package}
for line in sys.argv[1:]:
    module, path = line.split()
    found = sys.modules.get(module)
    for name in path.split("."):
        found = vars(found).get(name) if type(found) is type(sys) else getattr(found, name, None)
    if found is None:
        print(line)
"""

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
SINCE = {"Tensor.const_data_ptr": (2, 13)}  # names that torch 2.11 does not have


@pytest.mark.nothing_captured
@pytest.mark.parametrize("package, table", [("torch", "torch/special.def"), ("numpy", "types/numpy_rows.def")])
def test_each_row_names_what_the_package_has_loaded(package, table):
    """framejit imports no module of theirs to find a row; a row whose name is wrong would do nothing."""
    text = (pathlib.Path(__file__).parents[2] / "frame_hook/trace" / table).read_text()
    rows = [f"{module} {path}" for module, path in re.findall(r"^(?:ROW|CONCRETE)\(([\w.]+), ([\w.]+)", text, re.M)
            if TORCH >= SINCE.get(path, TORCH)]
    assert len(rows) > 100
    done = subprocess.run([sys.executable, "-c", NAMES.format(package=package), *rows], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


TABLES = ["types/builtins.def", "torch/special.def", "types/numpy_rows.def"]
ABSENT = {"sys exception", "itertools batched"}  # of a later CPython
ABSENT |= {f"torch {path}" for path, since in SINCE.items() if TORCH < since}
COPIED = ("__module__", "__name__", "__qualname__", "__doc__")  # by wraps(); not every object has the others


def functions_of_operators():
    text = (pathlib.Path(__file__).parents[2] / "frame_hook/bytecode/operators.def").read_text()
    binary = re.findall(r"^BINARY\(\w+, NB_\w+, (\w+), (\w+)", text, re.M)
    names = [name for special, function in binary for name in (function, "i" + special)]
    names += re.findall(r"^UNARY\(\w+, \w+, (\w+)", text, re.M) + re.findall(r"^COMPARISON\(Py_\w+, (\w+)", text, re.M)
    assert len(names) == 2 * 13 + 3 + 6
    return {f"_operator {name}" for name in names}


def named(line):
    module, path = line.split()
    found = importlib.import_module(module)
    for name in path.split("."):
        found = vars(found)[name] if isinstance(found, types.ModuleType) else inspect.getattr_static(found, name)
    return found.__func__ if isinstance(found, staticmethod) else found


@pytest.mark.nothing_captured
@pytest.mark.parametrize("table", TABLES)
def test_each_row_believes_its_object_alone(table):
    """Not what a program may put in that place: a partial, a function or class of its own, or another row's object."""
    text = (pathlib.Path(__file__).parents[2] / "frame_hook/trace" / table).read_text()
    rows = {f"{module} {path}" for module, path in re.findall(r"^(?:ROW|CONCRETE)\(([\w.]+), ([\w.]+)", text, re.M)}
    rows |= functions_of_operators() if "operators.def" in text else set()
    objects = {row: named(row) for row in sorted(rows - ABSENT)}
    # Once torch's compiler runs, it disables the fused optimizers.
    objects = {row: getattr(found, "_torchdynamo_orig_callable", found) for row, found in objects.items()}
    assert len(objects) > 100

    def program(*args, **options):
        return 0
    cls = made("program")
    wrong = []
    for row, found in objects.items():
        module, path = row.split()

        def believes(o, module=module, path=path):
            return framejit._framejit.is_original(o, module, path)
        wrong += [row] if not believes(found) else []
        program.__name__ = program.__qualname__ = cls.__name__ = path.rsplit(".")[-1]
        program.__module__ = cls.__module__ = module
        others = [program, cls, cls(), functools.partial(program), zlib.crc32, zlib.error, torch.no_grad()(program)]
        others += [functools.partial(found), functools.wraps(found, COPIED)(program)] if callable(found) else []
        others += [o for other, o in objects.items() if o is not found and o != found]
        wrong += [f"{row}: {o}" for o in others if believes(o)]
    assert not wrong


# What the program puts in the place of an object that a row or a handler names.
REPLACED = {
    "a class of C": """
first = collections.deque
class Mine(first):
    def append(self, item): super().append(item * 10)
collections.deque = Mine
def f(x, n):
    queue, real = Mine([1.0]), first([1.0])
    queue.append(2.0)
    real.append(2.0)
    return x * queue[1] + real[1], type(queue).__name__, type(real).__name__
""",
    "a method of a replaced class": """
class Mine(collections.defaultdict):
    def __missing__(self, key): return 5
collections.defaultdict = Mine
def f(x, n): return x * Mine(int)["a"]
""",
    "an iterator": """
class Mine(itertools.chain):
    def __next__(self): return super().__next__() * 10
itertools.chain = Mine
def f(x, n): return [x * i for i in Mine([1], [2])]
""",
    "an iterator, by a function": """
first = itertools.chain
itertools.chain = lambda *args: iter([7])
def f(x, n):
    z = first([1], [2])
    return x * next(z), type(z).__name__, isinstance(z, first), list(z)
""",
    "an iterator of builtins": """
first = reversed
builtins.reversed = lambda v: iter([7]) if type(v) is list and v[:1] == [1] else first(v)
def f(x, n):
    z = first([1, 2, 3])
    return x * next(z), [*z]
""",
    "an operator": """
operator.mul = operator.neg = operator.lt = lambda *args: torch.zeros(3)
_operator.mul = _operator.neg = functools.partial(lambda *args: torch.ones(3))
_operator.sub = operator.sub = operator.add
def f(x, n): return -x * 2, n * 3 - 1, x < 2, x - 1, (-n) * 2
""",
    "a question": """
first = isinstance
builtins.isinstance = lambda o, cls: False if cls is int else first(o, cls)
def f(x, n):
    match [3]:
        case [int(a)]: return x * a
        case _: return x * 5
""",
    "a text": """
builtins.format = builtins.repr = lambda *args: "mine"
def f(x, n): return x * 2, f"{3:>4}", f"{n:.2f}", f"{n!r}"
""",
    "a function of numbers": """
seen, first, floor, total = [], round, math.floor, sum
builtins.round = lambda *args: (seen.append(args), first(*args))[1]
builtins.sum = lambda *args: (seen.append(args), total(*args))[1]
math.floor = lambda v: -4
def f(x, n):
    seen.clear()
    return x * round(3.7) + first(2.6), floor(3.9), floor(n), total([1, 2, n]), math.floor(2.5), len(seen)
""",
    "another function of C": """
first, builtins.min = min, max
def f(x, n): return x * max(2, 5) + first(2, 5) + min(2, 5)
""",
    "a write": """
first, builtins.setattr = setattr, lambda *args: first(*args)
class Box: pass
def f(x, n):
    box = Box()
    first(box, "n", 2)
    return x * box.n
""",
    "a lock": """
first = _thread.LockType
kept = type(sys)("_thread")
vars(kept).update(vars(_thread))
sys.modules["_frozen_importlib"]._thread = kept  # imports go on
_thread.LockType = _thread.RLock = 3
lock, again = threading.Lock(), threading.RLock()
def f(x, n):
    with lock, again: return x * 2
""",
    "a copy": """
class Box: pass
class Other: n = 5
copyreg.__newobj__ = lambda cls: Other()
box = Box()
box.n = 2
def f(x, n): return x * copy.copy(box).n
""",
    "a partial with an option": """
torch.full = functools.partial(torch.full, dtype=torch.float64)
def f(x, n): return torch.tensor([n, 2 * n]) + 1
""",
    "a function of torch": """
first = torch.autograd.grad
torch.autograd.grad = lambda *args: [g * 10 for g in first(*args)]
def f(x, n):
    y = x.clone().requires_grad_()
    return torch.autograd.grad((y * y).sum(), y)
""",
    "a decorated function of torch": """
torch.utils.checkpoint.checkpoint = lambda f, *args, **options: f(*args) * 10
def f(x, n): return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)
""",
    "a function that torch decorates": """
@torch.no_grad()
def grad(*args): return (args[1] * 10,)
torch.autograd.grad = grad
def f(x, n):
    y = x.clone().requires_grad_()
    return torch.autograd.grad((y * y).sum(), y)
""",
    "a function that the trace of another calls": """
first = torch.full
torch.full = lambda *args, **options: first(*args, **options) * 10
def f(x, n): return x + torch.tensor([n, 2 * n, n])
""",
    "a question of torch": """
torch.compiler.is_compiling = lambda: False
def f(x, n): return x * 2 if torch.compiler.is_compiling() else x * 3
""",
    "a class that forms inherit": """
class Mine:
    def __class_getitem__(cls, item): return 3
typing.Generic = Mine
class Box(Mine): pass
def f(x, n): return x * Box[int]
""",
    "a module of the standard library": """
sys.modules["enum"] = Stand_in(enum)
class Number(enum.Enum): one = 1
def f(x, n): return x * Number.one.value
""",
    "a module of operators": """
sys.modules["_operator"] = sys.modules["operator"] = sys.modules["math"] = Stand_in(operator)
def f(x, n): return -x * 2 + math.floor(2.5)
""",
    "a module of numbers": """
sys.modules["numpy"] = Stand_in(numpy)
four = numpy.float32(4)
def f(x, n): return x * float(numpy.sqrt(four))
""",
}
# torch is loaded once; each program runs in a fork, where framejit is imported before or after it.
CHILD = """
import _operator, _thread, builtins, collections, copy, copyreg, enum, functools, itertools, math, operator, os, sys
import threading, traceback, typing
import numpy, torch, torch.utils.checkpoint
class Stand_in:
    def __init__(self, module): self.module = module
    def __getattr__(self, name): return getattr(self.module, name)
def warm(x, n):
    queue = collections.deque([1])
    queue.append(2)
    with lock: pass
    return -x * 2 + len(queue), list(itertools.chain([1], [2])), round(3.7), f"{n:>8}", torch.tensor([n, 2 * n, n])
lock = threading.Lock()
text, when = sys.stdin.read(), sys.argv[1]
for name, program in eval(text).items():
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]: print(name)
        continue
    code = 1
    try:
        if when != "before framejit": import framejit
        if when == "after a compile": framejit.compile(warm)(torch.ones(3), 2.5)
        real, ascii = str, repr
        exec(program)
        import framejit
        x = torch.ones(3)
        compiled = framejit.compile(f)
        for n in (1.5, 2.5, 3.5):
            got, want = compiled(x, n), f(x, n)
            assert real(got) == real(want), real((got, want))
        stats = framejit.stats()
        assert stats["graphs"] + stats["graph_breaks"] > 0, real(stats)
        assert not stats["fallbacks"], real(stats)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
"""


@pytest.mark.nothing_captured
@pytest.mark.parametrize("when", ["before framejit", "before a compile", "after a compile"])
def test_an_object_that_the_program_has_replaced(when):
    """In processes of their own: a row is looked up once."""
    done = subprocess.run([sys.executable, "-c", CHILD, when], input=repr(REPLACED), capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.parametrize("name", ["_swap_tensor_impl", "_is_alias_of", "_overlaps"])
def test_internals_of_torch_are_called_with_the_tensors_of_the_program(name):
    """C code that does more than run ops. Given the traced tensors instead, it would swap them, or ask for their
    address."""
    def f(a, b):
        return getattr(torch._C, name)(a, b), a * 2, b + 0

    def both(call):
        a = torch.arange(4.0)
        return call(a, torch.ones(3) if name == "_swap_tensor_impl" else a[1:])
    with torch.no_grad():
        want, got = both(f), both(framejit.compile(f))
    assert want[0] == got[0] and all(map(torch.equal, want[1:], got[1:]))
    assert framejit.stats()["break_reasons"] == {"unknown_callable": 1}


@pytest.mark.parametrize("name", ["_data_address", "_storage_id", "_dispatch_keys"])
def test_internals_of_torch_that_ask_a_tensor(name):
    def f(x):
        return str(getattr(torch._C, name)(x)), x + 1
    x = torch.ones(3)
    with torch.no_grad():
        assert framejit.compile(f)(x)[0] == f(x)[0]
    assert framejit.stats()["break_reasons"] in ({"unknown_callable": 1}, {"unknown_callable": 2})


@pytest.mark.breaks(memory_address=2, unknown_attribute=2, unknown_callable=3, unsupported_write=3)
def test_tensors_are_swapped():
    def f(a, b):
        torch.utils.swap_tensors(a, b)
        return a + 1, b * 2
    with torch.no_grad():
        want, got = f(torch.ones(2), torch.zeros(3)), framejit.compile(f)(torch.ones(2), torch.zeros(3))
    assert all(map(torch.equal, want, got))


OPERATORS = {
    **{name: eval(f"lambda x, y: x {sign} y") for name, sign in {
        "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
        "__pow__": "**", "__matmul__": "@", "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=",
        "__gt__": ">", "__ge__": ">="}.items()},
    **{name: eval(f"lambda x, y: 2.5 {sign} x") for name, sign in {
        "__radd__": "+", "__rsub__": "-", "__rmul__": "*", "__rtruediv__": "/", "__rfloordiv__": "//", "__rmod__": "%",
        "__rpow__": "**"}.items()},
    "__neg__": lambda x, y: -x, "__pos__": lambda x, y: (+x).cos(), "__invert__": lambda x, y: ~(x > y),
    "__and__": lambda x, y: (x > 0) & (y > 0), "__or__": lambda x, y: (x > 0) | (y > 0),
    "__xor__": lambda x, y: (x > 0) ^ (y > 0), "__abs__": lambda x, y: abs(x), "__getitem__": lambda x, y: x[1:],
    "__len__": lambda x, y: x + len(y), "__iter__": lambda x, y: sum(x), "__contains__": lambda x, y: (2.0 in x, y * 2),
}


def in_place(x, y):
    x = x * 1
    x += y
    return x * 2


def stored(x, y):
    x = x * 1
    x[0] = y[1]
    return x * 2


@pytest.mark.parametrize("name", [*OPERATORS, "__iadd__", "__setitem__"])
def test_a_special_method_of_tensors_that_the_program_replaces(name, monkeypatch):
    """Between calls, and before the first."""
    program = {"__iadd__": in_place, "__setitem__": stored}.get(name) or OPERATORS[name]
    x, y = torch.rand(3, 3) + 1, torch.rand(3, 3) + 1
    compiled = framejit.compile(program)
    same(compiled(x, y), program(x, y))
    mine = {"__len__": lambda self: 8, "__iter__": lambda self: iter([1.0, 2.0]), "__contains__": lambda *_: 7}.get(
        name, lambda self, *others: torch.mul(torch.sin(self), 5))
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, name, mine, raising=False)
        for call in (compiled, framejit.compile(program, dynamic=True)):
            for _ in range(2):
                same(call(x, y), program(x, y))
    same(compiled(x, y), program(x, y))
    stats = framejit.stats()
    assert not stats["fallbacks"], stats
    assert stats["break_reasons"] in ({}, {"unknown_callable": 2}, {"data_dependent_value": 1}), stats
