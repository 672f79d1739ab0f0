"""The one entry of the end-to-end tests: run a function plainly and compiled, and compare everything a user can see.

check(fn, *args) calls fn eagerly on one deep copy of the arguments and compiled (several times, so that hits are tested
too) on others, then compares results (structure, classes, identity of returned inputs, strides, values within the
contract's bound: where they are not within its last term alone, wide.py runs the program in float64), written arguments
and exceptions. Each backend must have one graph, no break and no fallback, or as many as the test says.

With TEST_DEVICE=cuda the arguments are copied there; a program that needs tensors of the CPU too is skipped.
"""
import contextlib
import copy
import functools
import gc
import os
import sys
import threading
import warnings

import pytest
import torch

import framejit
from bounds import exactly_as, part
from devices import DEVICE, moved, random_state, same_random_state
from sameness import same, told_by
from stated import RUN_ERRORS
from wide import in_float64, is_float

# Vector registers other than the CPU's (test_levels.py) only change kernels, and the backend eager has none.
BACKENDS = ("framejit",) if "FRAMEJIT_CPU_FEATURES" in os.environ else ("eager", "framejit")


def raised(call, *args):
    """The return value of a call, or the class and the text of what it raises."""
    try:
        return call(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.fixture(autouse=True)
def fresh():
    """For every test of a file that imports it: nothing compiled before, no gradients."""
    framejit.reset()
    with torch.no_grad():
        yield


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def wait_for_a_signal():
    """Waits for the handler of a signal that has been sent. Its exception ends the wait."""
    threading.Event().wait(60)
    pytest.fail("no signal came")


def resident():
    """KiB of memory that the process holds now."""
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4


def assert_flat(run, most):
    """Asserts that run() makes the process grow by less than `most` KiB. If it grows more, run() is called again: the
    heap may settle once or twice, if other tests ran before, but a leak grows each time. Returns how often it ran."""
    growths = []
    while len(growths) < 4 and (not growths or growths[-1] >= most):
        before = resident()
        run()
        growths.append(resident() - before)
    assert growths[-1] < most, f"{growths} KiB more"
    return len(growths)


@contextlib.contextmanager
def threads(count):
    """Sets torch's own thread count inside a with block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_device(value):
    """A tensor on the tests' device: the same object, or one of the same class. A module moves there."""
    if DEVICE == "cpu":
        return value
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(moved(value.data, DEVICE), value.requires_grad)
    if isinstance(value, torch.Tensor):
        return value.detach().to(DEVICE).requires_grad_(value.requires_grad)
    if isinstance(module := getattr(value, "__self__", value), torch.nn.Module):
        module.to(DEVICE)
    return value


def deep_copy(value):
    """A copy on the tests' device that keeps strides, offsets, and what tensors share: the object, or the memory."""
    memo, storages = {}, {}

    def tensor(t):
        if id(t) not in memo:
            if isinstance(t, torch.nn.Parameter) or t.layout != torch.strided or type(
                t) is not torch.Tensor or t.is_inference():
                memo[id(t)] = on_device(copy.deepcopy(t) if t.is_leaf else t.detach().clone())
            else:
                storage = t.untyped_storage()
                key = storage.data_ptr() or id(t)
                if key not in storages:
                    storages[key] = storage.clone().to(device=DEVICE)
                c = t.new_empty(0, device=storages[key].device)
                c.set_(storages[key], t.storage_offset(), t.size(), t.stride())
                memo[id(t)] = c.requires_grad_(t.requires_grad)
        return memo[id(t)]

    def walk(v):
        if isinstance(v, torch.Tensor):
            return tensor(v)
        if type(v) in (list, tuple):
            return type(v)(walk(e) for e in v)
        if type(v) is dict:
            return {k: walk(e) for k, e in v.items()}
        if isinstance(v, torch.nn.Module) or not callable(v):
            return on_device(copy.deepcopy(v, memo))
        return v

    return walk(value)


def same_as(fn, got, *args, **kwargs):
    """Asserts that `got` is what eager `fn` returns for these arguments, which it does not write."""
    same(got, fn(*args, **kwargs), exactly_as(lambda: fn(*args, **kwargs)))


def tensors_in(value):
    """The tensors of nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []


def identities(result, args):
    """For each tensor of the result, the first tensor of arguments and earlier results that is the same object."""
    known = tensors_in(args)
    found = []
    for t in tensors_in(result):
        found.append(next((i for i, k in enumerate(known) if k is t), None))
        known.append(t)
    return found


def is_of_a_kernel(warning):
    """Whether the docs say that compiled code does not give this warning: it comes from torch's C++ code, which names
    its source, or it is NumPy's about a method of Tensor."""
    text = str(warning.message)
    return ((warning.category is UserWarning and "(Triggered internally at " in text)
            or (warning.category is DeprecationWarning and text.startswith("__array_wrap__ must accept context")))


def outcome(fn, args, kwargs):
    """How a call ends, with which result or error, and the warnings that it gives."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            ended = "returned", fn(*args, **kwargs)
        except Exception as e:  # compared, not hidden
            ended = "raised", e
    return *ended, [(w.category.__name__, str(w.message)) for w in given if not is_of_a_kernel(w)]


def owner_of(fn):
    """The torch module that is called, or whose method is. Each call may change it."""
    owner = getattr(fn, "__self__", fn)
    return owner if isinstance(owner, torch.nn.Module) else None


def copy_of(fn):
    """The same callable with a module of its own, if it has one."""
    return fn if owner_of(fn) is None else copy.deepcopy(fn)


def floats_of(module):
    return [t for t in (*module.parameters(), *module.buffers()) if is_float(t)] if module is not None else []


def exactly(fn, args, kwargs, grad, seed, noise=None):
    """In float64, on copies: the result, [arguments, keyword arguments, the module that was called]. None if the
    program cannot run so."""
    fn, (args, kwargs) = copy_of(fn), deep_copy([list(args), kwargs])
    run = framejit.disable(fn)
    with torch.set_grad_enabled(grad):
        try:
            return in_float64(lambda args, kwargs, owner: run(*args, **kwargs), [args, kwargs, owner_of(fn)], {}, seed,
                              noise)
        except Exception:
            return None


def assert_counts(stats, raised=False, compiles=None, breaks=None, fallbacks=None):
    """Asserts how many graphs, breaks and fallbacks there were: one, none and none, unless others are stated. For a
    program that raises, the raise itself counts as neither break nor fallback, and there may be no graph."""
    own = (("graph_breaks", "break_reasons", ["exception_raised"]),
           ("fallbacks", "fallback_reasons", RUN_ERRORS))
    others = [stats[total] - raised * sum(stats[reasons].get(reason, 0) for reason in names)
              for total, reasons, names in own]
    seen = stats["graphs"], *(stats[total] if stated is not None else other
                              for (total, *_), stated, other in zip(own, (breaks, fallbacks), others))
    if DEVICE != "cpu":  # its kernels are other ops, some without a shape rule: tests/gpu counts what it captures
        assert seen[2] == (fallbacks or 0), f"{seen[2]} fallbacks: {stats['fallback_reasons']}"
        return
    wanted = min(1, stats["graphs"]) if raised and compiles is None else 1 if compiles is None else compiles
    assert seen == (wanted, breaks or 0, fallbacks or 0), (
        f"{seen[0]} graphs, {seen[1]} breaks and {seen[2]} fallbacks instead of {wanted}, {breaks or 0} and "
        f"{fallbacks or 0}: {stats['break_reasons']}, {stats['fallback_reasons']}")


def check(fn, *args, compiles=None, breaks=None, fallbacks=None, backends=BACKENDS, calls=3, grad=False, seed=0,
          kwargs=None, strides="all", **options):
    """Asserts that compiled `fn` behaves like eager `fn`; returns the stats of the last backend."""
    fn, kwargs = on_device(fn), kwargs or {}
    stats = exact = None  # what is exact is made once for equal results of eager
    for backend in backends:
        framejit.reset()
        plain = copy_of(fn)
        compiled = framejit.compile(fn, backend=backend, **options)
        for call in range(calls):
            plain_args, plain_kwargs = deep_copy([list(args), kwargs])
            our_args, our_kwargs = deep_copy([list(args), kwargs])
            before_call = copy_of(plain)
            with torch.set_grad_enabled(grad):
                torch.manual_seed(seed)
                want = outcome(plain, plain_args, plain_kwargs)
                state = random_state()
                torch.manual_seed(seed)
                got = outcome(compiled, our_args, our_kwargs)
                drew_the_same = same_random_state(state)
            made = [t for t in tensors_in(want[1]) if is_float(t)]
            made += [t.clone() for t in floats_of(owner_of(plain))]
            if exact is None or not made or len(made) != len(before) or not all(
                a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(made, before)):
                exact, before = functools.cache(functools.partial(exactly, before_call, args, kwargs, grad, seed)), made
            if DEVICE != "cpu" and want[0] == "raised" and "on the same device" in str(want[1]):
                pytest.skip("not tested: the program needs tensors of the CPU")
            where = f"backend {backend}, call {call}"
            assert got[0] == want[0], f"{where}: {got} instead of {want}"
            if want[0] == "raised":
                said, wanted = told_by(got[1]), told_by(want[1])
                if isinstance(want[1], AttributeError) and wanted["name"] is None and sys.version_info >= (3, 12):
                    for told in (said, wanted):  # CPython leaves them out once it has inlined a property's getter
                        told.pop("name", None), told.pop("obj", None)
                assert said == wanted, f"{where}: {got[1]!r}, {said} instead of {want[1]!r}, {wanted}"
                same(got[1].args, want[1].args, None, f"{where}: arguments of the error", strides)
                same(vars(got[1]), vars(want[1]), None, f"{where}: attributes of the error", strides)
            else:
                same(got[1], want[1], part(exact, lambda v: v[0]), f"{where}: result", strides)
                assert identities(got[1], our_args) == identities(want[1],
                                                                  plain_args), (f"{where}: which results are which "
                                                                                "arguments")
            assert got[2] == want[2], f"{where}: warnings {got[2]} instead of {want[2]}"
            assert drew_the_same, f"{where}: the generator is in another state"
            for k, (ours, plains, what) in enumerate(((our_args, plain_args, "arguments"),
                                                      (our_kwargs, plain_kwargs, "keyword arguments"),
                                                      (owner_of(fn), owner_of(plain), "the called module"))):
                same(ours, plains, part(exact, lambda v: v[1][k]), f"{where}: {what}", strides)
        stats = framejit.stats()
        assert_counts(stats, want[0] == "raised", compiles, breaks, fallbacks)
    return stats
