"""docs/from_torch_compile.md: its tables name every function, argument and setting that torch and framejit have."""
import inspect
import re
import sys
from pathlib import Path

import pytest
import torch

import framejit
from framejit import options, torch_settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/from_torch_compile.md"
STATES = ("same", "other", "not yet", "no effect")


def page_rows():
    """First cell without quotes and call brackets -> state, for every table of the page."""
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            for name in re.findall(r"`([^`]+)`", cells[0]):
                rows[name] = cells[1]
    return rows


@pytest.mark.nothing_captured
class TestThePage:
    def test_states(self):
        rows = page_rows()
        assert len(rows) > 60
        assert {name: state for name, state in rows.items() if state not in STATES} == {}

    def test_every_public_name_of_torch_compiler_has_a_row(self):
        public = set(torch.compiler.__all__) | {name for name, value in vars(torch.compiler).items()
                                                if inspect.isfunction(value) and value.__module__ == "torch.compiler"
                                                and not name.startswith("_")}
        assert {name for name in public if f"torch.compiler.{name}" not in page_rows()} == set()

    def test_every_argument_of_torch_compile_has_a_row(self):
        arguments = set(inspect.signature(torch.compile).parameters)
        assert {name for name in arguments if name not in page_rows()} == set()
        ours = set(inspect.signature(framejit.compile).parameters) - {"unknown"}
        assert {name for name in arguments if page_rows()[name] in ("same", "other")} == ours

    def test_every_setting_of_torch_compiler_is_named(self):
        settings, rows = set(torch.compiler.config._config), page_rows()
        named = set(re.findall(r"`(\w+)`", PAGE.read_text().split("Under `torch.compiler.config`")[1]))
        other_names = {name for name in settings if f"torch._dynamo.config.{name}" in rows}
        assert len(settings) > 20 and len(other_names) > 4
        assert settings - named - {row.rpartition(".")[2] for row in rows} == set() and other_names <= named

    def test_every_setting_on_the_page_is_torchs(self):
        import torch._dynamo.config
        import torch._inductor.config
        named = []
        for module, table in re.findall(r"^\| setting of `([\w.]+)`.*\n\|.*\n((?:\|.*\n)+)", PAGE.read_text(), re.M):
            named += [f"{module}.{name}" for cell in re.findall(r"^\|(.*?)\|", table, re.M)
                      for name in re.findall(r"`([\w.]+)`", cell)]
        named += [row for row in page_rows() if re.match(r"torch\.[\w.]*config\.", row)]
        assert len(named) > 50
        for name in named:
            module, _, setting = name.partition(".config.")
            assert setting in sys.modules[f"{module}.config"]._config, name

    def test_every_mode_stance_setting_and_mark_has_a_row(self):
        import torch._dynamo
        stances = re.findall(r'^STANCE\("(\w+)",', (ROOT / "frame_hook/resume/stance.def").read_text(), re.M)
        marks = [f"torch._dynamo.{name}" for name in dir(torch._dynamo) if re.match(r"(maybe_)?mark_", name)]
        settings = [f"{module}.{name}" for module, name, _, _ in torch_settings.SETTINGS]
        own = [name for name in framejit.list_backends() if name != "planted"]  # which tests add: _framejit_planted
        backends = [f'backend="{name}"' for name in (*options.ALIASES, *own)]
        expected = [*(f'mode="{mode}"' for mode in options.MODES), *(f'set_stance("{s}")' for s in stances), *marks,
                    *settings, *backends]
        assert {name for name in expected if name not in page_rows()} == set()
