"""Attributes of tensors that C code of torch keeps (frame_hook/trace/torch/tensor_attributes.def)."""
import inspect
import pathlib
import re
import types

import pytest
import torch

import framejit
from check import check, fresh  # noqa: F401

TABLE = pathlib.Path(__file__).parents[2] / "frame_hook/trace/torch/tensor_attributes.def"
NAMES = re.findall(r"^TENSOR_ATTRIBUTE\((\w+)", TABLE.read_text(), re.M)


@pytest.mark.nothing_captured
def test_each_row_names_a_descriptor_of_torch():
    """A row that named something else would do nothing."""
    assert len(NAMES) > 10
    for name in NAMES:
        descriptor = inspect.getattr_static(torch.Tensor, name)
        assert isinstance(descriptor, types.GetSetDescriptorType)
        assert framejit._framejit.is_original(descriptor, "torch", f"Tensor.{name}")
        assert not framejit._framejit.is_original(property(lambda self: 0), "torch", f"Tensor.{name}")


def plain(v):
    return v if v is None or isinstance(v, (bool, str, int, torch.Tensor)) else type(v).__name__


@pytest.mark.parametrize("name, of_input, of_result", [
    ("__dict__", 1, 1), ("_cdata", 1, 1), ("_version", 1, 1), ("requires_grad", 0, 0), ("is_leaf", 0, 0),
    ("name", 0, 0), ("grad_fn", 0, 1), ("retains_grad", 0, 1), ("_backward_hooks", 0, 1), ("grad", 0, 1),
    ("_base", 0, 0), ("data", 0, 0), ("output_nr", 0, 0), ("shape", 0, 0), ("__class__", 0, 0)])
def test_reads(name, of_input, of_result):
    """A break is where nothing that the trace knows answers."""
    shown = (lambda v: None) if name == "_cdata" else plain

    def input_read(x):
        y = x * 2
        return shown(getattr(x, name)), y

    def result_read(x):
        y = x * 2
        return shown(getattr(y, name)), y
    check(input_read, torch.ones(3), breaks=of_input, compiles=1)
    check(result_read, torch.ones(3), breaks=of_result, compiles=1)


def test_reads_of_what_the_trace_wrote():
    def f(x):
        x.add_(1)
        return x * 2, x.requires_grad, x.is_leaf, x.name, x.grad_fn, x._base, x.retains_grad
    check(f, torch.ones(3))


def test_an_answer_that_changes_is_another_entry():
    def f(x):
        return x * 2 if x.grad is None else x.grad + x * x.requires_grad
    compiled = framejit.compile(f)
    x = torch.ones(3)
    for grad in (None, torch.ones(3), torch.zeros(3), None):
        x.grad = grad
        assert torch.equal(compiled(x), f(x))
    assert framejit.stats()["graphs"] == 2


@pytest.mark.parametrize("write, graphs, breaks", [
    (lambda x, y: setattr(x, "grad", None), 1, 0), (lambda x, y: setattr(x, "grad", y), 1, 0),
    (lambda x, y: delattr(x, "grad"), 1, 0), (lambda x, y: setattr(y, "grad", None), 2, 1),
    (lambda x, y: setattr(x, "data", x), 1, 0), (lambda x, y: setattr(x, "data", y), 2, 1),
    (lambda x, y: setattr(x, "requires_grad", False), 1, 0), (lambda x, y: setattr(y, "requires_grad", False), 1, 0),
    (lambda x, y: setattr(x, "name", "x"), 1, 1), (lambda x, y: setattr(x, "mine", 3), 2, 1)])
def test_writes(write, graphs, breaks):
    def f(x):
        y = x * 2
        try:
            write(x, y)
        except Exception as e:
            return y, type(e), str(e)
        return y, x + 1, x.grad
    check(f, torch.ones(3), breaks=breaks, compiles=graphs)


class Named(torch.nn.Parameter):
    @property
    def grad(self):
        return "mine"

    @property
    def _version(self):
        return 7


@pytest.mark.nothing_captured
def test_a_class_of_the_program_has_its_own_attributes():
    def f(x):
        y = x * 2
        return y, x.grad, x._version
    check(f, Named(torch.ones(3)), breaks=1, compiles=0)
