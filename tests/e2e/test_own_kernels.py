"""Ops that are only kernels of our own: equal to eager in every dtype and layout, without an extern call."""
import math
import re

import pytest
import torch
import torch.nn.functional as F

import framejit
from check import check, exactly_as, same, same_as

pytestmark = pytest.mark.cpu_only("kernels of torch with a twin of ours are those of the CPU")

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
X, Y, Z = (torch.randn(4, 6, generator=torch.Generator().manual_seed(k)) for k in range(3))
SPECIAL = torch.tensor([[0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.5], [1, -1, 20, -20, 0.5, 88]]).repeat(
    2, 1)
aten = torch.ops.aten

CASES = {
    # losses
    "mse_loss": lambda x, y, z: [F.mse_loss(x, y, reduction=r) for r in ("none", "mean", "sum")],
    "smooth_l1_loss": lambda x, y, z: [F.smooth_l1_loss(x, y, reduction=r, beta=b) for r in ("none", "mean", "sum")
                                       for b in (1.0, 0.3)],
    "huber_loss": lambda x, y, z: [F.huber_loss(x, y, reduction=r, delta=b) for r in ("none", "mean", "sum")
                                   for b in (1.0, 0.3)],
    "soft_margin_loss": lambda x, y, z: F.soft_margin_loss(x, y.sign()),
    "binary_cross_entropy_with_logits": lambda x, y, z: [F.binary_cross_entropy_with_logits(x, y.abs(), weight=w,
        pos_weight=p, reduction=r)
                                                         for r in ("none", "mean", "sum") for w,
                                                         p in ((None, None), (z.abs(), y[0].abs()))],
    "binary_cross_entropy": lambda x, y, z: [F.binary_cross_entropy(p, y.sigmoid(), weight=w, reduction=r)
                                             for r in ("none", "mean", "sum") for w in (None, z.abs(), z[:1].abs())
                                             for p in (x.sigmoid(), (x > 0).to(x.dtype))],
    "logsigmoid": lambda x, y, z: F.logsigmoid(x),
    "glu": lambda x, y, z: (F.glu(x), F.glu(x, 0)),
    "softmax backward": lambda x, y, z: aten._softmax_backward_data(x, y.softmax(1), 1, x.dtype),
    "log_softmax backward": lambda x, y, z: aten._log_softmax_backward_data(x, y.log_softmax(0), 0, x.dtype),
    "nll_loss": lambda x, y, z: [F.nll_loss(x, t, weight=w, ignore_index=i, reduction=r)
                                 for r in ("none", "mean", "sum") for w in (None, z[0].abs())
                                 for t, i in ((torch.tensor([0, 5, 3, 3]), -100), (torch.tensor([0, 5, 3, 3]), 3),
                                              (torch.tensor([-100, 1, -100, 2]), -100))],
    "nll_loss of images": lambda x, y, z: [F.nll_loss(x.reshape(1, 4, 2, 3), t, weight=w, ignore_index=i, reduction=r)
                                           for r in ("none", "mean", "sum") for w in (None, z[0, :4].abs())
                                           for t, i in ((torch.tensor([[[0, 3, 1], [2, 2, 0]]]), 2),
                                                        (torch.tensor([[[-100, 3, 1], [2, -100, 0]]]), -100))],
    "cross_entropy": lambda x, y, z: F.cross_entropy(x, torch.tensor([0, 5, -100, 3])),
    "addr": lambda x, y, z: (torch.addr(x, y[:, 0], z[0], beta=0.5, alpha=2), torch.addr(x, y[:, 0], z[0], beta=0),
                             torch.addr(x, y[:, 0], z[0])),
    # reductions
    "aminmax": lambda x, y, z: (*x.aminmax(), *x.aminmax(dim=1, keepdim=True)),
    "logsumexp": lambda x, y, z: (x.logsumexp(1), x.logsumexp((0, 1)), x.logsumexp(0, keepdim=True)),
    "count_nonzero": lambda x, y, z: (x.relu().count_nonzero(), x.relu().count_nonzero(1)),
    "nansum": lambda x, y, z: (x.nansum(), x.sqrt().nansum(1, keepdim=True)),
    "dist": lambda x, y, z: (torch.dist(x, y), torch.dist(x, y[0]), torch.dist(x[:, :1], y, 1),
                             torch.dist(x, y[:, :1], float("inf"))),
    "vector_norm": lambda x, y, z: [torch.linalg.vector_norm(x, o, d)
                                    for o in (0, 1, 2, 3, 0.5, float("inf"), -float("inf"), -1.5, -1)
                                    for d in (None, 1)],
    "trace": lambda x, y, z: x.trace(),
    # elementwise
    "xlogy": lambda x, y, z: (torch.xlogy(x, y.abs()), torch.xlogy(x, 2.0), torch.xlogy(2.0, x.abs()),
                              torch.special.xlog1py(x, y.abs())),
    "entr": lambda x, y, z: torch.special.entr(x),
    "logaddexp": lambda x, y, z: (torch.logaddexp(x, y), torch.logaddexp2(x, y),
                                  torch.logaddexp(x * float("inf"), x * float("inf"))),
    "heaviside": lambda x, y, z: torch.heaviside(x.trunc(), y),
    "round": lambda x, y, z: (x.round(), *((x * 100).round(decimals=d) for d in (2, -1)))
    if x.dtype in (torch.float32, torch.float64) else x.round(),
    "logit": lambda x, y, z: [torch.logit(x, *eps) for eps in (
        ((), (0.1,), (0.6,), (-1.0,)) if x.dtype in (torch.float32, torch.float64) else ((), (-1.0,)))],
    "sinc": lambda x, y, z: torch.sinc(x.trunc() + y * (y > 0)),
    "angles": lambda x, y, z: (torch.deg2rad(x), torch.rad2deg(x), torch.angle(x)),
    "nan_to_num": lambda x, y, z: (x.sqrt().nan_to_num(), (x / (y * 0)).nan_to_num(1.0, 2.0, -3.0),
                                   (x / 0).nan_to_num(posinf=4.0)),
    "prelu": lambda x, y, z: F.prelu(x, y[0, :1]),
    "backward formulas": lambda x, y, z: (aten.softplus_backward(x, y, 1.0, 20.0), aten.hardsigmoid_backward(x, y * 4),
                                          aten.hardswish_backward(x, y * 4),
                                          aten.elu_backward(x, 1.0, 1.5, 0.5, False, y),
                                          aten.elu_backward(x, 1.0, 1.5, 0.5, True, F.elu(y))),
    # movements
    "copies of views": lambda x, y, z: (torch.permute_copy(x, (1, 0)), torch.expand_copy(x[:, :1], (-1, 3)),
                                        torch.transpose_copy(x, 0, 1), torch.t_copy(x), torch.unsqueeze_copy(x, 1),
                                        torch.squeeze_copy(x[:, :1]), torch.diagonal_copy(x),
                                        torch.select_copy(x, 1, 2), torch.slice_copy(x, 1, 1, 5, 2),
                                        torch.view_copy(x, (-1,)), torch.unfold_copy(x, 1, 2, 2), torch.detach_copy(x)),
    "copies of parts": lambda x, y, z: [*torch.unbind_copy(x, 1), *torch.split_copy(x, 4, 1),
                                        *torch.split_with_sizes_copy(x, [1, 5], 1)],
    "roll": lambda x, y, z: (x.roll(3), x.roll(-7), x.roll(1, 0), x.roll((1, 2), (0, 1))),
    "rot90": lambda x, y, z: [x.rot90(k) for k in range(-1, 4)],
    "pixel_shuffle": lambda x, y, z: (F.pixel_shuffle(x.reshape(4, -1, 2), 2), F.pixel_unshuffle(x[None], 2),
                                      F.channel_shuffle(x.reshape(2, 4, -1), 2)),
    "parts": lambda x, y, z: (torch.cat([x, y]) * 2, torch.cat([x, y, z], 1).relu(), torch.cat([x[:, 3:], -x[:, :3]], 1)
                              + z, torch.stack([x, y]) + 1,
                              torch.stack([x, y], 1).sum(1), torch.stack([x, y], -1) * 2,
                              torch.cat([torch.cat([x, y]), z])[1:9].neg(), torch.cat([x, y, z, x, y], 1).abs()),
    "parts of many lanes": lambda x, y, z: (torch.cat([x.repeat(5, 19), y.repeat(5, 7)], 1) + 1,
                                            torch.cat([x.repeat(9, 1), y.repeat(3, 1)]).flatten() * 2,
                                            torch.cat([x.repeat(1, 9), y.repeat(1, 4)], 1).sum(1),
                                            torch.cat([x.flatten(), y.flatten().repeat(5)]).relu(),
                                            torch.cat([x.repeat(3, 9), y.repeat(3, 2)], 1).t() + 1),
    "edges of numbers": lambda x, y, z: (F.pad(x, (1, 2), value=0.5) + 1, F.pad(x, (3, 0, 1, 1)) * 2,
                                         F.pad(x.repeat(3, 9), (40, 1, 2, 3), value=-1).abs(),
                                         F.pad(x.reshape(2, 2, -1), (1, 1, 0, 0, 2, 0)).sum(0)),
    "edges that crop": lambda x, y, z: (F.pad(x, (-1, 2), value=0.5) + 1, F.pad(x, (2, -3, -1, 1)) * 2,
                                        F.pad(x, (-2, -1, 3, -4), value=2) + 1, F.pad(x, (-6, 2), value=3) + 1),
    "without dimensions": lambda x, y, z: (x[0, 0].gather(0, torch.tensor([0])) + 1, x[0, 0].roll(2) + 1,
                                           x[0, 0].gather(0, torch.tensor(0)), x[0, 0].unfold(0, 1, 1) + y[0, 0],
                                           x[0, 0].index_fill(0, torch.tensor([0]), 1.5) + 1,
                                           x[0, 0].index_fill(0, torch.tensor(0), y[0, 0]),
                                           x[0, 0].index_copy(0, torch.tensor([0]), y[0, 0]) * 2),
    "slices written over": lambda x, y, z: (x.slice_scatter(y[:, :3], 1, 2, 5) * 2, x.select_scatter(y[0], 0, -1) + 1,
                                            x.slice_scatter(y[:2], 0, 0, 4, 2) * 2),
    "diagonals": lambda x, y, z: (x.diag_embed(), x.diag_embed(-2, 0, 2), torch.diagonal_scatter(x, y[0, :len(x)]),
                                  torch.diagonal_scatter(x, y[0, 1:len(x)], -1), torch.block_diag(x, y[:2], z),
                                  torch.block_diag(x[0], y[:2], z[0, 0], x[:, 0])),
    "take": lambda x, y, z: (torch.take(x, torch.tensor([[0, 23], [-1, 5]])), torch.take(x, (y * 5).long())),
    "index_select": lambda x, y, z: (x.index_select(0, torch.tensor([3, 0, 3])), x.index_select(-1, torch.tensor(2)),
                                     x[0, 0].index_select(0, torch.tensor([0])) + 1,
                                     x[0, 0].index_select(0, torch.tensor(0)) + 1),
    "one_hot": lambda x, y, z: (F.one_hot(x.argmax(-1), x.shape[-1]), F.one_hot(torch.tensor([[0, 3], [2, 1]]), 4) * 2),
    "eye": lambda x, y, z: (torch.eye(*x.shape, dtype=x.dtype) * x, torch.eye(3) + 1, torch.eye(3, dtype=torch.int64)),
    # places
    "nearest": lambda x, y, z: [F.interpolate(v.reshape(shape), mode=m, **k) for v in (x,
                                ) for shape in ((1, *x.shape), (1, 2, 3, -1), (1, 1, 2, 3, -1))
                                for m in ("nearest", "nearest-exact")
                                for k in ({"scale_factor": 2}, {"scale_factor": 1.7}, {"size": 5})],
    "linear": lambda x, y, z: [F.interpolate(x.reshape(shape), mode=m, align_corners=a, **k) for shape,
                               m in (((1, *x.shape), "linear"), ((1, 2, 3, -1), "bilinear"),
                                     ((1, 1, 2, 3, -1), "trilinear"))
                               for a in (False, True) for k in ({"scale_factor": 2}, {"scale_factor": 1.7}, {"size": 5},
                                                                {"size": 1})],
    "max_pool": lambda x, y, z: [F.max_pool2d(v, *w)
                                 for v in (x.reshape(1, 1, *x.shape), x.repeat(2, 9).reshape(2, 2, -1, 18))
                                 for w in ((2,), (3, 2, 1), (3, 1, 1), ((1, 3), (1, 2), (0, 1)), (2, 2, 0, 2),
                                           (3, 2, 1, 1, True), (2, 3, 1, 1, True))],
    "avg_pool": lambda x, y, z: [F.avg_pool2d(v, *w)
                                 for v in (x.reshape(1, *x.shape), x.repeat(2, 9).reshape(2, 2, -1, 18))
                                 for w in ((2,), (3, 2, 1), (3, 2, 1, False, False), ((3, 1), 1), (3, 2, 1, True),
                                           (3, 2, 1, True, False), (2, 3, 1, True, True), (3, 2, 0, False, True, 7))],
    "pools of many lanes": lambda x, y, z: [p(x.repeat(10, 16).reshape(2, 2, -1, 96).contiguous(memory_format=m), 3, 2,
                                              1) for p in (F.max_pool2d, F.avg_pool2d)
                                            for m in (torch.contiguous_format, torch.channels_last)],
    "edges": lambda x, y, z: [F.pad(x.reshape(shape), pad, mode=m) for m in ("reflect", "replicate")
                              for shape, pad in ((x.shape, (2, 3)), ((1, *x.shape), (1, 0, 2, 3)),
                                                 ((2, 3, -1), (3, 1, 2, 0)), ((1, 2, 3, -1), (1, 1, 2, 2, 0, 1)))],
    "without elements": lambda x, y, z: (x + 1, x[:0].softmax(1), x[:, :0].log_softmax(1), x[:0].repeat(2, 3),
                                         x.repeat(0, 1), x[:0].tile(2), x[:0].roll(1, 0), torch.hann_window(0) + 1,
                                         F.pad(x[:0, None], (1, 1), mode="reflect"), F.pad(x[:0], (1, 1)),
                                         F.pixel_shuffle(x[:0].view(0, 4, 2, 3), 2), F.group_norm(x[:0], 2),
                                         x[:0].t().softmax(0)),
    # lists
    "foreach unary": lambda x, y, z: [r for f in (torch._foreach_exp, torch._foreach_neg, torch._foreach_sqrt,
                                                  torch._foreach_abs) for r in f([x, y])],
    "foreach binary": lambda x, y, z: [r for f in (torch._foreach_add, torch._foreach_sub, torch._foreach_mul,
                                                   torch._foreach_div)
                                       for r in (*f([x, y], [y, z]), *f([x, y], 2.0), *f([x, y], [3.0, 0.5]))],
    "foreach alpha": lambda x, y, z: (*torch._foreach_add([x, y], [y, z], alpha=0.5),
                                      *torch._foreach_add([x, y], z[0, 0])),
    "foreach bounds": lambda x, y, z: [r for f in (torch._foreach_clamp_min, torch._foreach_maximum,
                                                   torch._foreach_clamp_max, torch._foreach_minimum)
                                       for r in (*f([x, y], [y, z]), *f([x, y], 0.1), *f([x, y], [0.1, -0.1]))],
    "foreach three": lambda x, y, z: (*torch._foreach_addcmul([x], [y], [z], 2.0),
                                      *torch._foreach_addcdiv([x, y], [y, z], [z.exp(), x.exp()], [2.0, 1.0]),
                                      *torch._foreach_lerp([x], [y], 0.3), *torch._foreach_lerp([x], [y], [z])),
    "foreach pow": lambda x, y, z: (*torch._foreach_pow([x.abs()], 1.5), *torch._foreach_pow([x.abs()], [2]),
                                    *torch._foreach_pow(2.0, [x])),
}
BREAKS = {"foreach alpha": 1}  # the value of a tensor is an argument


