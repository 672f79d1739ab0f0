"""For every training test: nothing was compiled before, and gradients are on."""
import pytest
import torch

import framejit


@pytest.fixture(autouse=True)
def fresh_with_gradients():
    framejit.reset()
    with torch.enable_grad():
        yield
