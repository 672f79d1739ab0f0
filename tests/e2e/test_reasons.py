"""Every reason for which something is not compiled: rows of reasons.def, and a program that runs into each of them and
still gives eager's results."""
import ast
import copy
import datetime
import os
import re
import sys
import types
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import framejit
import pages
import programs
from check import fresh, same  # noqa: F401

ROOT = Path(__file__).parents[2]


def rows(*kinds):
    return re.findall(rf"^REASON\((?:{'|'.join(kinds)}), (\w+),", (ROOT / "runtime/base/reasons.def").read_text(), re.M)


BREAKS = rows("break_", "limit", "interruption")
FALLBACKS = rows("fallback") + ["kernel_refused", "recording_failed", "internal_error"]

# Reasons that no program of a few lines runs into, and why; or where they are tested.
ELSEWHERE = {
    "does_not_pay": "objects that each call makes anew: test_recompile_policy.py",
    "explicit_break": "a process of its own below: torch's compiler is imported for it",
    "trace_too_long": "two million instructions: tests/unit/frame_hook/trace_exit_test.cpp sets another limit",
    "interrupted": "needs a signal at the right time: tests/e2e/test_interrupts.py",
    "size_out_of_range": "an error of compiled code: tests/unit/runtime/call_plan_test.cpp",
    "inference_tensor": "guards keep it away: tests/unit/runtime_aten/plan_runner_test.cpp runs a plan without them",
    "kernel_refused": "a backend that refuses: tests/e2e/test_warned_by_default.py",
    "no_memory": "in a process of its own with little memory: tests/e2e/test_failures.py",
    "recording_failed": "a planted defect: tests/e2e/test_warned_by_default.py",
    "internal_error": "a planted defect: tests/e2e/test_warned_by_default.py",
    "lock_taken": "a lock that another thread holds: tests/e2e/test_locks.py",
    "stack_low": "recursion that uses up the stack, in a process of its own: tests/e2e/test_deep_recursion.py",
    "backward_failed": "a backend that refuses: tests/e2e/test_warned_by_default.py",
    "undecodable": "only bytecode made by hand, which plain Python may not survive either",
}

K = 1


class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@framejit.disable
def disabled(x):
    return x + 1


async def coroutine():
    return 2


def write_both(a, b):
    a += 1
    return a * 2, b + 1


def run_coroutine(x):
    x = x + 1
    try:
        coroutine().send(None)
    except StopIteration as stop:
        return x * stop.value


def print_between(x):
    x = x + 1
    print(end="")
    return x * 2


def take_one(x, lines):
    for line in lines:
        return x + len(line)


def raises(x):
    x = x + 1
    raise KeyError(x.dim())


def descend(x, n):
    return x + 1 if n == 0 else descend(x, n - 1)


def catch_group(x):
    x = x + 1
    try:
        raise ValueError
    except* ValueError:
        x = x * 2
    return x



def keep_identity(x):
    y = x + 1
    return y, {id(y): 1}[id(y)], len({id(y): 1}), str(id(y)) != ""


class Plain:
    pass


class WithSlots:
    __slots__ = "n"

    def __init__(self, n):
        self.n = n


class Odd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def rename(x):
    y = x + 1
    disabled.__code__ = disabled.__code__
    return y * 2


def match_keys(x, mapping):
    y = x + 1
    match mapping:
        case {"k": n}:
            return y * n


def make_class(x):
    class Made:
        factor = 3
    return (x + 1) * Made.factor


def sort_and_write(x):
    items = [3, 1, 2]
    items.sort(key=lambda v: items.append(v) or v)
    return x + len(items)


def ask_for_the_exception(x):
    y = x + 1
    try:
        raise ValueError
    except ValueError:
        kind = sys.exc_info()[0]
    return y * 2, kind


def write_shared(x):
    array = np.zeros(2)
    shared = torch.from_numpy(array)
    array[0] = 3
    return x + shared.sum()


def change_inside(x):
    with torch.inference_mode():
        torch.set_grad_enabled(not torch.is_grad_enabled())
        y = x + 1
    return y


