"""A fuzzer or a sweep finds each kind of defect that once got in: docs/finders.md names it, and this file plants it."""
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import framejit
import frames_fuzz
import test_guards_fuzz as guards
import test_planted as planted
import test_training_fuzz as training
from framejit import _framejit

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests/wild"), str(ROOT / "benchmarks")]
REAL = framejit.compile


def fails(finder, *args):
    """Whether a test of a sweep fails."""
    framejit.reset()
    try:
        with torch.no_grad():
            finder(*args)
    except (AssertionError, pytest.fail.Exception):
        return True
    return False


def fuzzer_finds(*mutants):
    """Each mutant is compiled in place of the fuzzer's program: test_planted.py."""
    return lambda monkeypatch: set(mutants) <= set(planted.MUTANTS)


def instead(monkeypatch, compiled):
    monkeypatch.setattr(framejit, "compile", compiled)


# ---- plants


def reads_where_nothing_is(monkeypatch):
    """A gather of no elements reads its first element."""
    import test_empty_tensors as finder

    def gather(op, args, kwargs):
        empty = any(isinstance(i, torch.Tensor) and not i.numel() for i in args[1])
        return args[0][:, :1].clone() if empty else op(*args, **kwargs)
    wrong = planted.backend_with("index", gather)
    instead(monkeypatch, lambda fn, backend, dynamic: REAL(fn, backend=wrong, dynamic=dynamic))
    return finder.wrong_pairs("gather_of_columns")


def a_name_that_nobody_heard_of(monkeypatch):
    import test_torch_compiler as finder
    monkeypatch.setattr(torch.compiler, "__all__", [*torch.compiler.__all__, "new_in_torch"])
    return fails(finder.TestThePage().test_every_public_name_of_torch_compiler_has_a_row)


def a_stance_that_is_ignored(monkeypatch):
    import test_torch_compiler as finder

    class Ignored:
        def __init__(self, stance): pass
        def __enter__(self): return self
        def __exit__(self, *error): return None
        def __call__(self, fn): return fn
    return fails(finder.TestStances().test_force_eager, Ignored)


def with_costs(rows, finder, *args):
    _framejit.replace_costs(rows)
    try:
        return fails(finder, *args)
    finally:
        _framejit.replace_costs("")


def kernels_without_bounds(monkeypatch):
    import test_growth as finder
    return with_costs("most_work=1000000, most_instructions=1000000", finder.test_kernels_stay_short, "hardswish")


def small_work_on_threads(monkeypatch):
    import test_threads as finder
    return with_costs("grain_points=256", finder.test_small_work_stays_on_one_thread)


def values_that_are_copied(monkeypatch):
    import test_updates as finder

    def through_copies(fn):
        compiled = REAL(fn)

        def call(*tensors):
            made = [t.clone() for t in tensors]
            compiled(*made)
            for t, new in zip(tensors, made):
                t.copy_(new)
        return call
    instead(monkeypatch, through_copies)
    return fails(finder.test_nothing_is_copied, "adam")


def entries_whose_guards_never_hold(monkeypatch):
    import test_recompile_policy as finder

    def guards_a_new_object(fn):
        seen = [None]

        def with_an_object(*args):
            return fn(*args) if seen[0].stays else None
        compiled = REAL(with_an_object)

        def call(*args):
            seen[0] = type("Made", (), {"stays": True})
            return compiled(*args)
        return call
    instead(monkeypatch, guards_a_new_object)
    return fails(finder.test_gradients_in_a_loop_compile_once)


def sizes_that_stay_numbers(monkeypatch):
    import test_generate as finder
    instead(monkeypatch, lambda fn, **options: REAL(fn, **{**options, "dynamic": False}))
    return fails(finder.test_prompts_of_five_lengths, finder.t5, 9, ("greedy",))


def a_layer_that_breaks(monkeypatch):
    import test_recurrent as finder

    def breaks(self):
        print(end="")
        return False
    monkeypatch.setattr(nn.RNNBase, "_weights_have_changed", breaks)
    return fails(finder.test_whole_without_and_with_a_first_state, nn.LSTM, {})


