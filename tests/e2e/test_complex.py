"""Complex tensors that are made inside a compiled function: library ops take them; what a program sees of them while it
is traced equals eager's."""
import pytest
import torch
import torch.nn.functional as F

from check import backend, check, fresh  # noqa: F401

REAL = {"abs": torch.abs, "angle": torch.angle, "norm": torch.norm, "norm of rows": lambda z: z.norm(dim=-1),
        "vector norm": lambda z: torch.linalg.vector_norm(z, 3, -1), "matrix norm": torch.linalg.matrix_norm,
        "l1_loss": lambda z: F.l1_loss(z, z * 2), "distance": lambda z: F.pairwise_distance(z, z + 1),
        "real": lambda z: z.real * 2, "var": lambda z: z.var(-1)}


@pytest.mark.parametrize("name", REAL)
def test_real_results(name, backend):
    def made_of_parts(x):
        y = REAL[name](torch.view_as_complex(x))
        return (y * 2 if y.is_floating_point() else y), y.dtype, y.element_size()

    check(made_of_parts, torch.randn(6, 5, 2), backends=[backend])


@pytest.mark.parametrize("name", ["abs", "angle"])
def test_behind_ops_that_choose_a_memory_format(name):
    x = torch.randn(1, 8, 8, 8)
    for x in x, x.to(memory_format=torch.channels_last):
        for pooled in lambda x: F.max_pool2d(x, 2), lambda x: F.conv2d(x, torch.full((8, 8, 3, 3), 0.1)):
            check(lambda x: REAL[name](torch.fft.rfft(pooled(x)) + 1) + 1, x, backends=["framejit"])
