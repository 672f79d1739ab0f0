"""The op sweep's floor: the first sample of each op of torch's op_db in dtypes of each kind, in worker processes, on
both backends. make sweep takes the other dtypes, every form in each, and every sample."""
import os
import re
import sys

import pytest
import torch

import op_sweep
import op_sweep_worker as worker
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "training"))
import gradient_sweep_worker as gradient_worker  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def sweep(*options):
    """The exit status."""
    return op_sweep.main(["--samples", "1", *options])


@pytest.mark.slow
def test_first_samples():
    assert sweep("--backend", "eager", "--dtype", "float32", "--at-least", "90", "--floors", "first, eager") == 0


@pytest.mark.slow
def test_first_samples_of_other_dtypes():
    assert sweep("--dtype", "bfloat16", "float64", "int64", "bool", "--at-least", "90", "--floors", "first") == 0


@pytest.mark.slow
def test_kernels_of_inputs_in_other_forms():
    """Ops of the class kernels, with inputs that are transposed, broadcast, stepped through memory, empty, of one
    element or without dimensions."""
    assert list(op_sweep.read_classes(op_sweep.CLASSES).values()).count("kernels") > 250
    forms = [form for form in worker.FORMS if form != "plain"]
    assert sweep("--dtype", "float32", "--forms", *forms, "--floors", "kernels", "--of-class", "kernels") == 0


@pytest.mark.slow
def test_no_op_falls_back_a_class():
    """The first float32 samples on the default backend: op_classes.txt has the class of each op, and ops may only
    rise."""
    assert sweep("--dtype", "float32", "--at-least", "90", "--classes", op_sweep.CLASSES, "--floors", "first") == 0


def test_a_fall_is_seen(tmp_path, monkeypatch):
    rows = [{"op": "add", "status": "whole", "class": "kernels"}, {"op": "mm", "status": "whole", "class": "extern"},
            {"op": "t", "status": "raises"}, {"op": "item", "status": "break", "why": "data_dependent_value"}]
    path = str(tmp_path / "classes.txt")
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    assert op_sweep.compare_classes(path, rows)  # not yet rewritten
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    assert not op_sweep.compare_classes(path, rows)
    assert op_sweep.read_classes(path) == {"add": "kernels", "mm": "extern", "item": "break"}
    for lower in ("mixed", "extern", "break"):
        assert op_sweep.compare_classes(path, [{**rows[0], "class": lower}, *rows[1:]])
    assert op_sweep.compare_classes(path, rows[1:])

    assert not op_sweep.compare_classes(path, [rows[0], {**rows[1], "class": "kernels"}, *rows[2:]])
    assert op_sweep.read_classes(path)["mm"] == "kernels" and op_sweep.compare_classes(path, rows)


def test_some_samples_of_an_op(tmp_path):
    rows = [{"op": op, "class": kind, "left": ["mm", "roll"]} for op,
            kinds in {"sum": "kernels views", "mm": "extern extern", "roll": "extern kernels mixed extern"}.items()
            for kind in kinds.split()]
    nothing = {"op": "mm", "class": "kernels", "left": [], "empty": True}
    path = str(tmp_path / "partly.txt")
    op_sweep.write_partly(path, {"int64": [*rows, {"op": "roll", "status": "raises"}, nothing], "bool": []})
    lines = (tmp_path / "partly.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["", "[int64]", "roll: 2 of 4; mm+roll 2", "",
                                                                   "[bool]"]
    assert op_sweep.read_partly(path) == [("int64", "roll", "2 of 4", {"mm", "roll"})]


def test_a_floor_for_each_form(tmp_path, monkeypatch):
    """By samples: an op that loses one of many is seen, and a form or dtype without a floor is a failure."""
    path = str(tmp_path / "floors.txt")
    rows = [{"op": "a", "form": form, "status": status} for form, statuses in {
        "plain": "whole whole whole break raises late", "empty": "whole whole"}.items() for status in statuses.split()]
    assert op_sweep.shares(rows) == {"plain": 75.0, "empty": 100.0}
    (tmp_path / "floors.txt").write_text("first, bool plain: 75\nfirst, bool empty: 90\n")
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    assert not op_sweep.below_floors("first", "bool", rows, path)
    fewer = [{**rows[0], "status": "break"}, *rows[1:]]
    assert op_sweep.below_floors("first", "bool", fewer, path) == [
        "first, bool plain: 50.0 % of the samples are whole, at least 75.0 % must be"]
    assert len(op_sweep.below_floors("first", "int64", rows, path)) == 2
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    assert op_sweep.below_floors("first", "bool", fewer, path)
    for name in ("first", "all"):
        assert not op_sweep.below_floors(name, "bool", rows, path)
    assert op_sweep.read_floors(path) == {"first, bool plain": 75, "first, bool empty": 100, "all, bool plain": 75,
                                          "all, bool empty": 100}


