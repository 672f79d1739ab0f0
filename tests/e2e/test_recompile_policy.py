"""What is compiled again and what is left alone: objects that each call makes anew, entries that make room, functions
that FRAMEJIT=1 finds."""
import gc
import json

import pytest
import torch

import framejit
from framejit import _framejit
from check import same
from test_api import run


@pytest.fixture
def said():
    seen = []
    token = _framejit.add_listener(lambda e: e["event"] in ("LeftAlone", "Limit", "LimitOfModules")
                                   and seen.append((e["event"], e["text"])))
    yield seen
    _framejit.remove_listener(token)


@pytest.mark.nothing_captured
def test_gradients_in_a_loop_compile_once():
    def f(x, w):
        return torch.autograd.grad((x * w).sum(), w)[0]
    compiled, x, w = framejit.compile(f), torch.randn(3), torch.randn(3, requires_grad=True)
    framejit.reset()
    with torch.enable_grad():
        for _ in range(60):
            assert torch.equal(compiled(x, w), f(x, w))
    stats = framejit.stats()
    assert stats["recompiles"] == 0 and stats["fallback_reasons"] == {}, stats


@pytest.mark.parametrize("work, most",
                         [(lambda x, scaled: x * scaled.by, 33),
                          pytest.param(lambda x, scaled: scaled.by, 9, marks=pytest.mark.nothing_captured)],
                         ids=["tensor work", "none"])
@pytest.mark.slow
def test_classes_that_each_call_makes_anew(said, work, most):
    """Code that does no tensor work is left alone sooner."""
    compiled, x = framejit.compile(work), torch.ones(3)
    framejit.reset()
    with torch.no_grad():
        for _ in range(50):
            made = type("Scaled", (), {"by": 2.0})
            same(compiled(x, made), work(x, made))
            del made
            gc.collect()  # a class is in a reference cycle with itself
    stats = framejit.stats()
    assert stats["recompiles"] < most and stats["left_alone"] == 1 and stats["fallback_reasons"] == {
        "does_not_pay": 50 - stats["recompiles"] - 1}, stats
    assert [event for event, _ in said] == ["LeftAlone"] and "an object that the guards name is gone" in said[0][1]


