"""The count of checks with symbols: a count that falls is noticed, and only a break counts as a break."""
import pytest
import torch

import symbolic_checks
import test_shape_rules
from recording import Recording
from symbolic_checks import refusal, worse


def test_a_fall_is_seen():
    known = {"checked": 5, "facts": 1}
    assert not worse(known, known) and not worse(known, {"checked": 6})
    assert worse(known, {"checked": 4, "facts": 1}) == ["checked: 4 in place of 5"]
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


def test_an_error_that_speaks_of_a_break_is_no_break():
    assert refusal(RuntimeError("break unsupported_op: x"), "breaks") == "breaks unsupported_op"
    for text in ("line break", "cannot break up a tensor", "break", "breaks unsupported_op: x"):
        assert refusal(RuntimeError(text), "breaks") is None

    def fn(x):
        if type(x.size(0)) is not int:
            raise ValueError("this would break the tensor")
        return x + 1
    with pytest.raises(AssertionError, match="symbolic recording failed"):
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
