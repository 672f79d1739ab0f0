"""For every training test: nothing was compiled before, and gradients are on."""
import pytest
import torch

import framejit
from steps import LANDED


def pytest_collection_modifyitems(items):
    if not LANDED:  # steps.py
        for item in items:
            if "training/" in item.nodeid:
                item.add_marker(pytest.mark.nothing_captured)


@pytest.fixture(autouse=True)
def fresh_with_gradients():
    framejit.reset()
    with torch.enable_grad():
        yield