def accepted(path):
    """Lines "op reason dtype form sample" of a list of reasons."""
    with open(path) as f:
        return [line.split("#")[0].split() for line in f if line.split("#")[0].split()]


def test_the_list_of_reasons():
    """One line for an op and a reason, with a sample that shows it: no wildcards, no unknown ops, no unknown
    reasons."""
    ops = {worker.label_of(op) for op in worker.op_database()}
    with open(os.path.join(ROOT, "runtime", "base", "reasons.def")) as f:
        reasons = {"late", *re.findall(r"^REASON\(\w+, (\w+),", f.read(), re.MULTILINE)}
    for path in (op_sweep.REASONS, op_sweep.GRADIENT_REASONS):
        lines = accepted(path)
        wrong = [line for line in lines if len(line) != 5 or line[0] not in ops or line[1] not in reasons
                 or not hasattr(torch, line[2]) or line[3] not in worker.FORMS or not line[4].isdigit()]
        assert not wrong, (path, wrong)
        assert len({tuple(line[:2]) for line in lines}) == len(lines), path


def seen_reasons(line, gradients=False):
    """The reasons for which the sample of a line breaks now; "late" if only the compiled graph finds the error."""
    name, _, dtype, form, number = line
    op = next(op for op in worker.op_database() if worker.label_of(op) == name)
    if gradients:
        sample = gradient_worker.samples_of(op, getattr(torch, dtype), int(number) + 1)[int(number)]
        row = gradient_worker.run_one(op, sample, "framejit")
    else:
        samples = worker.samples_of(op, getattr(torch, dtype), [form], int(number) + 1)
        found = next(((args, kwargs) for n, _, args, kwargs in samples if n == int(number)), None)
        if found is None:
            return ["no such sample"]
        row = worker.run_one(op, *found, "framejit")
    return row["why"].split(",") if row["status"] == "break" else [row["status"]]


# Equal rows have a pivot of zero, unless the processor's kernel multiplies by a rounded reciprocal.
WHOLE_BY_ROUNDING = (["linalg.lu_factor", "late"], ["whole"])


@pytest.mark.breaks("data_dependent_jump", "data_dependent_size", "data_dependent_value", "no_backward",
                    "unsupported_op", "unsupported_tensor")  # what each sample shows is compared with its line
@pytest.mark.fallbacks("kernel_check", "run_failed")
@pytest.mark.filterwarnings("ignore")
def test_every_reason_still_holds(one_thread):
    """A line goes when its op is captured whole. If only the sample is, another sample must show the reason.

    On several threads, eager's batch norm writes statistics that overlap: which value stays is chance."""
    stale = [(*line, seen) for path in (op_sweep.REASONS, op_sweep.GRADIENT_REASONS) for line in accepted(path)
             if line[1] not in (seen := seen_reasons(line, path == op_sweep.GRADIENT_REASONS))
             and (line[:2], seen) != WHOLE_BY_ROUNDING]
    assert not stale, "\n".join(map(str, stale))


@pytest.mark.breaks(data_dependent_value=1, no_backward=1)
def test_a_stale_reason_is_seen():
    assert seen_reasons(["item", "data_dependent_value", "float32", "plain", "0"]) == ["data_dependent_value"]
    assert seen_reasons(["add", "unsupported_op", "float32", "plain", "0"]) == ["whole"]
    assert seen_reasons(["add", "unsupported_op", "float32", "transposed", "999"]) == ["no such sample"]
    assert seen_reasons(["cumprod", "no_backward", "float32", "plain", "0"], gradients=True) == ["no_backward"]
    assert seen_reasons(["add", "no_backward", "float32", "plain", "0"], gradients=True) == ["whole"]