def steps_of(fn, *args):
    """(kernels, extern calls by name) of a call's plans."""
    framejit.reset()
    with torch.no_grad():
        report = framejit.explain(fn)(*args)
    steps = [line.strip() for event in report.events if event.event == "Steps" for line in event.artefact.split("\n")]
    extern = [m.group(2) for s in steps if (m := re.match(r"(?:b\d+(?:, b\d+)* = )?((\w[\w.:]*)\()", s))]
    return sum(s.startswith("kernel ") for s in steps), extern


def layouts(dtype):
    tensors = [t.to(dtype) for t in (X, Y, Z)]
    if dtype != torch.float32:
        return {"contiguous": tensors}
    return {"contiguous": tensors, "transposed": [t.t().contiguous().t() for t in tensors],
            "stepped": [torch.stack((t, t), -1)[..., 0] for t in tensors]}


@pytest.mark.breaks(data_dependent_value={"foreach alpha": 1, "foreach alpha-torch.float32": 2})
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_own_kernels(name, dtype):
    for layout, tensors in layouts(dtype).items():
        check(CASES[name], *tensors, breaks=BREAKS.get(name))
        kernels, extern = steps_of(CASES[name], *tensors)
        assert kernels and not extern, (layout, kernels, extern)


@pytest.mark.breaks(data_dependent_value={"foreach alpha": 2})
@pytest.mark.parametrize("name", CASES)
def test_interpreter_agrees(name):
    """The interpreter defines what the kernels compute."""
    with torch.no_grad():
        defined, compiled = (framejit.compile(CASES[name], backend=backend)(X, Y, Z)
                             for backend in ("interp", "framejit"))
    same(compiled, defined, exactly_as(lambda: CASES[name](X, Y, Z)))


