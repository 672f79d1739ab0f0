"""The reference of the contract's bound: what a program returns if every op computes in float64.

The program runs unchanged. Each memory of floats has a companion in float64, in which each op runs once more; views
and in-place writes find it by the memory that they share. Python sees eager's own tensors, so dtypes, integers and
branches are eager's.
Casts that the dispatcher sees round here too (they are never elided); other ops do not round.

With a number for its noise, a run is disturbed: whatever it reads or computes is an ulp off, up or down, as the number
decides. The distance between such runs and the exact one says how far roundings can move each element.
"""
import types

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import wide_attention
from devices import random_state, same_random_state, set_random_state

aten = torch.ops.aten
CASTS = {aten._to_copy.default, aten.copy_.default, aten.copy.default}


def is_float(t):
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided and is_inexact(t.dtype)


def is_inexact(dtype):
    return dtype.is_floating_point or dtype.is_complex


def wide_of(dtype):
    return torch.complex128 if dtype.is_complex else torch.float64


def disturb(t, dtype, generator):
    """Moves each element of a float64 tensor by an ulp of `dtype`, up or down; without a generator, by nothing."""
    if generator is not None and t.numel():
        signs = 2 * torch.randint(0, 2, t.shape, generator=generator, device="cpu").double() - 1
        t.mul_(1 + torch.finfo(dtype).eps * signs.to(t.device))


def unscale(tensors, found_inf, inv_scale):
    """What the kernel does, which takes no other dtype than float32 for a scale."""
    for t in tensors:
        t.mul_(inv_scale)


def dropped(outputs, x, p, train):
    mask = outputs[1]
    return x * mask / (1 - p) if p < 1 else x * 0, mask


IN_FLOAT64 = {aten._amp_foreach_non_finite_check_and_unscale_.default: unscale, **wide_attention.FORMS}
# Ops that draw: what they return in float64, given what they have drawn. Others go on from eager's own elements.
DRAWN = {aten.native_dropout.default: dropped}


class Kept:
    """The contents of an object, in float64."""


class KeptList(Kept, list):
    pass


class KeptDict(Kept, dict):
    pass


ATOMS = type, types.ModuleType, types.FunctionType, types.MethodType  # keep what they have


def is_sequence(value):
    return (hasattr(value, "__len__") and hasattr(value, "__iter__")
            and not isinstance(value, (str, bytes, range, set, frozenset, torch.nn.Module)))


def generator_of(noise):
    return None if noise is None else torch.Generator().manual_seed(noise)


