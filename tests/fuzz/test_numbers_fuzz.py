"""The short, seeded run of the fuzzer of numbers that differ between calls."""
import pytest

import framejit
import numbers_fuzz


@pytest.mark.parametrize("backend, seeds", [("eager", range(120)), ("framejit", range(120, 180))])
def test_programs(backend, seeds):
    failures, hits = numbers_fuzz.run(seeds.start, len(seeds), backend)
    assert not failures, "\n".join(failures)
    assert hits >= 2 * len(seeds)


def test_planted_stale_numbers_are_found(monkeypatch):
    """As if a guard forgot the float: the first result comes back for every call with the same int."""
    real = framejit.compile

    def forgetful(f, backend):
        compiled, kept = real(f, backend=backend), {}

        def call(x, i, g):
            if i not in kept:
                kept[i] = compiled(x, i, g)
            return *kept[i][:2], compiled(x, i, g)[2]
        return call
    monkeypatch.setattr(framejit, "compile", forgetful)
    assert numbers_fuzz.run(0, 40, "eager")[0]
