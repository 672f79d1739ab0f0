"""The short, seeded run of the fuzzer of weights that are written between calls."""
import pytest

import weights_fuzz
from test_derived_weights import watch_is_refused

pytestmark = pytest.mark.skipif(watch_is_refused(),
                                reason="not tested: this system has no write watch, so nothing is derived")


def test_programs():
    failures, derived = weights_fuzz.run(0, 40)
    assert not failures, "\n\n".join(failures)
    assert derived > 100, "few programs derived anything"


def test_planted_trust_is_found():
    """As if nobody asked the watch: writes without a new version go unnoticed."""
    failures, _ = weights_fuzz.run(0, 15, trusted=True)
    assert len(failures) >= 5


@pytest.mark.parametrize("write", ["numpy", ".data", "the whole tensor", "a system call", "a thread"])
def test_planted_blindness_to_one_write_is_found(monkeypatch, write):
    monkeypatch.setattr(weights_fuzz, "WRITES", {write: weights_fuzz.WRITES[write]})
    assert not weights_fuzz.run(100, 10)[0]
    assert weights_fuzz.run(100, 30, trusted=True)[0], "this kind of write is never seen by the fuzzer"