def delegate(items):
    yield from items


def send(x):
    generator = delegate(iter([1, 2]))
    y = x + next(generator)
    return y, generator.send(3)


def write_as_other_dtype(x):
    y = x + 1
    y.view(torch.int32).as_strided((2,), (1,)).zero_()
    return y


def products_so_far(x):
    with torch.enable_grad():
        return x.cumprod(1)


# reason: function, a maker of its arguments
PROGRAMS = {
    "disabled_function": (lambda x: disabled(x * 2) + 1, lambda: (torch.ones(4),)),
    "data_dependent_jump": (lambda x: x + 1 if x.sum() > 0 else x - 1, lambda: (torch.ones(4),)),
    "data_dependent_value": (lambda x: (x + 1).sum().item() * 2, lambda: (torch.ones(4),)),
    "data_dependent_size": (lambda x: (x + 1).nonzero() * 2, lambda: (torch.ones(4),)),
    "outside_effect": (print_between, lambda: (torch.ones(4),)),
    "unknown_callable": (lambda x: (x + 1) * zlib.crc32(b"a"), lambda: (torch.ones(4),)),
    "unknown_attribute": (lambda x: (x + 1) * x.flatten().is_shared() + (x + 1)._version, lambda: (torch.ones(4),)),
    "unsupported_opcode": (catch_group, lambda: (torch.ones(4),)),
    "unsupported_operand": (lambda x, day: (x + 1, day - day), lambda: (torch.ones(4), datetime.date(2020, 1, 2))),
    "unsupported_key": (lambda x, day: (x + 1, {day: 1}[day]), lambda: (torch.ones(4), datetime.date(2020, 1, 2))),
    "unsupported_write": (rename, lambda: (torch.ones(4),)),
    "unsupported_copy": (lambda x, o: (x + 1, copy.copy(o).n), lambda: (torch.ones(4), WithSlots(3))),
    "unsupported_pattern": (match_keys, lambda: (torch.ones(4), types.MappingProxyType({"k": 2}))),
    "made_in_trace": (make_class, lambda: (torch.ones(4),)),
    "memory_address": (lambda x: (x + 1, len(object.__repr__(Plain())) > 0), lambda: (torch.ones(4),)),
    "set_order": (lambda x: (x + 1, type({Plain(), Plain()}.pop()) is Plain), lambda: (torch.ones(4),)),
    "changed_container": (sort_and_write, lambda: (torch.ones(4),)),
    "exception_state": (ask_for_the_exception, lambda: (torch.ones(4),)),
    "text_formatting": (lambda x, day: (x + 1, str(day)), lambda: (torch.ones(4), datetime.date(2020, 1, 2))),
    "numpy_array": (write_shared, lambda: (torch.ones(4),)),
    "inference_mode": (change_inside, lambda: (torch.ones(4),)),
    "custom_dispatch": (lambda x: Odd.apply(x + 1) + 1, lambda: (torch.ones(4),)),
    "sent_value": (send, lambda: (torch.ones(4),)),
    "odd_scope": (lambda x: (x + 1, len(vars())), lambda: (torch.ones(4),)),
    "too_large": (lambda x: (x + 1, [i for i in range(2**70, 2**70 + 2)]), lambda: (torch.ones(4),)),
    "no_functional_form": (write_as_other_dtype, lambda: (torch.ones(4),)),
    "unsupported_tensor": (lambda x, s: (x + 1) * s.to_dense(), lambda: (torch.ones(4), torch.ones(4).to_sparse())),
    "unsupported_op": (lambda x: (x + 1).resize_(2), lambda: (torch.ones(4),)),
    "generator_frame": (run_coroutine, lambda: (torch.ones(4),)),
    "real_iterator": (take_one, lambda: (torch.ones(4), open(__file__))),
    "exception_raised": (raises, lambda: (torch.ones(4),)),
    "mode_entered": (lambda x: torch.func.vmap(lambda row: row * 2)(x + 1) + 1, lambda: (torch.ones(4, 2),)),
    "recursion_limit": (descend, lambda: (torch.ones(4), 400)),
    "escaped_traced": (keep_identity, lambda: (torch.ones(4),)),
    "gradient_call": (lambda x: (x.requires_grad_() * 2).detach(), lambda: (torch.ones(4),)),
    "no_backward": (products_so_far, lambda: (torch.ones(4, 2, requires_grad=True),)),
}


