"""How much of the C stack a segment with very many guards takes."""
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import threading, torch, framejit
    values = [float(i) for i in range(60000)]
    @framejit.compile
    def f(x, values):
        for k in range(0, 60000, 7):
            x_k = values[k]
        return x * len(values) + x_k
    with torch.no_grad():
        f(torch.ones(2), values)
        deeper = []
        def call():
            with torch.no_grad():
                deeper.append(f(torch.ones(2), values))
        threading.stack_size(96 << 10)  # registers of all guards would be more
        thread = threading.Thread(target=call)
        thread.start(), thread.join()
    assert torch.equal(deeper[0], torch.ones(2) * 60000 + values[59997]), deeper
    print(framejit.stats()["graphs"], framejit.stats()["hits"], framejit.stats()["fallbacks"])
"""


@pytest.mark.nothing_captured
def test_registers_of_many_guards_do_not_lie_on_a_small_stack():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert done.stdout == "1 1 0\n", done.stdout
