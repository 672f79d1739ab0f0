"""The counts of the tests of shape rules: a count that falls is noticed, and only a break counts as a break."""
import pytest
import torch

import symbolic_checks
import test_library_shapes
import test_shape_rules
from recording import Recording
from symbolic_checks import refusal, worse

CASES = {"test_unary": test_shape_rules.UNARY, "test_binary": test_shape_rules.BINARY,
         "test_reductions": test_shape_rules.REDUCTIONS, "test_shapes": test_shape_rules.VIEWS,
         "test_in_place": test_shape_rules.INPLACE, "test_layouts": test_shape_rules.BY_LAYOUT,
         "test_matrices": test_library_shapes.MATRICES, "test_layouts_of_others": test_library_shapes.POINTWISE}
# Their results are their arguments, whose shapes no rule makes.
NO_RULE = {"positive", "add_", "mul_", "div_", "copy_", "relu_", "zero_", "fill_", "clamp_", "iadd", "sub_",
           "index_put_", "exp_", "sigmoid_", "eq_", "lerp_"}


def test_a_fall_is_seen():
    known = {"checked": 5, "facts": 1}
    assert not worse(known, known) and not worse(known, {"checked": 6})
    assert worse(known, {"checked": 4, "facts": 1}) == ["checked: 4 in place of 5"]
    assert worse({"ruled": 3, "facts": 1}, {"facts": 1}) == ["ruled: 0 in place of 3"]
    assert worse(known, {"checked": 5, "facts": 2, "breaks unsupported_op": 1}) == [
        "breaks unsupported_op: 1 in place of 0", "facts: 2 in place of 1"]


def test_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(symbolic_checks, "TABLE", tmp_path / "table.txt")
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    with pytest.raises(AssertionError, match="make golden-update"):
        symbolic_checks.compare("a", {"checked": 2})
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    symbolic_checks.compare("a", {"checked": 2, "facts": 1})
    with pytest.raises(AssertionError, match="fewer checks"):
        symbolic_checks.compare("a", {"checked": 1})
    monkeypatch.delenv("UPDATE_GOLDEN")
    symbolic_checks.compare("a", {"checked": 2, "facts": 1})
    for now in ({"checked": 2, "facts": 2}, {}):
        with pytest.raises(pytest.fail.Exception):
            symbolic_checks.compare("a", now)


def test_each_case_uses_a_rule():
    table = symbolic_checks.read()
    without = {name for test, names in CASES.items() for name in names
               if "ruled" not in table.get(f"{test}[{name}]", {})}
    assert without == NO_RULE


def test_a_rule_that_is_not_used_is_seen():
    """A recording that no rule made lowers the count of the test, and with it what the table says."""
    symbolic_checks.seen.clear()
    assert test_shape_rules.check_call(lambda x: x.exp(), [torch.ones(3, 4)], "exp")
    assert symbolic_checks.seen == {"ruled": 1, "checked": 1}
    symbolic_checks.seen.clear()
    assert not test_shape_rules.check_call(lambda x: x.exp_(), [torch.ones(3, 4)], "exp_")
    assert not symbolic_checks.seen


def test_an_error_that_speaks_of_a_break_is_no_break():
    assert refusal(RuntimeError("break unsupported_op: x"), "breaks") == "breaks unsupported_op"
    for text in ("line break", "cannot break up a tensor", "break", "breaks unsupported_op: x",
                 "framejit: a symbolic size has no SymInt"):
        assert refusal(RuntimeError(text), "breaks") is None

    def fn(x):
        if type(x.size(0)) is not int:
            raise ValueError("this would break the tensor")
        return x + 1
    with pytest.raises(AssertionError, match="symbolic recording failed"):
        test_shape_rules.check_call(fn, [torch.ones(3, 4)], "fn")


def test_an_error_of_ours_where_eager_raises_too_is_seen():
    """The recording must raise what eager raises, not just anything."""
    calls = []

    def fn(x):
        calls.append(x)
        raise ValueError(f"call {len(calls)}")
    with pytest.raises(AssertionError, match="in place of ValueError"):
        test_shape_rules.check_call(fn, [torch.ones(3, 4)], "fn")


@pytest.mark.parametrize("of, becomes, strides", [
    (torch.ones(2, 3), (4, 5), (5, 1)), (torch.ones(3, 2).T, (4, 5), (1, 4)), (torch.ones(2, 1), (4, 1), (1, 1)),
    (torch.ones(3, 1, 4).expand(3, 5, 4), (5, 7, 6), (6, 0, 1)), (torch.ones(4, 6)[:, :3], (6, 5), (6, 1)),
    (torch.ones(4, 6)[:, :5], (6, 6), (6, 1)),
], ids=str)
def test_larger_tensors(of, becomes, strides):
    large = test_shape_rules.grown(of)
    assert (large.shape, large.stride()) == (becomes, strides)
    assert test_shape_rules.grown(torch.ones(())) is None and test_shape_rules.grown(torch.ones(2, 8), [2, 8]) is None


def test_a_wrong_shape_at_other_sizes_is_seen(monkeypatch):
    """A rule that is right at the recorded sizes alone."""
    x = torch.ones(3, 4)
    real = Recording.replay

    def replay(self, inputs, functional=False):
        outputs, wrong, broken = real(self, inputs, functional)
        return outputs, wrong or ["planted"] * (inputs[0].size(0) != 3), broken
    monkeypatch.setattr(Recording, "replay", replay)
    with pytest.raises(AssertionError, match="with symbols"):
        test_shape_rules.check_call(lambda x: x.exp(), [x], "exp")
