"""Rounds of the fuzzers: the report, and how a program that fails becomes smaller."""
import rounds


def test_failures_are_reported_with_their_seed(capsys):
    failures, total = rounds.run(3, 4, lambda seed: (f"{seed} is odd" if seed % 2 else None, 1), "whole", "eager")
    assert failures == ["seed 3, backend eager: 3 is odd", "seed 5, backend eager: 5 is odd"] and total == 4
    assert capsys.readouterr().out.splitlines() == [*failures, "4 programs, 4 whole, 2 failures, backend eager"]


def test_what_does_not_matter_is_dropped():
    """Of lines that need each other, the later one goes first."""
    lines = ["a", "b needs a", "c", "d needs c"]

    def fails():
        return "c" in lines and ("b needs a" not in lines or "a" in lines)
    rounds.shrink(lambda: rounds.drops(lines), fails)
    assert lines == ["c"]
