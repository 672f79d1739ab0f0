"""The short, seeded run of the frame fuzzer."""
import pytest

import frames_fuzz


@pytest.mark.parametrize("backend, seeds", [("eager", range(60)), ("framejit", range(60, 100))])
def test_programs(backend, seeds):
    failures, captured = frames_fuzz.fuzz(seeds.start, len(seeds), backend)
    assert not failures, "\n".join(failures)
    assert captured >= 0.9
