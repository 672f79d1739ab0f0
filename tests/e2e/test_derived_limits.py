"""How much memory derived values may take, what the log says if nothing can be derived, and that pages tell the
truth."""
import os
import re
from pathlib import Path

import pytest
import torch

import framejit
import levels
import programs
from framejit import _framejit
from check import fresh  # noqa: F401
from test_derived_weights import CALLS, check, derived, skip_without_packed_bfloat16, warm, watch_is_refused

pytestmark = pytest.mark.skipif(watch_is_refused(),
                                reason="not tested: this system has no write watch, so nothing is derived")
ROOT = Path(__file__).parents[2]

SCALED = """
    import torch, framejit
    from framejit import _framejit
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(512, 512))  # one MiB, and so is what is derived
            self.scale = torch.nn.Parameter(torch.rand(512) + 0.5)
        def forward(self, x):
            return x @ (self.weight * self.scale)
    models = [Scaled() for _ in range(4)]
    calls, x = [framejit.compile(m) for m in models], torch.randn(2, 512)
    def use(k):
        with torch.no_grad():
            for _ in range(6):
                torch.testing.assert_close(calls[k](x), models[k](x))
    def totals():
        stats = framejit.stats()
        return stats["derived_values"], stats["derived_bytes"] >> 20, stats["derived_made"], stats["derived_again"]
"""


def run(program, **environment):
    from textwrap import dedent
    return programs.run(dedent(SCALED) + dedent(program), env={**os.environ, "FRAMEJIT_LOGS": "", **environment})


@pytest.mark.nothing_captured
def test_what_was_idle_for_longest_gives_way_to_the_limit():
    done = run("""
        for k in range(3):
            use(k)
        print(*totals())
        use(3)                     # 0 is the oldest
        print(*totals())
        use(1), use(2), use(3)     # they are all there
        print(*totals())
        use(0), use(0)
        print(*totals())
    """, FRAMEJIT_DERIVED_MB="3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3 3 3 0", "3 3 4 0", "3 3 4 0", "3 3 5 1"], done.stdout


@pytest.mark.nothing_captured
def test_a_limit_that_one_value_exceeds_leaves_it_out():
    done = run("""
        _framejit.replace_costs("derived_bytes=1")
        big = torch.nn.Parameter(torch.randn(1024, 1024))
        use(0)
        wide = Scaled()
        wide.weight, wide.scale = big, torch.nn.Parameter(torch.ones(1024))
        compiled = framejit.compile(wide)
        with torch.no_grad():
            for _ in range(8):
                compiled(torch.randn(2, 1024))
        print(*totals())
    """, FRAMEJIT_DERIVED_MB="3")
    assert done.returncode == 0 and done.stdout == "1 1 1 0\n", (done.stdout, done.stderr)  # and drops nothing


def test_bytes_are_what_the_system_has_given():
    """A packed weight takes more than its elements: the limit includes that."""
    skip_without_packed_bfloat16()
    layer, x = torch.nn.Linear(512, 520).bfloat16(), torch.randn(64, 512).bfloat16()
    warm(framejit.compile(layer), x)
    assert derived() == 1 and framejit.stats()["derived_bytes"] >= layer.weight.nbytes


def test_again_counts_what_was_made_anew():
    _framejit.replace_costs("derived_bytes=1")
    try:
        conv = torch.nn.Sequential(torch.nn.Conv2d(8, 32, 3, bias=False), torch.nn.BatchNorm2d(32)).eval()
        compiled, x = framejit.compile(conv), torch.randn(1, 8, 9, 9)
        warm(compiled, x)
        held = derived()
        assert held > 0 and framejit.stats()["derived_again"] == 0
        conv[0].weight.data.mul_(2)
        for _ in range(3 * CALLS):
            check(conv, compiled, x)
        stats = framejit.stats()
        assert stats["derived_again"] > 0 and stats["derived_made"] == held + stats["derived_again"], stats
    finally:
        _framejit.replace_costs("")


def test_copies_of_mapped_files_are_counted(tmp_path):
    torch.randn(512, 512).numpy().tofile(tmp_path / "weight")
    before = framejit.stats()["derived_private_bytes"]
    layer = torch.nn.Linear(512, 512, bias=False)
    layer.weight = torch.nn.Parameter(
        torch.from_file(str(tmp_path / "weight"), shared=False, size=512 * 512).view(512, 512))
    x = torch.randn(4, 512)

    @framejit.compile
    def f(layer, x):
        return x @ (layer.weight * 2)
    with torch.no_grad():
        for _ in range(CALLS):
            torch.testing.assert_close(f(layer, x), x @ (layer.weight * 2))
    assert derived() == 1
    grown = framejit.stats()["derived_private_bytes"] - before
    assert 0 < grown <= 512 * 512 * 4 and grown > 511 * 512 * 4, grown


SHARED = """
        for m in models[:3]:
            m.share_memory()
        use(0), use(1), use(2)
        framejit.reset()
        use(0)
        print(*totals())
"""


@pytest.mark.slow
@pytest.mark.nothing_captured
def test_no_watch_is_said_once_without_a_log():
    done = run(SHARED)
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and done.stdout == "0 0 0 0\n", done.stderr
    texts = {line.split("warnings] ")[1] for line in lines}
    assert len(lines) == 2 and len(texts) == 1, "once, and once more after reset()"
    assert "warnings] " in lines[0] and 'options={"freezing": True}' in lines[0] and "it is shared" in lines[0], lines
    assert run(SHARED, FRAMEJIT_LOGS="-warnings").stderr == ""
    assert run("calls[0] = framejit.compile(models[0].share_memory(), options={'freezing': True})\nuse(0)\n"
               "print(*totals())").stdout == "1 1 1 0\n"


@pytest.mark.slow
@pytest.mark.nothing_captured
@pytest.mark.parametrize("level", levels.FLAGS)
def test_the_example_of_the_page_derives_something_on_every_class_of_machines(level):
    levels.need(level)
    page = (ROOT / "docs/derived_weights.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, re.S)[1]
    for costs in ("", "packed_rows=0", "packed_rows=4"):  # of Intel, and of others
        done = programs.run(f"from framejit import _framejit\n_framejit.replace_costs({costs!r})\n{example}",
                            env={**os.environ, "FRAMEJIT_CPU_FEATURES": level})
        assert done.returncode == 0, done.stderr
        assert int(re.fullmatch(r"(\d+) derived values\n", done.stdout)[1]) > 0, (level, costs, done.stdout)
