"""Locks, context managers and generators from outside, nested compilers, Tensor.data: clean breaks, everything else
traced."""
import contextlib
import threading

import pytest
import torch
from torch import nn

import framejit
from check import check, fresh  # noqa: F401


@pytest.mark.breaks("escaped_traced", "outside_effect", "real_iterator", "unknown_callable", "unsupported_operand",
                    unsupported_key=range(100))  # of the code that makes threads
@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, threading.Condition, lambda: threading.Semaphore(1)],
                         ids=["Lock", "RLock", "Condition", "Semaphore"])
def test_locks_are_held_while_the_body_runs(make):
    for backend in ("eager", "framejit"):
        framejit.reset()
        lock, held = make(), []

        def is_held():
            free = []
            asker = threading.Thread(target=lambda: free.append(lock.acquire(blocking=False))
                                     or (free[0] and lock.release()))
            asker.start()
            asker.join()
            return not free[0]

        def f(x):
            x = x + 1
            with lock:
                x = x * 2
                held.append(is_held())
                x = x + 3
            return x - 1

        compiled = framejit.compile(f, backend=backend)
        for _ in range(3):
            assert compiled(torch.ones(2))[0] == 6 and not is_held()
        assert held == [True] * 3


@pytest.mark.breaks(exception_raised=3, outside_effect=2)
def test_a_lock_is_released_when_the_body_raises():
    lock = threading.Lock()

    def f(x):
        with lock:
            x = x + 1
            raise ValueError("inside")

    compiled = framejit.compile(f)
    for _ in range(3):
        with pytest.raises(ValueError, match="inside"):
            compiled(torch.ones(1))
        assert not lock.locked()


def test_a_lock_is_no_break():
    lock = threading.Lock()

    def f(x):
        x = x + 1
        with lock:
            x = (x * 2).sin()
        return x.cos() - 1
    check(f, torch.randn(3), breaks=0)

    def g(x):
        lock.acquire()
        x = x.sin()
        lock.release()
        return x + 1
    check(g, torch.randn(3), breaks=0)


def test_managers_made_outside():
    log = []

    @contextlib.contextmanager
    def manager():
        log.append("in")
        yield 2
        log.append("out")

    def f(x, c):
        x = x + 1
        with c as k:
            x = x * k
        return x + 1

    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(3):
        log.clear()
        assert compiled(torch.ones(1), manager()) == 5 and log == ["in", "out"]
    assert framejit.stats()["graphs"] == 3 and framejit.stats()["graph_breaks"] == 2


@pytest.mark.breaks(real_iterator=4)
def test_generators_made_outside():
    def f(x, items):
        x = x + 1
        for k in items:
            x = x * k
        return x.sin()

    framejit.reset()
    compiled = framejit.compile(f)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(1), (k for k in (1, 2, 3))), f(torch.ones(1), (1, 2, 3)))
    assert framejit.stats()["graphs"] == 4


@pytest.mark.cpu_only("their weights are on the CPU")
def test_functions_of_other_compilers_are_traced():
    @torch.compile(backend="eager")
    def inner(x):
        return x.sin() + 1

    check(lambda x: inner(x) * 2, torch.randn(3), breaks=0, compiles=1)
    layer = torch.compile(nn.Linear(3, 3), backend="eager")
    layer(torch.randn(2, 3))  # torch warns of CPython 3.13.0 once
    check(lambda x: layer(x) * 2, torch.randn(2, 3), breaks=0, compiles=1)

    @torch._dynamo.disable
    def plain(x):
        return x.sin()

    check(lambda x: plain(x + 1) * 2, torch.randn(3), breaks=1, compiles=2)


def test_data_is_read_and_set_to_itself():
    layer = nn.Linear(3, 3)
    check(lambda x: layer.weight.data @ x + x.data, torch.randn(3), breaks=0, compiles=1)

    def moves(x):
        layer.to(torch.float32)
        return layer(x)
    check(moves, torch.randn(3), breaks=0, compiles=1)

    def writes(x):
        y = x.clone()
        y.data = x + 1
        return y * 2
    check(writes, torch.randn(3), compiles=2, breaks=1)


@pytest.mark.breaks(unsupported_write=1)
def test_a_key_that_is_no_str_in_an_instance_dict_runs_its_code_once():
    class Answer:
        def __get__(self, owner, kind=None):
            return 3

    class Deletes:
        asked = 0

        def __hash__(self):
            return hash("answer")

        def __eq__(self, other):
            Deletes.asked += 1
            if hasattr(Holder, "answer"):
                del Holder.answer
            return False

    class Holder:
        pass

    def f(holder, x):
        return x * holder.answer

    def asked_by(call):
        """The hash of a str decides where the key lies in the dict, and so how often it is compared."""
        Holder.answer, holder = Answer(), Holder()
        holder.__dict__[Deletes()] = 0
        Deletes.asked = 0
        assert call(holder, torch.ones(2)).tolist() == [3, 3]
        assert not hasattr(Holder, "answer")
        return Deletes.asked

    compiled, plainly = framejit.compile(f), asked_by(f)
    assert plainly > 0
    for _ in range(3):
        assert asked_by(compiled) == plainly