BY_INT32 = {
    "scatter": lambda x, y, i: x.scatter(0, i, y), "scatter of a number": lambda x, y, i: x.scatter(0, i, 2.5),
    "scatter that adds": lambda x, y, i: x.scatter_add(0, i, y), "gather": lambda x, y, i: x.gather(0, i),
    "scatter that multiplies": lambda x, y, i: x.scatter(0, i, y, reduce="multiply"),
    "scatter of maxima": lambda x, y, i: x.scatter_reduce(0, i, y, "amax"),
}


@pytest.mark.parametrize("name", BY_INT32)
def test_positions_of_int32(name):
    index = torch.tensor([[0, 3, 1, 0, 2, 2], [1, 3, 1, 3, 3, 0]], dtype=torch.int32)
    try:
        BY_INT32[name](X, Y, index)
    except RuntimeError:
        pytest.skip("this PyTorch takes positions of int64 only")
    check(BY_INT32[name], X, Y, index, breaks=0)
    kernels, extern = steps_of(BY_INT32[name], X, Y, index)
    assert kernels and not extern, (kernels, extern)
    check(BY_INT32[name], X, Y, index + 2)  # out of range


SPECIAL_CASES = ("max_pool", "avg_pool", "parts", "logsigmoid", "aminmax", "logsumexp", "count_nonzero", "nansum",
                 "xlogy", "entr", "logaddexp", "heaviside", "angles", "nan_to_num", "huber_loss")