def programs_that_break(monkeypatch):
    import run_wild as finder
    row = dict(package="transformers", seed=0, mode="compile", verdict="right", recompiles=0)
    rows = [dict(row, name=str(i), whole=i % 2 == 0) for i in range(40)]
    assert not finder.below_floors([dict(r, whole=True) for r in rows], 0)
    return finder.below_floors(rows, 0)


def a_compile_that_fails(monkeypatch):
    def refuses(graph, examples):
        raise RuntimeError("planted")
    return planted.seeds_until_found(frames_fuzz, 20, refuses)


def training_fuzz_finds(*plants):
    """Each is planted by test_training_fuzz.py."""
    return lambda monkeypatch: set(plants) <= set(training.PLANTS)


def guards_fuzz_finds(*plants):
    """Each is planted by test_guards_fuzz.py."""
    return lambda monkeypatch: set(plants) <= set(guards.PLANTS)


def weights_that_are_trusted(monkeypatch):
    import weights_fuzz
    with torch.no_grad():
        return weights_fuzz.run(0, 15, trusted=True)[0]


def a_search_that_asks_iter(monkeypatch):
    """`in` goes through __iter__ of a class that extends list."""
    import test_sibling_slots as finder

    def compiled(fn, backend):
        if fn.__code__.co_filename != "7 in v":
            return REAL(fn, backend=backend)
        return lambda v, x, *rest: (7 in [*iter(v)], x + 1)
    instead(monkeypatch, compiled)
    return fails(finder.test_one_override, list)


def a_body_that_runs_before_the_error(monkeypatch):
    import test_plain_runs as finder

    def compiled(fn, **settings):
        real = REAL(fn, **settings)

        def call(*args):
            try:
                return real(*args)
            except framejit.GraphBreakError:
                fn(*args)
                raise
        return call
    instead(monkeypatch, compiled)
    return fails(finder.test_an_error_of_the_compile_runs_nothing, "limit", False, None)


def a_gradient_of_an_earlier_number(monkeypatch):
    import test_varying_numbers as finder

    def compiled(fn, **settings):
        real, seen = REAL(fn, **settings), []

        def call(x, n):
            seen.append(n)
            earlier = real(x, seen[min(len(seen) - 1, 1)])
            return real(x, n).detach() + earlier - earlier.detach()
        return call
    instead(monkeypatch, compiled)
    with pytest.raises(AssertionError, match="step 2.*grad"), torch.enable_grad():
        finder.test_floats("scaled", None)
    return True


