"""A generator that is dropped half-way closes where plain Python closes it: the effects of its with and finally blocks
come before the next line."""
import contextlib

import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401

log = []
weight = torch.ones((), requires_grad=True)


@contextlib.contextmanager
def noted():
    log.append("entered")
    try:
        yield
    finally:
        log.append("left")


class Scope:
    def __enter__(self):
        log.append("enter")

    def __exit__(self, *exception):
        log.append(("exit", exception[0]))


def without_grad(x):
    with torch.no_grad():
        for i in range(4):
            yield x * (i + 1)


def in_inference(x):
    with torch.inference_mode():
        for i in range(4):
            yield x * (i + 1)


def logged(x):
    try:
        for i in range(4):
            yield x * (i + 1)
    finally:
        log.append("closed")


def in_manager(x):
    with noted():
        for i in range(4):
            yield x * (i + 1)


def in_scope(x):
    with Scope():
        for i in range(4):
            yield x * (i + 1)


def nested(x):
    with torch.no_grad():
        yield from logged(x)


def catches(x):
    try:
        yield x
        yield x * 2
    except GeneratorExit:
        log.append("exit")


GENERATORS = [without_grad, in_inference, logged, in_manager, in_scope, nested, catches]


def left_by_break(make, x):
    for b in make(x):
        break
    log.append("after")
    return (x + 1) + weight, torch.is_grad_enabled()


def left_by_a_later_break(make, x):
    for i, b in enumerate(make(x)):
        if i == 1:
            break
    log.append("after")
    return (x + i) + weight, torch.is_inference_mode_enabled()


def left_in_a_zip(make, x):
    total = x
    for b, k in zip(make(x), [1, 2, 3]):
        total = total + k
        if k == 2:
            break
    log.append("after")
    return total + weight


def zip_at_its_end(make, x):
    total = x
    for b, k in zip(make(x), [1]):
        total = total + k
    log.append("after")
    return total + weight


def two_in_a_zip(make, x):
    for a, b in zip(make(x), make(x + 1)):
        break
    log.append("after")
    return (x + 2) + weight


def deleted(make, x):
    it = make(x)
    next(it)
    log.append("has one")
    del it
    log.append("after")
    return (x + 1) + weight


def overwritten(make, x):
    it = make(x)
    next(it)
    it = None
    log.append("after")
    return (x + 1) + weight, it


def overwritten_in_a_cell(make, x):
    it = make(x)

    def step():
        return next(it)

    step()
    it = None
    log.append("after")
    return (x + 1) + weight


def left_by_an_exception(make, x):
    try:
        for b in make(x):
            raise ValueError("out")
    except ValueError:
        log.append("caught")
    log.append("after")
    return (x + 1) + weight


def left_by_an_exception_of_a_callee(make, x):
    def refuse(b):
        raise KeyError("out")
    try:
        for b in make(x):
            refuse(b)
    except KeyError:
        log.append("caught")
    return (x + 1) + weight


def callee_returns(make, x):
    def first():
        it = make(x)
        next(it)
        log.append("first")
        return x + 1

    y = first()
    log.append("after")
    return y + weight


def callee_returns_in_the_loop(make, x):
    def first():
        for b in make(x):
            log.append("first")
            return x + 1

    y = first()
    log.append("after")
    return y + weight


def passed_to_a_callee(make, x):
    def first(it):
        next(it)
        return x + 1

    y = first(make(x))
    log.append("after")
    return y + weight


def returned_in_the_loop(make, x):
    for b in make(x):
        log.append("in")
        return (x + 1) + weight


def held_elsewhere(make, x):
    it = make(x)
    for b in it:
        break
    log.append("after")
    y = (x + 1).detach() + 1
    log.append("still there")
    return y, next(it) is b


def held_in_a_list(make, x):
    held = [make(x)]
    for b in held[0]:
        break
    log.append("after")
    y = x + 1
    held.clear()
    log.append("cleared")
    return y + weight


def breaks_in_between(make, x):
    total = x
    for i, b in enumerate(make(x)):
        print(end="")
        total = total + i
        if i == 2:
            break
    log.append("after")
    return total + weight


def one_after_the_other(make, x):
    for b in make(x):
        break
    log.append("between")
    for b in make(x + 1):
        break
    log.append("after")
    return (x + 1) + weight


