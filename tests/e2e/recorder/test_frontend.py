"""The tensor frontend, through all of framejit: what compiled functions return, write and refuse."""
import pytest
import torch

framejit = pytest.importorskip("framejit")


@pytest.fixture(autouse=True)
def fresh():
    framejit.reset()
    with torch.no_grad():
        yield


def test_user_backend():
    seen = {}

    def backend(graph, examples):
        seen["text"], seen["ops"], seen["examples"] = str(graph), graph.ops, examples
        return graph

    fn = framejit.compile(lambda x, y: (x @ y).relu() + 1, backend=backend)
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(2):
        assert torch.equal(fn(x, y), (x @ y).relu() + 1)
    assert seen["ops"] == ["mm", "relu", "add.Tensor"] and "mm" in seen["text"] and len(seen["examples"]) == 2


def test_written_and_returned_inputs():
    fn = framejit.compile(lambda x: (x.add_(1), x.view(-1)), backend="eager")
    for _ in range(2):
        x = torch.zeros(2, 3)
        same, view = fn(x)
        assert same is x and view._base is x and x.sum() == 6 and x._version == 1
        view[0] = 9
        assert x[0, 0] == 9


@pytest.mark.parametrize("fn, graphs, breaks", [
    (lambda x: x * 2 if x.sum() > 0 else x, 2, 1), (lambda x: x.tolist()[0] * 2, 0, 1),
    (lambda x: x * x.sum().item(), 2, 1), (lambda x: x[x > 0], 1, 1)])
def test_data_dependence_breaks(fn, graphs, breaks):
    compiled, x = framejit.compile(fn, backend="eager"), torch.ones(4)
    for _ in range(2):
        got, want = compiled(x), fn(x)
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
    stats = framejit.stats()
    assert (stats["graphs"], stats["graph_breaks"]) == (graphs, breaks)


def test_new_tensor_and_symbolic_scalars():
    fn = lambda x: x.new_tensor([1.0, 2.0]).sum() + x.sum(0) / x.size(0)
    compiled = framejit.compile(fn, backend="eager")
    for n in (3, 5, 8):
        x = torch.rand(n, 4)
        assert torch.equal(compiled(x), fn(x))


def test_gradients_are_left_to_torch():
    w = torch.randn(3, requires_grad=True)
    with torch.enable_grad():
        y = framejit.compile(lambda x: (x * w).sum(), backend="eager")(torch.ones(3))
        y.backward()
    assert torch.equal(w.grad, torch.ones(3))
