"""docs/from_torch_compile.md: every setting that its tables name is one of torch's. test_torch_compiler.py looks for
names that the tables lack."""
import re
import sys

import pytest

from test_torch_compiler import PAGE, page_rows

TABLE = r"^\| setting of `([\w.]+)`.*\n\|.*\n((?:\|.*\n)+)"


@pytest.mark.nothing_captured
def test_every_setting_on_the_page_is_torchs():
    import torch._dynamo.config
    import torch._inductor.config  # noqa: F401
    named = [row for row in page_rows() if re.match(r"torch\.[\w.]*config\.", row)]
    for module, table in re.findall(TABLE, PAGE.read_text(), re.M):
        named += [f"{module}.{name}" for cell in re.findall(r"^\|(.*?)\|", table, re.M)
                  for name in re.findall(r"`([\w.]+)`", cell)]
    assert len(named) > 50
    for name in named:
        module, _, setting = name.partition(".config.")
        assert setting in sys.modules[f"{module}.config"]._config, name