def in_an_attribute(make, x):
    class Holder:
        pass
    h = Holder()
    h.it = make(x)
    next(h.it)
    h.it = None
    log.append("after")
    return (x + 1) + weight


def in_a_global(make, x):
    global current
    current = make(x)
    next(current)
    current = None
    log.append("after")
    return (x + 1) + weight


def in_a_real_dict(make, x):
    held = {"it": make(x)}
    next(held["it"])
    print(end="")
    del held["it"]
    log.append("after")
    return (x + 1) + weight


class Items:
    def __init__(self, generator):
        self.generator = generator

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.generator)


def in_an_object(make, x):
    for b in Items(make(x)):
        break
    log.append("after")
    return (x + 1) + weight


def in_containers(make, x):
    held = [(make(x), 1)]
    next(held[0][0])
    held = None
    log.append("after")
    return (x + 1) + weight


WAYS = [left_by_break, left_by_a_later_break, left_in_a_zip, zip_at_its_end, two_in_a_zip, deleted, overwritten,
        overwritten_in_a_cell, left_by_an_exception, left_by_an_exception_of_a_callee, callee_returns,
        callee_returns_in_the_loop, passed_to_a_callee, returned_in_the_loop, held_elsewhere, held_in_a_list,
        breaks_in_between, one_after_the_other, in_an_attribute, in_a_global, in_a_real_dict, in_an_object,
        in_containers]


def traits(result):
    if isinstance(result, torch.Tensor):
        return result.tolist(), result.requires_grad, result.is_inference()
    return [traits(v) for v in result] if isinstance(result, tuple) else result


def seen(fn, make, grad):
    log.clear()
    with torch.set_grad_enabled(grad):
        result = fn(make, torch.ones(2))
        return traits(result), list(log), torch.is_grad_enabled(), torch.is_inference_mode_enabled()


@pytest.mark.breaks(total={"left_by_break": 8, "left_by_a_later_break": 10, "left_in_a_zip": 10, "zip_at_its_end": 8,
                           "two_in_a_zip": 8, "deleted": 6, "overwritten": 6, "overwritten_in_a_cell": 6,
                           "left_by_an_exception": 8, "left_by_an_exception_of_a_callee": 8, "callee_returns": 4,
                           "callee_returns_in_the_loop": 8, "passed_to_a_callee": 4, "returned_in_the_loop": 8,
                           "held_elsewhere": 8, "held_in_a_list": 10, "breaks_in_between": 16,
                           "catches-breaks_in_between": -2, "one_after_the_other": 16, "in_an_attribute": 16,
                           "in_a_global": 6, "in_a_real_dict": 8, "in_an_object": 8, "in_containers": 6})
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", GENERATORS)
def test_it_closes_where_plain_python_closes_it(make, way, grad):
    want = seen(way, make, grad)
    for backend in ("eager", "framejit"):
        framejit.reset()
        compiled = framejit.compile(way, backend=backend)
        for call in range(3):
            assert seen(compiled, make, grad) == want, f"backend {backend}, call {call}"


def without_exit_code(x):
    for i in range(4):
        yield x * (i + 1)


@pytest.mark.parametrize("way", [left_by_break, left_by_a_later_break, left_in_a_zip, deleted, overwritten,
                                 left_by_an_exception, callee_returns_in_the_loop])
def test_without_exit_code_it_is_one_graph(way):
    check(lambda x: way(without_exit_code, x), torch.ones(2), breaks=0, compiles=1)


@pytest.mark.breaks(outside_effect={"grad": 6, "no_grad": 5}, real_iterator={"grad": 5, "no_grad": 4})
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_an_entry_for_other_iterators_is_not_used(grad):
    """The first dropped object was an iterator of a list."""
    def f(items, x):
        for b in items():
            print(end="")
            break
        log.append("after")
        return (x + 1) + weight

    compiled = framejit.compile(f)
    for make in [lambda: [1, 2], lambda: logged(torch.ones(2)), lambda: enumerate([1, 2]), lambda: enumerate(
        without_grad(torch.ones(2)))]:
        def run(fn):
            log.clear()
            with torch.set_grad_enabled(grad):
                return traits(fn(make, torch.ones(2))), list(log)
        want = run(f)
        for call in range(2):
            assert run(compiled) == want