class ReadsFirst(TorchDispatchMode):
    """An op reads copies of the tensors that it does not write."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        written = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        first = bool(written) and func._schema.arguments[0].name in written
        args = tuple(a.clone() if written and isinstance(a, torch.Tensor) and not (first and i == 0) else a
                     for i, a in enumerate(args))
        return func(*args, **(kwargs or {}))


def an_op_that_reads_first(monkeypatch):
    import test_written_memory as finder

    def compiled(fn):
        def call(m):
            with ReadsFirst():
                return fn(m)
        return call
    instead(monkeypatch, compiled)
    return fails(finder.test_shared_elements, "copy_", "columns")


def a_gradient_that_is_lost(monkeypatch):
    import test_varying_numbers as finder

    def compiled(fn, **settings):
        real = REAL(fn, **settings)

        def call(x, n):
            value, elsewhere = real(x, n), real(x, max(n, 0))
            return value.detach() + elsewhere - elsewhere.detach()
        return call
    instead(monkeypatch, compiled)
    with pytest.raises(AssertionError, match="step 2.*grad"), torch.enable_grad():
        finder.test_positions_on_either_side_of_zero("item", None)
    return True


def a_function_that_takes_copies(monkeypatch):
    import test_recognition as finder
    instead(monkeypatch, lambda fn: lambda a, b: fn(a.clone(), b.clone()))
    return fails(finder.test_internals_of_torch_are_called_with_the_tensors_of_the_program, "_is_alias_of")


def unit_test_finds(file, test):
    """The defect is planted there, in C++."""
    return lambda monkeypatch: f"TEST({test})" in (ROOT / file).read_text()


# The sections of docs/finders.md by their titles.
PLANTS = {
    "A builtin takes every item before it writes the first": fuzzer_finds(planted.TakesItemsFirst, planted.AddsUpLater,
                                                                          planted.AsksKeysLater),
    "What was written before an exception is lost": fuzzer_finds(planted.LosesWhatWasTaken),
    "Which locals and cells are bound is not guarded": fuzzer_finds(planted.IsAlwaysBound, planted.KeepsDeleted,
                                                                    planted.StaysUnbound),
    "A guard does not tell a value from an earlier one": guards_fuzz_finds("its class is not compared",
                                                                           "its value is not compared"),
    "A kernel reads where an empty tensor has no memory": reads_where_nothing_is,
    "An error that `is_compiling()` led to reaches the user": fuzzer_finds(planted.KeepsYes),
    "A function of `torch.compiler` is unknown": a_name_that_nobody_heard_of,
    "A function of `torch.compiler` is ignored": a_stance_that_is_ignored,
    "Kernels grow with the program, and compiles with their square": kernels_without_bounds,
    "Small work is split over threads": small_work_on_threads,
    "An update goes through a copy": values_that_are_copied,
    "Each call compiles anew": entries_whose_guards_never_hold,
    "A model needs more entries than there are": sizes_that_stay_numbers,
    "A layer is never compiled": a_layer_that_breaks,
    "A derived value is stale": weights_that_are_trusted,
    "Ordinary programs break": programs_that_break,
    "Plain Python runs because a compile failed": a_compile_that_fails,
    "A change of a saved tensor is not seen": training_fuzz_finds("no version is checked"),
    "A gradient that eager leaves at None becomes zeros": training_fuzz_finds("None becomes zeros"),
    "A gradient with a history is that of another forward": training_fuzz_finds("a gradient has another history"),
    "The backward draws a mask again": training_fuzz_finds("a mask is drawn twice"),
    "A gradient mode inside a function is ignored": training_fuzz_finds("detach is ignored", "no_grad is ignored"),
    "A subclass of a builtin class is asked another method than in CPython": a_search_that_asks_iter,
    "The function's code runs although its compile raises": a_body_that_runs_before_the_error,
    "A formula keeps the number of an earlier call": a_gradient_of_an_earlier_number,
    "An op reads what it writes elsewhere as if it wrote last": an_op_that_reads_first,
    "A gradient goes to another place than its value came from": a_gradient_that_is_lost,
    "A function of C is called with the tensors of the trace": a_function_that_takes_copies,
    "Odd dtypes, layouts or numbers give another result": lambda monkeypatch: set(planted.ODD),
    "A kernel stores outside of its buffer": unit_test_finds("tests/unit/inductor/loop_fuzz_test.cpp",
                                                             "Planted, IndicesOutsideAreFound"),
}


def rows():
    """Title -> its two lines, for each section of docs/finders.md."""
    sections = re.findall(r"^## (.+)\n- Found by: (.+(?:\n  .+)*)\n- Checks: (.+(?:\n  .+)*)$",
                          (ROOT / "docs/finders.md").read_text(), re.M)
    return {title: lines for title, *lines in sections}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("defect", PLANTS)
def test_a_planted_defect_is_found(defect, monkeypatch):
    assert PLANTS[defect](monkeypatch)


def test_the_page_names_what_there_is():
    assert set(rows()) == set(PLANTS)
    for finder, bound in rows().values():
        for name in re.findall(r"`([^`]+)`", finder):
            file, _, test = name.partition("::")
            assert (ROOT / file).is_file() or name.startswith("make "), name
            assert not test or re.search(rf"def {test}\b", (ROOT / file).read_text()), name
        assert bound