PAGE = ROOT / "docs/reasons.md"
SECTIONS = {
    "break_": "Graph breaks: capture stops there, plain Python goes on, and capture starts again after it",
    "limit": "Limits of framejit",
    "interruption": "Compiles that a signal ended",
    "fallback": "Calls that ran in plain Python, although nothing in the program asked for it",
    "refusal": "What this build or machine does not support",
    "defect": "Defects of framejit",
}


def make_page():
    table = (ROOT / "runtime/base/reasons.def").read_text()
    row = r'^REASON\((\w+), (\w+),\s*((?:"[^"]*"\s*)+),\s*((?:"[^"]*"\s*)+)\)'
    text = ["# Why something is not compiled", "",
            "Written by `tests/e2e/test_reasons.py` from `runtime/base/reasons.def` (`make golden-update`). "
            "`framejit.stats()` counts breaks and fallbacks by these names. `FRAMEJIT_LOGS=graph_breaks` says where "
            "each happened, with the actual name in place of the dots. The second line of each says what to do."]
    comments = dict(re.findall(r'^REASON\(\w+, (\w+), "\{0\}",[^/\n]*// (.*)', table, re.M))
    bare = re.sub(r"  // .*$", "", table, flags=re.M)
    found = [(kind, name, *(ast.literal_eval(f"({part})") for part in parts))
             for kind, name, *parts in re.findall(row, bare, re.M)]
    assert len(found) == len(re.findall(r"^REASON\(", table, re.M)) and {kind for kind, *_ in found} == set(SECTIONS)
    for kind, title in SECTIONS.items():
        text += ["", f"## {title}", ""]
        for _, name, what, hint in (row for row in found if row[0] == kind):
            said = comments[name] if what == "{0}" else what.replace("{0}", "...")
            text += [f"- `{name}`: {said}", f"  *{hint}*"]
    return pages.filled("\n".join(text) + "\n")


@pytest.mark.nothing_captured
def test_the_page_of_reasons():
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(make_page())
    assert PAGE.read_text() == make_page(), "make golden-update rewrites docs/reasons.md"


