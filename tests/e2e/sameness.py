"""Whether two values are the same to a user who can only look at them: same(got, eager)."""
import collections
import functools
import math
import types

import numpy as np
import torch

from bounds import assert_close, part


def chain(error, link):
    """The classes of the errors in the chain of its causes, or of its contexts."""
    classes = []
    while error is not None and len(classes) < 20:
        error = getattr(error, link)
        classes.append(type(error).__name__)
    return classes


def told_by(error):
    """What a program can read from an exception, apart from its arguments, its attributes and the frames that it
    passed."""
    members = {n: type(getattr(error, n)).__name__ for n in ("obj",) if hasattr(error, n)}
    members |= {n: getattr(error, n, None) for n in ("name", "path", "code") if hasattr(type(error), n)}
    return {"class": type(error), "text": str(error), "causes": chain(error, "__cause__"),
            "contexts": chain(error, "__context__"), "suppressed": error.__suppress_context__,
            "notes": getattr(error, "__notes__", None), "has traceback": error.__traceback__ is not None,
            "arguments": [type(a).__name__ for a in error.args], **members}


def attributes(value):
    """The contents of its __dict__. None for objects without one, and for classes and Python's modules. A torch module
    that is copied may have its attributes in another order."""
    if isinstance(value, (type, types.ModuleType)) or not hasattr(value, "__dict__"):
        return None
    return dict(sorted(vars(value).items())) if isinstance(value, torch.nn.Module) else vars(value)


def compares_by_value(value):
    """Whether a class in C defines ==: of numbers, texts, sets and those derived from them."""
    return isinstance(type(value).__eq__, types.WrapperDescriptorType) and type(value).__eq__ is not object.__eq__


class Comparison:
    """One comparison of two values and of everything that they hold."""

    def __init__(self, strides, luck):
        self.strides, self.luck = strides, luck
        self.seen = {}  # pairs of identities -> the pairs, which keeps them alive

    def same(self, got, eager, ref64, where):
        assert type(got) is type(eager), f"{where}: class {type(got)} instead of {type(eager)}"
        pair = id(got), id(eager)
        if got is eager and not isinstance(eager, float) or pair in self.seen:
            return
        self.seen[pair] = got, eager
        compare = next((compare for kind, compare in KINDS if isinstance(eager, kind)), None)
        if compare is not None:
            compare(self, got, eager, ref64, where)
        elif callable(eager) and not isinstance(eager, torch.nn.Module):
            names = [getattr(v, "__qualname__", None) for v in (got, eager)]
            assert names[0] == names[1], f"{where}: {got} instead of {eager}"
        elif compares_by_value(eager) or attributes(eager) is None:
            assert got == eager, f"{where}: {got!r} instead of {eager!r}"
        if attributes(eager) is not None:
            self.same(attributes(got), attributes(eager), part(ref64, attributes), f"vars({where})")

    def tensors(self, got, eager, ref64, where):
        assert got.dtype == eager.dtype, f"{where}: {got.dtype} instead of {eager.dtype}"
        assert got.shape == eager.shape, f"{where}: shape {tuple(got.shape)} instead of {tuple(eager.shape)}"
        every = self.strides == "all"
        if self.strides and (every or eager.numel() > 1) and eager.layout == torch.strided:
            s = [(a, b) for n, a, b in zip(eager.shape, got.stride(), eager.stride()) if n > 1 or every]
            assert all(a == b for a, b in s), f"{where}: strides {got.stride()} instead of {eager.stride()}"
            assert got.storage_offset() == eager.storage_offset(), f"{where}: storage offset"
        assert got.requires_grad == eager.requires_grad, f"{where}: requires_grad"
        assert got.is_inference() == eager.is_inference(), f"{where}: is_inference"
        if eager.numel():
            assert_close(got.detach(), eager.detach(), ref64, where, self.luck)

    def sequences(self, got, eager, ref64, where):
        assert len(got) == len(eager), f"{where}: length {len(got)} instead of {len(eager)}"
        for i, (a, b) in enumerate(zip(got, eager)):
            self.same(a, b, part(ref64, lambda v: v[i]), f"{where}[{i}]")
        if isinstance(eager, collections.deque):
            assert got.maxlen == eager.maxlen, f"{where}: maxlen {got.maxlen} instead of {eager.maxlen}"

    def dicts(self, got, eager, ref64, where):
        assert list(got) == list(eager), f"{where}: keys {list(got)} instead of {list(eager)}"
        for k in eager:
            self.same(got[k], eager[k], part(ref64, lambda v: v[k]), f"{where}[{k!r}]")
        if isinstance(eager, collections.defaultdict):
            self.same(got.default_factory, eager.default_factory, None, f"{where}.default_factory")

    def arrays(self, got, eager, ref64, where):
        for name in ("dtype", "shape", "strides"):
            assert getattr(got, name) == getattr(eager, name), f"{where}: {name} of {got!r}"
        assert got.flags.writeable == eager.flags.writeable, f"{where}: writeable"
        assert got.tobytes() == eager.tobytes(), f"{where}: {got!r} instead of {eager!r}"

    def floats(self, got, eager, ref64, where):
        assert got == eager or (math.isnan(got) and math.isnan(eager)), f"{where}: {got} instead of {eager}"
        assert math.copysign(1, got) == math.copysign(1, eager), f"{where}: sign of zero"

    def errors(self, got, eager, ref64, where):
        assert told_by(got) == told_by(eager), f"{where}: {told_by(got)} instead of {told_by(eager)}"
        self.same(got.args, eager.args, part(ref64, lambda v: getattr(v, "args", None)), f"{where}.args")

    def partials(self, got, eager, ref64, where):
        for name in ("func", "args", "keywords"):
            self.same(getattr(got, name), getattr(eager, name), None, f"{where}.{name}")

    def methods(self, got, eager, ref64, where):
        for name in ("__func__", "__self__"):
            self.same(getattr(got, name), getattr(eager, name), None, f"{where}.{name}")


KINDS = ((BaseException, Comparison.errors), (torch.Tensor, Comparison.tensors),
         ((list, tuple, collections.deque), Comparison.sequences), (dict, Comparison.dicts),
         (np.ndarray, Comparison.arrays), (float, Comparison.floats), (functools.partial, Comparison.partials),
         (types.MethodType, Comparison.methods))


def same(got, eager, ref64=None, where="result", strides=True, luck=None):
    """Asserts that two values are the same: classes, structure, and what attributes hold, those of a torch module with
    its parameters and buffers too.

    strides: "all" compares those of dimensions of size one too, which may differ where the size is a symbol. ref64 and
    luck: as in bounds.py."""
    Comparison(strides, luck).same(got, eager, ref64, where)
