"""Classes that change between calls: counters and settings in them cost no recompiles, but other functions are noticed
at once."""
import gc
import subprocess
import sys
import weakref

import pytest
import torch

import framejit
from check import backend, fresh, same  # noqa: F401

STEP = 0
RATE = 0.5


class Settings:
    calls = 0
    scale = 3
    rate = 0.5
    name = "a"
    table = [1, 2]
    cache = None


class Counting(torch.nn.Module):
    calls = 0

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) * 2


class Reading(Counting):
    calls = 0

    def forward(self, x):
        return self.linear(x) * self.calls


class Several(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(Reading() for _ in range(12))

    def forward(self, x):
        for part in self.parts:
            x = x + part(x)
        return x


class Writing(Counting):
    calls = 0

    def forward(self, x):
        Writing.calls += 1
        return self.linear(x) + Writing.calls


class OfGlobals(torch.nn.Module):
    def forward(self, x):
        return x * STEP + RATE


def counts():
    stats = framejit.stats()
    return {key: stats[key] for key in ("graphs", "recompiles", "fallbacks")}


@pytest.fixture(autouse=True)
def classes_as_they_were():
    before = {cls: dict(vars(cls)) for cls in (Settings, Counting, Reading, Writing)}
    yield
    for cls, items in before.items():
        for name, value in items.items():
            if not name.startswith("__"):
                setattr(cls, name, value)


def check_calls(f, make_args, change, backend, times=14):
    compiled = framejit.compile(f, backend=backend)
    with torch.no_grad():
        for _ in range(times):
            args = make_args()
            same(compiled(*args), f(*args))
            change()
    return counts()


def test_a_counter_that_is_not_read(backend):
    def count():
        Settings.calls += 1
        Counting.calls += 1
    f = lambda x: x * Settings.scale
    assert check_calls(f, lambda: (torch.randn(3),), count, backend) == {"graphs": 1, "recompiles": 0, "fallbacks": 0}
    framejit.reset()
    assert check_calls(Counting(), lambda: (torch.randn(2, 3),), count, backend) == {"graphs": 1, "recompiles": 0,
        "fallbacks": 0}


def test_a_counter_of_a_base_class(backend):
    class Sub(Counting):
        pass

    def count():
        Counting.calls += 1
    assert check_calls(Sub(), lambda: (torch.randn(2, 3),), count, backend) == {"graphs": 1, "recompiles": 0,
        "fallbacks": 0}


@pytest.mark.parametrize("model", [Reading, Several])
def test_a_counter_that_is_read(model, backend):
    def count():
        Reading.calls += 2
    Reading.calls = 3
    assert check_calls(model(), lambda: (torch.randn(2, 3),), count, backend) == {"graphs": 2, "recompiles": 1,
        "fallbacks": 0}


def test_a_float_that_is_read(backend):
    def change():
        Settings.rate += 0.25
    assert check_calls(lambda x: x * Settings.rate, lambda: (torch.randn(3),), change, backend) == {"graphs": 2,
        "recompiles": 1, "fallbacks": 0}


def test_numbers_among_the_globals_of_a_module(backend):
    def change():
        global STEP, RATE
        STEP += 3
        RATE += 0.25
    assert check_calls(OfGlobals(), lambda: (torch.randn(3),), change, backend) == {"graphs": 2, "recompiles": 1,
        "fallbacks": 0}


def test_a_counter_that_the_program_writes(backend):
    ours, x = Writing(), torch.randn(2, 3)
    compiled = framejit.compile(ours, backend=backend)
    with torch.no_grad():
        for step in range(14):
            expected = ours.linear(x) + (step + 1)
            same(compiled(x), expected)
            assert Writing.calls == step + 1
            if step == 4:
                settled = counts()
    assert counts() == settled and settled["recompiles"] <= 3 and settled["fallbacks"] == 0, settled


class Named(Settings):
    pass


def writes_and_reads(x):
    before = Settings.calls, Named.calls, Named().calls
    Settings.calls += 2
    Settings.name = "b" if Settings.name == "a" else "a"
    Settings.rate = Settings.rate * 2
    Settings.cache = x.shape[0]
    named = Named()
    read = Settings.calls, Named.calls, named.calls, named.name, vars(Settings)["cache"], Settings.rate
    return x * Settings.calls, before, read


def writes_below_a_class(x):
    Named.calls = 4  # a name that the class itself does not have
    try:
        return x + Named.calls + Settings.calls
    finally:
        del Named.calls


def writes_and_breaks(x):
    Settings.calls += 1
    x = x * Settings.calls
    print(end="")
    Settings.calls += 1
    return x + Settings.calls


class Meta(type):
    def __setattr__(cls, name, value):
        super().__setattr__(name, value + 1)


class OfMeta(metaclass=Meta):
    calls = 0


def writes_through_a_metaclass(x):
    OfMeta.calls = 3
    return x * OfMeta.calls


def writes_and_raises(x):
    try:
        Settings.calls += 1
        raise ValueError
    except ValueError:
        return x * Settings.calls


def writes_a_tensor(x):
    Settings.cache = x
    return x + 1


@pytest.mark.breaks(outside_effect={"writes_below_a_class": 3, "writes_and_breaks": 2, "writes_through_a_metaclass": 1,
                                    "writes_a_tensor": 1})
@pytest.mark.parametrize("f", [writes_and_reads, writes_below_a_class, writes_and_breaks, writes_through_a_metaclass,
                               writes_and_raises, writes_a_tensor], ids=lambda f: f.__name__)
def test_what_the_program_writes_is_read(f, backend):
    def state():
        items = {name: value for name, value in vars(Settings).items() if not name.startswith("__")}
        return items, OfMeta.calls, "calls" in vars(Named)

    def calls_of(f):
        Settings.calls, Settings.name, Settings.rate, Settings.cache = 0, "a", 0.5, None
        seen = []
        for n in range(2, 8):
            seen += [f(torch.ones(n)), state()]
        return seen
    with torch.no_grad():
        same(calls_of(framejit.compile(f, backend=backend)), calls_of(f))
    if f in (writes_and_reads, writes_and_raises):
        assert framejit.stats()["graph_breaks"] == 0, framejit.stats()


def test_each_value_that_is_read_is_seen(backend):
    def f(x):
        if Settings.name == "a":
            x = x + 1
        if Settings.cache is None:
            x = x * 2
        return x * len(Settings.table) + sum(Settings.table), Settings.name, Settings.__dict__["scale"], vars(Settings)[
            "name"]
    compiled, x = framejit.compile(f, backend=backend), torch.randn(3)
    for name, value in [("calls", 1), ("name", "b"), ("calls", 2), ("cache", 5), ("table", [1, 2, 3]), ("scale", 4),
                        ("name", "a"), ("cache", None),
                        ("scale", 2.5), ("name", 7), ("table", (4, 5))]:
        same(compiled(x), f(x))
        setattr(Settings, name, value)
        same(compiled(x), f(x))
        same(compiled(x), f(x))


@pytest.mark.fallbacks(entry_limit=11)
def test_functions_that_are_exchanged_are_seen(backend):
    class Block(torch.nn.Module):
        calls = 0
        kind = property(lambda self: 1)

        def part(self, x):
            return x + 1

        @classmethod
        def made(cls, x):
            return x + cls.calls

        def forward(self, x):
            return self.part(x) * self.kind, self.made(x)
    block, x = Block(), torch.randn(3)
    compiled = framejit.compile(block, backend=backend)
    same(compiled(x), block(x))
    for k in range(2, 7):
        Block.calls += 1
        same(compiled(x), block(x))
        for name, value in (("part", lambda self, x, k=k: x * k), ("kind", property(lambda self, k=k: k)), ("kind", k),
                            ("made", classmethod(lambda cls, x, k=k: x - k)),
                            ("part", staticmethod(lambda x, k=k: x - k)), ("kind", property(lambda self, k=k: k + 1))):
            setattr(Block, name, None)  # its old value may die: the next one lies at the same address
            setattr(Block, name, value)
            framejit.reset() if k % 3 == 0 else None
            same(compiled(x), block(x))
            same(compiled(x), block(x))


def test_a_class_that_counts_for_ever(backend):
    compiled, x = framejit.compile(lambda x: x + Settings.scale, backend=backend), torch.randn(3)
    compiled(x)
    for _ in range(2500):  # CPython 3.13 gives a class a thousand version tags
        Settings.calls += 1
        compiled(x)
    same(compiled(x), x + 3)
    Settings.scale = 4
    same(compiled(x), x + 4)
    assert framejit.stats()["recompiles"] == 1 and not framejit.stats()["fallbacks"]


def test_classes_die(backend):
    def run():
        class Local(torch.nn.Module):
            table = []

            def __init__(self):
                super().__init__()
                Local.table.append(Local)

            @property
            def two(self):
                return 2

            def forward(self, x):
                return x * self.two
        same(framejit.compile(Local(), backend=backend)(torch.ones(2)), torch.ones(2) * 2)
        return weakref.ref(Local)
    alive = [run() for _ in range(3)]
    framejit.reset()
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3


# torch.compile counts its calls in a class that modules made in forward read (ModuleList's slices are such modules).
BESIDE = """
import torch, framejit
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        return x
m, x = Net().eval(), torch.randn(2, 4)
with torch.no_grad():
    ours, theirs = framejit.compile(m), torch.compile(m, backend="eager")
    for _ in range(14):
        assert torch.allclose(ours(x), m(x), atol=1e-6) and torch.allclose(theirs(x), m(x), atol=1e-6)
stats = framejit.stats()
assert stats["recompiles"] <= 2 and not stats["fallbacks"] and not stats["graph_breaks"], stats
"""


@pytest.mark.nothing_captured
def test_calls_in_turn_with_torch_compile():
    done = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