@pytest.mark.parametrize("name", SPECIAL_CASES)
def test_special_values(name):
    check(CASES[name], SPECIAL, SPECIAL.flip(0), SPECIAL.flip(1))


@pytest.mark.parametrize("name", ["parts", "parts of many lanes", "edges of numbers", "slices written over",
                                  "count_nonzero", "trace", "roll", "rot90", "copies of views", "copies of parts",
                                  "pixel_shuffle", "aminmax"])
def test_integers(name):
    tensors = [(t * 10).long() for t in (X, Y, Z)]
    check(CASES[name], *tensors)
    kernels, extern = steps_of(CASES[name], *tensors)
    assert kernels and not extern


VARYING = {
    "fills": lambda x, v: (torch.full_like(x, v), x.new_full((3,), v), (x + 1).fill_(v), torch.full((2,), v)),
    "powers": lambda x, v: (x.abs() ** v, torch.pow(v, x)),
    "bounds": lambda x, v: (x.clamp(min=-v, max=v), x.clamp_min(v), x.clamp_max(v)),
    "remainders": lambda x, v: (x % v, torch.fmod(x, v)),
    "alpha": lambda x, v: (torch.add(x, x, alpha=v), torch.sub(x, x, alpha=v), torch.addcmul(x, x, x, value=v),
                           torch.addcdiv(x, x, x.exp(), value=v)),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", VARYING)
def test_numbers_that_vary_stay_in_the_kernels(name, dtype):
    """The second value makes the number an input, which the kernels read."""
    fn, x = VARYING[name], X.to(dtype)
    framejit.reset()
    compiled, kernels = framejit.compile(fn), []
    for v in (1.5, 2.25, 0.75, 3.5):
        kernels.append(framejit.stats()["kernels"])
        with torch.no_grad():
            same_as(fn, compiled(x, v), x, v)
    assert framejit.stats()["recompiles"] == 1 and not framejit.stats()["fallbacks"]
    assert kernels[0] == 0 < kernels[1] < kernels[2] == kernels[3]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dropout_is_its_draws_and_one_kernel(dtype):
    def step(x, y):
        return F.dropout(torch.relu(x + y), 0.25) * 3 + y
    x, y = X.to(dtype), Y.to(dtype)
    framejit.reset()
    compiled, outcomes = framejit.compile(step), []
    with torch.no_grad():
        for fn in (step, compiled, compiled):
            torch.manual_seed(7)
            outcomes.append((fn(x, y), torch.rand(3)))
        torch.manual_seed(7)
        exact = step(x.double(), y.double())
    for out, drawn_next in outcomes[1:]:
        same(out, outcomes[0][0], exact)
        assert torch.equal(drawn_next, outcomes[0][1])
    kernels, extern = steps_of(step, x, y)
    assert kernels == 1 and extern == ["empty_strided", "bernoulli.p"], (kernels, extern)


def test_likelihoods_are_checked():
    """A value that is not a likelihood is eager's error."""
    loss = lambda x, t: F.binary_cross_entropy(x, t) * 2
    for bad in (1.5, -0.1, float("nan")):
        check(loss, torch.tensor([0.5, bad]), torch.ones(2))
        check(loss, torch.ones(2), torch.tensor([0.5, bad]))
    check(loss, torch.tensor([0.0, 1.0, 0.0, 1.0, 1e-44]), torch.tensor([0.0, 1.0, 1.0, 0.0, 0.5]))


@pytest.mark.fallbacks(kernel_check=3)
def test_targets_are_checked():
    """A class that does not exist is eager's error."""
    for target in ([0, 6, 1, 2], [0, -1, 1, 2]):
        with pytest.raises(IndexError, match="out of bounds"):
            framejit.compile(lambda x, t: F.nll_loss(x * 2, t))(X, torch.tensor(target))
    with pytest.raises(IndexError):
        framejit.compile(lambda x, i: torch.take(x * 2, i))(X, torch.tensor([24]))


def test_lists_are_written_in_place():
    def step(parameters, gradients):
        torch._foreach_mul_(parameters, 0.9)
        torch._foreach_add_(parameters, gradients, alpha=-0.1)
        torch._foreach_zero_(gradients)
        return parameters[0]
    check(step, [X, Y], [Z, X * 2])
    assert steps_of(step, [X.clone(), Y.clone()], [Z.clone(), X * 2])[1] == []


@pytest.mark.parametrize("shape, dtype", [((300, 1300), torch.float32), ((300, 1300), torch.bfloat16),
                                          ((70, 519), torch.float16), ((90, 1031), torch.int32),
                                          ((2, 4, 130, 777), torch.bfloat16), ((4100, 2056), torch.bfloat16)], ids=str)
def test_columns(shape, dtype):
    x = (torch.randn(shape) * 20).to(dtype)
    x[(0,) * len(shape)] = -30

    def columns(x):
        rows = x.flatten(0, -2)
        return rows.sum(0), rows.amax(0), rows.argmin(0), x.sum(-2)

    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            check(columns, x)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("value", [1e-3, 0.1, 1.37, -7.77, 1000.1, 100000.1])
def test_norms_of_equal_values_are_zero(value, dtype):
    for n in (3, 5, 64, 127, 768, 1000):
        x = torch.full((4, 6, n), value, dtype=dtype)
        framejit.reset()
        for norm in (lambda x: F.layer_norm(x, (n,)), lambda x: F.group_norm(x, 2)):
            assert torch.equal(framejit.compile(norm)(x), torch.zeros_like(x))
        assert framejit.stats()["fallbacks"] == 0 and framejit.stats()["kernels"] > 0


@pytest.mark.parametrize("shape, dtype", [((2401, 2411), torch.float32), ((3407, 3403), torch.bfloat16)], ids=str)
def test_transposed_beyond_caches(shape, dtype):
    x, y = ((torch.randn(s) * 20).to(dtype) for s in (shape, shape[::-1]))
    assert torch.equal(framejit.compile(lambda x, y: x.t() + y)(x, y), x.t() + y)
    assert framejit.stats()["fallbacks"] == 0


# A value that bfloat16 has already is stored unchanged: every value, including infinities and NaN.
def test_values_of_bfloat16_are_not_rounded_again():
    every = torch.arange(-2**15, 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    every = every[~every.isnan()].reshape(14, -1)
    with_nan = every.clone()
    with_nan[3, 5:9] = math.nan

    def picked(x):
        return (x.t().contiguous(), x.abs(), torch.maximum(x, x.flip(0)), torch.where(x > 0, x, x.roll(1, 1)),
                x.amax(0), x.amin(1), x.cummax(1), x.cummin(0), torch.cat([x, x * 1.5]))
    check(picked, every)
    check(picked, with_nan)


# Kernels that are called once, for all of their points, have no code for a remainder if their sizes leave none.
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_left_over_of_small_sizes(dtype):
    check(lambda *all: [(torch.relu(x) * 2, x > 0) for x in all],
          *[torch.randn(n).to(dtype) for n in (1, 7, 8, 16, 31, 32, 33, 64, 65, 96, 97, 160, 1023, 1024, 1056, 4128,
                                               20000)])


def mean_over_two(base, y):
    return y - base.transpose(1, 2).mean((1, 2))[:, None]


def softmax_of_chosen_rows(table, idx):
    return torch.softmax(table.index_select(0, idx)[0], -1)


# So many rows that a kernel prefetches the next row while it computes: rows of the first nest, and loads that are not
# rows.
@pytest.mark.parametrize("name", ["layer_norm", "mean_over_two", "softmax_of_chosen_rows", "masked"])
def test_rows_beyond_caches(name):
    x = torch.randn(2100, 1030)
    if name == "layer_norm":
        check(lambda x, w: F.layer_norm(x, [1030], w, w), x, torch.randn(1030))
    elif name == "mean_over_two":
        check(mean_over_two, torch.randn(2048, 3, 1024), torch.randn(2048, 1024))
    elif name == "softmax_of_chosen_rows":
        check(softmax_of_chosen_rows, torch.randn(3, 2100, 1030), torch.tensor([2]))
    else:
        check(lambda x, m: torch.softmax(x.masked_fill(m, -math.inf), -1), x, torch.rand(2100, 1030) > 0.7)