@pytest.mark.slow
def test_the_list_of_partly_captured_ops(tmp_path):
    """The rows of op_partly.txt are true. make sweep finds the ops that it lacks."""
    for dtype in ("float32", "bfloat16", "int64"):
        path = tmp_path / f"{dtype}.txt"
        listed = [op for of, op, *_ in op_sweep.read_partly() if of == dtype]
        sweep("--dtype", dtype, "--samples", "40", "--partly", str(path), "--only",
              "^(" + "|".join(map(re.escape, listed)) + ")$")
        assert section(path, dtype) == section(op_sweep.PARTLY, dtype), dtype


def section(path, dtype):
    return re.search(rf"(?ms)^\[{dtype}\]\n(.*?)(?:\n\n|\Z)", open(path).read())[1].splitlines()


def test_every_op_that_is_left_has_a_reason():
    """And no reason is given for an op that is no longer left."""
    reasons, left = op_sweep.read_why_left(), {op for *_, ops in op_sweep.read_partly() for op in ops}
    assert left == set(reasons), (left - set(reasons), set(reasons) - left)
    assert all(len(why.split()) > 3 for why in reasons.values())
    assert {dtype for dtype, *_ in op_sweep.read_partly()} == {"float32", "bfloat16", "int64"}


def test_results_without_elements():
    none, one = torch.empty(0, 3), torch.ones(1)
    assert worker.makes_nothing(none) and worker.makes_nothing((none, [none])) and not worker.makes_nothing((none, one))
    assert not worker.makes_nothing(3)


def lucky_rows():
    """(kind, op, dtype, sample) -> reason, of lucky_ops.txt."""
    with open(worker.LUCKY) as f:
        return {tuple(key.split()): why.strip() for line in f if line.strip() and not line.startswith("#")
                for key, _, why in [line.partition(":")]}


@pytest.mark.filterwarnings("ignore")
def test_rows_of_luck(one_thread):
    """Each row is of an op and a dtype, says why, and names a sample that the row's exception covers. Whether it is
    needed depends on the CPU: eager kernels round in an order of their own on each."""
    rows, ops = lucky_rows(), {worker.label_of(op): op for op in worker.op_database()}
    assert len({key[:3] for key in rows}) == len(rows) < 20 and all(len(why.split()) > 5 for why in rows.values())
    for kind, name, dtype, number in rows:
        assert worker.luck_of(kind, name, dtype) == "terms"
        op, count, dtype = ops[name], int(number) + 1, getattr(torch, dtype)
        if kind == "gradients":
            row = gradient_worker.run_one(op, gradient_worker.samples_of(op, dtype, count)[-1], "framejit", "terms")
        else:
            _, _, args, kwargs = next(s for s in worker.samples_of(op, dtype, ["transposed", "plain"], count)
                                      if s[0] == int(number))
            row = worker.run_one(op, args, kwargs, "framejit", "terms")
        assert row["status"] == "whole", (name, dtype, row)


def test_luck_is_not_for_errors():
    """Where eager was lucky, a result must still be one that roundings could give."""
    terms = torch.tensor([3e4, 7.123, -3e4, 2.5])

    def differs(fn, change, terms=terms, luck="terms"):
        want, got = (worker.call_of(f, [terms], {}) for f in (fn, lambda t: change(fn(t))))
        return worker.difference(got, want, worker.exactly(fn, [terms], {}), False, luck)
    assert differs(torch.sum, lambda t: t + 1e-3, luck=None)
    assert not differs(torch.sum, lambda t: t + 1e-3) and differs(torch.sum, lambda t: t + 0.2)
    assert differs(torch.sin, lambda t: t * 0) and differs(torch.neg, lambda t: t * (1 + 1e-5))
    numbers = torch.tensor([3, 7], dtype=torch.uint8)
    assert not differs(lambda t: t.exp().sum() - 1116.7, lambda t: t + 5e-4, numbers)
    assert differs(lambda t: t.exp().sum() - 1116.7, lambda t: t + 0.1, numbers)
    assert differs(torch.sum, lambda t: t * float("nan")) and differs(torch.sum, lambda t: t[None].expand(2).clone())
    spectrum = torch.randn(64)
    assert not differs(torch.fft.fft, lambda t: t * (1 + 1e-7), spectrum)
    assert differs(torch.fft.fft, lambda t: t + 1e-3 * (torch.arange(64) == 5), spectrum)