class Scaled(torch.nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x * self.by if self.by is not self else x


def test_who_compiles_anew_is_compiled():
    """Models one after the other, each used once, share an instruction."""
    x = torch.ones(3)
    with torch.no_grad():
        for by in range(20):
            assert torch.equal(framejit.compile(Scaled(float(by)))(x), x * by)
    stats = framejit.stats()
    assert stats["left_alone"] == 0 and "does_not_pay" not in stats["fallback_reasons"], stats


class Stack(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Lettered(torch.nn.Module):
    def __init__(self, word):
        super().__init__()
        self.word = word

    def forward(self, x):
        return x + len(self.word)


class Worded(Lettered):
    def forward(self, x, word):
        return x + len(self.word) + len(word)


class Broken(Lettered):
    def forward(self, x):
        pause()
        return x + len(self.word)


pause = framejit.disable(lambda: None)


@pytest.mark.breaks(disabled_function=2)
@pytest.mark.parametrize("count", [9, 20])
def test_each_live_module_has_room(said, count):
    """Modules of one class that are separate programs: each on its own, and as layers of one model with a break in
    each."""
    x, words = torch.ones(3), ["w" * n for n in range(count)]
    with torch.no_grad():
        models = [framejit.compile(Lettered(word)) for word in words]
        for _ in range(3):
            for model, word in zip(models, words):
                assert torch.equal(model(x), x + len(word))
        assert framejit.stats()["fallback_reasons"] == {} and framejit.stats()["graphs"] == count, framejit.stats()
        framejit.reset()
        stack = Stack([Broken(word) for word in words[1:]])
        compiled = framejit.compile(stack)
        for _ in range(3):
            assert torch.equal(compiled(x), stack(x))
    assert framejit.stats()["fallback_reasons"] == {} and not said, framejit.stats()


@pytest.mark.fallbacks(entry_limit=40)
def test_the_limit_of_all_modules_says_so(said):
    """24 modules with 7 words each: none reaches its own limit, but together they reach the limit of 16 modules."""
    x, models = torch.ones(3), [framejit.compile(Worded("w" * n)) for n in range(24)]
    with torch.no_grad():
        for length in range(7):
            for n, model in enumerate(models):
                assert torch.equal(model(x, "w" * length), x + n + length)
    assert framejit.stats()["graphs"] == 128 and [event for event, _ in said] == ["LimitOfModules"], (framejit.stats(),
        said)
    assert " of all modules (16 x FRAMEJIT_ENTRIES), plain Python from now on: " in said[0][1], said


@pytest.mark.nothing_captured
def test_modules_that_are_gone_leave_no_room():
    """Made anew in each call, from code that was compiled once."""
    x, compiled = torch.ones(3), framejit.compile(Lettered.forward)
    with torch.no_grad():
        for number in range(40):
            assert torch.equal(compiled(Lettered("w" * number), x), x + number)
    stats = framejit.stats()
    assert 8 <= stats["graphs"] <= 10, stats
    assert stats["fallback_reasons"] == {"entry_limit": 40 - stats["graphs"] - stats["hits"]}, stats


def test_modules_that_are_gone_give_way_to_those_that_are_compiled_anew(said):
    x = torch.ones(3)
    with torch.no_grad():
        for number in range(40):
            compiled = framejit.compile(Worded("w" * number))
            for word in ("", "a", "bc"):
                assert torch.equal(compiled(x, word), x + number + len(word))
    stats = framejit.stats()
    assert stats["graphs"] == 120 and stats["fallback_reasons"] == {} and not said, stats


def test_the_entry_that_was_not_used_for_longest_makes_room(said):
    """After 16 hits, not before: words that come once fill all entries, and are replaced by words that come again."""
    compiled, x = framejit.compile(lambda x, word: x * len(word)), torch.ones(3)
    framejit.reset()
    with torch.no_grad():
        for word in "abcdefgh":
            compiled(x, word)
        compiled(x, "other")
        assert framejit.stats()["graphs"] == 8 and framejit.stats()["fallback_reasons"] == {"entry_limit": 1}
        for _ in range(16):
            assert torch.equal(compiled(x, "h"), x)
        assert torch.equal(compiled(x, "other"), x * 5)
        assert framejit.stats()["graphs"] == 9
        hits = framejit.stats()["hits"]
        for word in ("other", *"bcdefgh"):
            compiled(x, word)
        assert framejit.stats()["hits"] == hits + 8 and framejit.stats()["graphs"] == 9
        compiled(x, "a")
    assert framejit.stats()["fallback_reasons"] == {"entry_limit": 2} and [event for event, _ in said] == ["Limit"]


def counted_up(x, n):
    count = 0
    for i in range(n):
        x = x * 2 + i
        pause()
        count += 1
        x = x + count
    return x


def until_zero(x, n):
    at = 0.0
    while n:
        pause()
        at += 0.5
        x = x * at
        n -= 1
    return x


def into_a_list(x, n):
    rows = []
    for i in range(n):
        pause()
        rows.append(x[i % 3] + i)
    return rows


@pytest.mark.breaks(disabled_function=3)
@pytest.mark.parametrize("fn, graphs", [(counted_up, 4), (until_zero, 2), (into_a_list, 2)],
                         ids=lambda v: getattr(v, "__name__", ""))
def test_what_a_loop_writes_differs_from_the_first_round_on(fn, graphs):
    """One segment for the rounds, one that leaves the loop, one that begins where the first round does."""
    compiled, x = framejit.compile(fn), torch.arange(12.0).view(3, 4)
    framejit.reset()
    with torch.no_grad():
        for n in (6, 6, 4):
            same(compiled(x, n), fn(x, n))
    stats = framejit.stats()
    assert (stats["graphs"], stats["recompiles"]) == (graphs, 2) and stats["fallback_reasons"] == {}, stats


REPORT = """
import json, sys
print(json.dumps(sys.modules["framejit"].stats()))
"""


def counted(program, **environment):
    done = run(program + REPORT, global_mode=True, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.nothing_captured
def test_a_loop_that_breaks_is_left_alone_and_its_module_is_not():
    stats, log = counted("""
import torch
torch.set_grad_enabled(False)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
def loop(x, n):
    while n:
        x = net(x)
        if float(x.sum()) > 1e9: break
        n -= 1
    return x
x = torch.ones(2, 4)
want = loop(x, 3)
for _ in range(6):
    assert torch.allclose(loop(x, 3), want)
""", FRAMEJIT_LOGS="recompiles")
    assert (stats["graphs"], stats["graph_breaks"], stats["recompiles"], stats["left_alone"]) == (1, 0, 0, 1), stats
    assert stats["hits"] >= 15 and not stats["fallbacks"]
    assert log.count("3 tries in a row did not compile this function as a whole: data_dependent") == 1, log


@pytest.mark.nothing_captured
def test_functions_without_tensor_work_are_left_alone():
    stats, _ = counted("""
import torch
torch.set_grad_enabled(False)
def put(values, name, x):
    values[name] = x
values, x = {}, torch.ones(3)
for i in range(40):
    put(values, str(i), x)
assert len(values) == 40
""")
    assert stats["graphs"] == stats["graph_breaks"] == stats["fallbacks"] == 0 and stats["left_alone"] == 1, stats


@pytest.mark.nothing_captured
def test_a_function_that_is_compiled_and_called_in_vain_too():
    stats, _ = counted("""
import torch
torch.set_grad_enabled(False)
def f(x, loud):
    if loud: print(end="")
    return x + 1
x = torch.ones(3)
for i in range(12):
    f(x, False), f(x, i > 2)
""")
    assert stats["graphs"] == 1 and stats["graph_breaks"] == 0 and stats["left_alone"] == 1 and stats[
        "hits"] >= 10, stats
