"""torch.histogram and torch.histogramdd: PyTorch's kernels do the counting, in one graph with the ops around them."""
import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401

pytestmark = pytest.mark.cpu_only("torch has histograms of CPU tensors alone")
EDGES = torch.tensor([0.0, 0.1, 0.5, 2.0])
POINTS = torch.rand(40, 2)

COUNTED = {
    "bins": lambda x: torch.histogram(x * 2, 7),
    "a range": lambda x: torch.histogram(x, 5, range=(0.25, 0.75)),
    "densities": lambda x: torch.histogram(x, 5, density=True),
    "weights": lambda x: torch.histogram(x, 5, weight=x + 1),
    "edges": lambda x: torch.histogram(x, EDGES),
    "edges and weights": lambda x: torch.histogram(x, EDGES, weight=x * x, density=True),
    "several dimensions": lambda x: torch.histogram(x.view(2, 20).t(), 4),
    "used": lambda x: torch.histogram(x, 4).hist / 3 + 1,
    "float64": lambda x: torch.histogram(x.double(), 4),
    "points": lambda x: torch.histogramdd(x.view(20, 2), [3, 4]),
    "points, one number": lambda x: torch.histogramdd(x.view(20, 2), 3, range=[0.0, 1.0, 0.2, 0.8]),
    "points, weights": lambda x: torch.histogramdd(x.view(20, 2), [3, 4], weight=x[:20], density=True),
    "points, edges": lambda x: torch.histogramdd(x.view(20, 2), [EDGES, EDGES[1:]]),
    "points in rows": lambda x: torch.histogramdd(x.view(2, 10, 2), [3, 4]),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts_and_edges(name):
    check(COUNTED[name], torch.rand(40), breaks=0, compiles=1, fallbacks=0)


REFUSED = {
    "no bins": lambda x: torch.histogram(x, 0),
    "edges of another dtype": lambda x: torch.histogram(x, EDGES.double()),
    "no edges": lambda x: torch.histogram(x, EDGES[:0]),
    "weights of another size": lambda x: torch.histogram(x, 3, weight=x[1:]),
    "halves": lambda x: torch.histogram(x.half(), 3),
    "bins of other dimensions": lambda x: torch.histogramdd(x.view(20, 2), [3, 4, 5]),
    "edges of other dimensions": lambda x: torch.histogramdd(x.view(20, 2), [EDGES]),
}


@pytest.mark.nothing_captured
@pytest.mark.parametrize("name", REFUSED)
def test_errors(name):
    check(REFUSED[name], torch.rand(40), breaks=1, fallbacks=0)


@pytest.mark.fallbacks(run_failed=1)
def test_errors_that_data_shows():
    """The kernel finds them; plain Python raises them."""
    def f(x):
        return torch.histogram(x, 3).hist + 1
    compiled = framejit.compile(f)
    assert torch.equal(compiled(POINTS), f(POINTS)) and framejit.stats()["graphs"] == 1
    with pytest.raises(RuntimeError) as want:
        f(POINTS / 0)
    with pytest.raises(RuntimeError) as got:
        compiled(POINTS / 0)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def test_edges_and_points_that_vary():
    def f(x, edges, weight):
        counts = torch.histogram(x, edges, weight=weight)
        return counts.hist * 2, counts.bin_edges, torch.histogramdd(x.view(-1, 2), [edges, edges[1:]]).hist + 1
    compiled = framejit.compile(f, dynamic=True)
    for points, edges in ((6, 4), (10, 7), (30, 5)):
        args = torch.rand(points), torch.linspace(0, 1, edges), torch.rand(points)
        assert all(map(torch.equal, compiled(*args)[::2], f(*args)[::2]))
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["graph_breaks"] == 0


def test_sizes_that_vary():
    def f(x):
        return torch.histogram(x, 4).hist + x.sum()
    compiled = framejit.compile(f, dynamic=True)
    for size in (5, 9, 30):
        x = torch.rand(size)
        assert torch.equal(compiled(x), f(x))
    assert framejit.stats()["graphs"] == 1 and framejit.stats()["graph_breaks"] == 0