def test_a_break_without_a_reason_fails():
    """The report itself: unexpected breaks, crashes, differences and too few whole captures are failures."""
    def status(rows, at_least=0.0, known=()):
        return op_sweep.bad_rows(rows, set(known)), op_sweep.share_whole(rows) >= at_least

    whole = {"dtype": "float32", "op": "add", "sample": 0, "status": "whole"}
    broken = {"dtype": "float32", "op": "sub", "sample": 0, "status": "break", "why": "unknown_callable"}
    assert status([whole, broken]) == ([broken], True)
    assert status([whole, broken], known=[("sub", "unknown_callable")]) == ([], True)
    assert status([whole, broken], known=[("*", "unknown_callable")]) == ([broken], True)
    assert status([whole, broken], at_least=90.0, known=[("sub", "unknown_callable")]) == ([], False)
    both = {**broken, "why": "unknown_callable,unsupported_op"}
    assert status([both], known=[("sub", "unknown_callable")]) == ([both], True)
    late = {**whole, "status": "late"}
    assert status([whole, late]) == ([late], True)
    assert status([whole, late], known=[("add", "late")]) == ([], True)
    for bad in ("crash", "differs", "fallback", "not traced", "recompiles"):
        row = {**whole, "status": bad}
        assert status([row])[0] == [row]
    assert op_sweep.share_whole([whole, {**whole, "status": "raises"}]) == 100.0
    assert op_sweep.share_whole([{**whole, "status": "raises"}]) == 0.0


def test_whole_is_what_the_totals_say():
    """A break, a failure, a recompile or a second call that missed never counts as whole."""
    totals = {"graphs": 1, "hits": 1, "plain_hits": 0, "graph_breaks": 0, "fallbacks": 0, "recompiles": 0,
              "traced_instructions": 5, "break_reasons": {}, "fallback_reasons": {}}

    def verdict(outcome="returned", **changed):
        return op_sweep.worker.verdict({**totals, **changed}, outcome)["status"]

    assert verdict() == "whole" and verdict(graphs=0, hits=0, plain_hits=1) == "whole"
    assert verdict(hits=0) == "not traced" and verdict(graphs=0, traced_instructions=0) == "not traced"
    assert verdict(graph_breaks=1, break_reasons={"unsupported_op": 1}) == "break"
    assert verdict(fallbacks=1) == "fallback" and verdict(recompiles=1) == "recompiles"
    assert verdict("raised", fallbacks=1, fallback_reasons={"run_failed": 1}) == "late" and verdict("raised",
        break_reasons={"exception_raised": 1}) == "raises"
    assert verdict("raised", fallbacks=1, fallback_reasons={"internal_error": 1}) == "fallback"
    assert verdict("raised", graphs=0, fallbacks=1, fallback_reasons={"run_failed": 1}) == "fallback"
    assert verdict("raised", break_reasons={"unsupported_op": 1}) == "break"


def test_a_difference_is_told():
    import torch
    a = torch.arange(6.0)
    returned = ("returned", a, [], torch.zeros(1))
    for other in (a + 1, a.double(), a[:3], a.view(2, 3)):
        assert op_sweep.worker.difference(("returned", other, [], torch.zeros(1)), returned, lambda *noise: None, False)
    assert op_sweep.worker.difference(("returned", a, [], torch.ones(1)), returned, lambda *noise: None, False)
    assert op_sweep.worker.difference(("raised", "ValueError: b", None, None),
                                      ("raised", "ValueError: a", None, None), lambda *noise: None, False)
    assert op_sweep.worker.difference(("returned", a.clone(), [], torch.zeros(1)), returned, lambda *noise: None,
                                      False) is None


def test_forms_keep_what_they_promise():
    import torch
    t = torch.arange(24.0).view(2, 3, 4)
    forms = {name: form(t) for name, form in op_sweep.worker.FORMS.items() if form}
    assert all(torch.equal(forms[n], t) and forms[n].stride() != t.stride() for n in ("transposed", "stepped"))
    assert forms["broadcast"].shape == t.shape and 0 in forms["broadcast"].stride()
    assert forms["empty"].shape == (0, 3, 4) and forms["scalar"].shape == () and forms["one"].shape == (1, 1, 1)
    copy = op_sweep.worker.copier()
    a, b = copy(t[1]), copy(t[:, 0])
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() != t.untyped_storage().data_ptr() \
        and a.storage_offset() == 12