class Wide(TorchDispatchMode):
    def __init__(self, noise=None):
        super().__init__()
        self.memories = {}  # (address, dtype) -> (the storage, kept alive by this, its elements in float64)
        self.generator = generator_of(noise)

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # otherwise torch imports its compiler first, which takes seconds

    @staticmethod
    def key(t):
        return t.untyped_storage().data_ptr(), t.dtype.to_real()  # complex numbers are pairs

    def of(self, t):
        """The float64 companion of `t`."""
        if not t.numel():
            return t.to(wide_of(t.dtype))
        dtype = t.dtype.to_real()
        elements = t.untyped_storage().nbytes() // dtype.itemsize
        kept = self.memories.get(self.key(t))
        if kept is None or kept[1].numel() < elements:
            flat = torch.empty(0, dtype=dtype, device=t.device).set_(t.untyped_storage(), 0, (elements,))
            kept = self.memories[self.key(t)] = t.untyped_storage(), flat.double()
            disturb(kept[1], torch.promote_types(dtype, torch.float32), self.generator)  # ops compute in float32
        memory = torch.view_as_complex(kept[1][:elements // 2 * 2].view(-1, 2)) if t.is_complex() else kept[1]
        made = memory.as_strided(t.size(), t.stride(), t.storage_offset())
        made = made.conj() if t.is_conj() else made
        return torch._neg_view(made) if t.is_neg() else made

    def widened(self, func, args, kwargs):
        """Calls the op on the current float64 tensors, or on these in its own dtype if it has no kernel for float64;
        None if it has neither. If the op writes to tensors that are not floats, it writes to copies."""
        def widen(v):
            if isinstance(v, torch.Tensor):
                return self.of(v) if is_float(v) else v.clone() if func._schema.is_mutable else v
            return wide_of(v) if isinstance(v, torch.dtype) and is_inexact(v) else v
        wide = tree_map(widen, (args, kwargs))

        def rounded(v):
            return self.of(v).to(v.dtype) if isinstance(v, torch.Tensor) and is_float(v) else v

        def call(outputs):
            if func in DRAWN:
                return DRAWN[func](outputs, *wide[0], **wide[1])
            try:
                return tree_flatten(IN_FLOAT64.get(func, func)(*wide[0], **wide[1]))[0]
            except (RuntimeError, TypeError, IndexError):
                pass
            try:
                own = None if func._schema.is_mutable else tree_map(rounded, (args, kwargs))
                return own and tree_flatten(func(*own[0], **own[1]))[0]
            except (RuntimeError, TypeError, IndexError):
                return None
        return call

    def __torch_dispatch__(self, func, types_, args=(), kwargs=None):
        kwargs = kwargs or {}
        inputs = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        again = self.widened(func, args, kwargs)
        mutable = func._schema.is_mutable and self.generator is not None
        old = [(t, self.of(t).clone(), t.stride()) for t in inputs if is_float(t)] if mutable else []
        before = random_state()
        result = func(*args, **kwargs)
        drew = not same_random_state(before) and func not in DRAWN
        outputs = tree_flatten(result)[0]
        if not any(map(is_float, inputs + outputs)):
            return result
        wide = None if drew else again(outputs)
        written = list(filter(is_float, inputs)) if func._schema.is_mutable else []
        if wide is None or len(wide) != len(outputs):
            wide = outputs
            for t in written:  # how the op changed them is not known in float64
                self.of(t).copy_(t)
        for t, w in zip(outputs, wide):
            if is_float(t) and t.numel() and self.key(t) not in self.memories and isinstance(w, torch.Tensor):
                self.of(t).copy_(w if w.shape == t.shape else t)
                disturb(self.of(t), t.dtype, None if func in CASTS or drew else self.generator)
        for t, before, stride in old if func not in CASTS and not drew else []:
            now = self.of(t)
            if stride == t.stride() and now.shape == before.shape and not torch.equal(now, before):
                after = now.clone()  # only elements that the op has written
                disturb(after, t.dtype, self.generator)
                now.copy_(torch.where(now == before, now, after))
        if func in CASTS and is_float(outputs[0]):
            source = next((t.dtype for t in reversed(inputs) if is_float(t)), torch.float64)
            if torch.finfo(outputs[0].dtype).eps > torch.finfo(source).eps:
                self.of(outputs[0]).copy_(self.of(outputs[0]).to(outputs[0].dtype))
        return result

    def values(self, value, seen=None):
        """The same structure with float64 tensors: tuples and deques as lists, objects as namespaces. Those with other
        attributes keep them."""
        seen = {} if seen is None else seen
        if id(value) in seen:
            return seen[id(value)][1]
        if isinstance(value, torch.Tensor):
            return self.of(value).clone() if is_float(value) else value
        if isinstance(value, dict):
            made = KeptDict()
            seen[id(value)] = value, made
            made.update((k, self.values(v, seen)) for k, v in value.items())
        elif is_sequence(value):
            made = KeptList()
            seen[id(value)] = value, made
            made.extend(self.values(v, seen) for v in value)
        elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, ATOMS):
            made = Kept()
            seen[id(value)] = value, made
            if isinstance(value, BaseException):
                made.args = self.values(value.args, seen)
        else:
            return value
        own = getattr(value, "__dict__", {})
        vars(made).update((k, self.values(v, seen)) for k, v in own.items() if isinstance(k, str))
        return made


def in_float64(fn, args=(), kwargs=None, seed=None, noise=None):
    """[the result of `fn`, the arguments afterwards, the keyword arguments afterwards], floats in float64. The
    generator keeps its state. noise: the number of a disturbed run."""
    kwargs = kwargs or {}
    states = random_state()
    try:
        if seed is not None:
            torch.manual_seed(seed)
        mode = Wide(noise)
        with mode:
            result = fn(*args, **kwargs)
        return mode.values([result, list(args), kwargs])
    finally:
        set_random_state(states)