def outcome(fn, args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.nothing_captured
def test_every_row_has_a_program_or_a_reason_why_not():
    here = {*PROGRAMS, *ELSEWHERE, *(name[len("test_"):] for name in globals() if name.startswith("test_"))}
    assert here.issuperset(BREAKS + FALLBACKS), sorted({*BREAKS, *FALLBACKS} - here)
    assert not set(PROGRAMS) - set(BREAKS) and not set(ELSEWHERE) - {*BREAKS,
                                                                     *FALLBACKS} and not set(PROGRAMS) & set(ELSEWHERE)
    for reason, why in ELSEWHERE.items():
        for path in re.findall(r"tests/\S+\.(?:py|cpp)", why):
            assert re.search(rf"\b{reason}\b", (ROOT / path).read_text()), (reason, path)


@pytest.mark.breaks(data_dependent_value={"unknown_attribute": 1}, real_iterator={"sent_value": 2, "too_large": 2},
                    unknown_callable={"unknown_attribute": 1, "generator_frame": 1},
                    unsupported_operand={"numpy_array": 1, "too_large": 1, "real_iterator": 1})  # besides that reason
@pytest.mark.nothing_captured
@pytest.mark.parametrize("reason", PROGRAMS)
def test_a_break(reason):
    fn, make = PROGRAMS[reason]
    compiled = framejit.compile(fn)
    got, want = outcome(compiled, make()), outcome(fn, make())
    same(got, want)
    stats = framejit.stats()
    count = 2 if reason in ("unsupported_opcode", "unsupported_key", "exception_state") else 1
    assert stats["break_reasons"].get(reason, 0) == count and not stats["fallbacks"], stats


@pytest.mark.nothing_captured
def test_explicit_break():
    program = ("import torch, framejit\nimport torch._dynamo as other\n"
               "def f(x):\n    x = x + 1\n    other.graph_break()\n    return x * 2\n"
               "with torch.no_grad():\n    assert torch.equal(framejit.compile(f)(torch.ones(2)), torch.full((2,), "
               "4.0))\n"
               "print(framejit.stats()['break_reasons'], framejit.stats()['graphs'])\n")
    done = programs.run(program)
    assert done.returncode == 0 and done.stdout == "{'explicit_break': 1} 2\n", (done.stdout, done.stderr[-2000:])


@pytest.mark.nothing_captured
def test_modes_unsupported():
    def f(x):
        return x + 1
    compiled = framejit.compile(f)
    with Mode():
        same(compiled(torch.ones(4)), f(torch.ones(4)))
    assert framejit.stats()["break_reasons"] == {"modes_unsupported": 1}


def test_overlapping_inputs():
    compiled = framejit.compile(write_both)
    same(compiled(torch.ones(4), torch.ones(3)), write_both(torch.ones(4), torch.ones(3)))
    memory, plain = torch.ones(4), torch.ones(4)
    same(compiled(memory, memory[1:]), write_both(plain, plain[1:]))
    assert torch.equal(memory, plain) and framejit.stats()["break_reasons"] == {"overlapping_inputs": 1}


def test_entry_limit():
    compiled = framejit.compile(lambda x, word: x * len(word))
    for n in range(12):
        same(compiled(torch.ones(4), "a" * n), torch.full((4,), float(n)))
    assert framejit.stats()["fallback_reasons"] == {"entry_limit": 4}


def test_compile_running():
    inner = framejit.compile(lambda x: x + 2)

    def backend(graph, inputs):
        same(inner(torch.ones(4)), torch.full((4,), 3.0))
        return graph
    same(framejit.compile(lambda x: x * 2, backend=backend)(torch.ones(4)), torch.full((4,), 2.0))
    assert framejit.stats()["fallback_reasons"] == {"compile_running": 1}


@pytest.mark.nothing_captured
def test_observed():
    compiled, before = framejit.compile(lambda x: x + 1), sys.gettrace()
    sys.settrace(lambda *event: None)
    try:
        got = compiled(torch.ones(4))
    finally:
        sys.settrace(before)
    same(got, torch.full((4,), 2.0))
    assert framejit.stats()["fallback_reasons"] == {"observed": 1}


class Defaults(dict):
    def __missing__(self, name):
        return 2.0


@pytest.mark.nothing_captured
def test_odd_globals():
    compiled = framejit.compile(eval("lambda x: x * unknown", Defaults()))
    same(compiled(torch.ones(4)), torch.full((4,), 2.0))
    assert framejit.stats()["fallback_reasons"] == {"odd_globals": 1}


def test_run_failed():
    compiled = framejit.compile(lambda x: torch.linalg.cholesky(x) + 1)
    same(compiled(torch.eye(2)), torch.linalg.cholesky(torch.eye(2)) + 1)
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        compiled(-torch.eye(2))
    assert framejit.stats()["fallback_reasons"] == {"run_failed": 1}


def test_kernel_check():
    compiled = framejit.compile(lambda x, i: x[i] + 1)
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(torch.ones(4), torch.tensor([9]))
    assert framejit.stats()["fallback_reasons"] == {"kernel_check": 1}


def test_guards_moved(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "K", 1)

    def backend(graph, inputs):
        global K
        K = 2
        return graph
    same(framejit.compile(lambda x: x * K, backend=backend)(torch.ones(4)), torch.full((4,), 2.0))
    assert framejit.stats()["fallback_reasons"] == {"guards_moved": 1} and framejit.stats()["graphs"] == 1
