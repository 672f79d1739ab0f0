"""The short, seeded run of the frame fuzzer."""
import pytest

from frames_fuzz import Program, run


@pytest.mark.parametrize("seed", range(60))
def test_program(seed):
    source = Program(seed).source()
    try:
        compile(source, "p", "exec")
    except SyntaxError:
        return
    why = run(source, seed, "eager")
    assert why is None, why + "\n" + source
