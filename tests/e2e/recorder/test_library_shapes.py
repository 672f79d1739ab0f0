"""Shape rules of ops that libraries compute: gradients of convolutions, pools, transforms, factorisations. Each is
compared with the executed op over layouts and dtypes, with symbols too."""
import itertools

import pytest
import torch
import torch.nn.functional as F

from recording import Recording
from symbolic_checks import counted  # noqa: F401
from test_shape_rules import check_call, layout, make, no_grad  # noqa: F401

aten = torch.ops.aten
FORMATS = {3: lambda t: t.transpose(1, 2).contiguous().transpose(1, 2), 4: lambda t: t.to(
    memory_format=torch.channels_last), 5: lambda t: t.to(memory_format=torch.channels_last_3d)}


def in_formats(shape, dtype=torch.float32):
    t = make(shape, dtype)
    return [t, FORMATS[len(shape)](t)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions(dims, dtype):
    for batch, kernel, (dilation, groups, transposed) in itertools.product(
            [1, 2], [1, 3], [(1, 1, False), (2, 1, False), (1, 2, False), (1, 1, True), (1, 2, True)]):
        weight = (4, 6 // groups, *[kernel] * dims) if transposed else (6, 4 // groups, *[kernel] * dims)
        rest = [1] * dims, [kernel // 2] * dims, [dilation] * dims, transposed, [0] * dims, groups
        for x, w in itertools.product(in_formats((batch, 4, *[6] * dims), dtype), in_formats(weight, dtype)):
            result = aten.convolution(x, w, None, *rest)
            for grad in in_formats(tuple(result.shape), dtype):
                for mask in ([True] * 3, [False, True, False]):
                    check_call(lambda g, x, w: aten.convolution_backward(g, x, w, [6], *rest, mask), [grad, x, w],
                               f"{rest} {mask}")


def windows(count, **options):
    kernel = options.pop("kernel", 2)
    rest = [options.get("stride", []), options.get("padding", 0), options.get("dilation", 1), options.get("ceil",
        False)]
    return [[kernel] * count] + [[o] * count if isinstance(o, int) and not isinstance(o, bool) else o for o in rest]


@pytest.mark.parametrize("count", [2, 3])
def test_pools(count):
    max_pool = getattr(aten, f"max_pool{count}d_with_indices")
    max_backward = getattr(aten, f"max_pool{count}d_with_indices_backward")
    used = []
    for dtype, options in itertools.product([torch.float32, torch.float64, torch.bfloat16], [{}, {"kernel": 3,
            "stride": 2, "padding": 1}, {"kernel": 3, "ceil": True}, {"dilation": 2}]):
        kernel, stride, padding, dilation, ceil = windows(count, **options)
        for x in [*in_formats((2, 4, *[7] * count), dtype), make((4, *[7] * count), dtype)]:
            used.append(check_call(lambda x: max_pool(x, kernel, stride, padding, dilation, ceil), [x], str(options)))
            pooled, indices = max_pool(x, kernel, stride, padding, dilation, ceil)
            used.append(check_call(lambda g, x, i: max_backward(g, x, kernel, stride, padding, dilation, ceil, i),
                                   [pooled, x, indices], str(options)))
            if options.get("dilation", 1) == 1 and (count == 2 or dtype != torch.bfloat16):
                average = getattr(aten, f"avg_pool{count}d")
                backward = getattr(aten, f"avg_pool{count}d_backward")
                used.append(check_call(lambda x: average(x, kernel, stride, padding, ceil), [x], str(options)))
                used.append(check_call(lambda g, x: backward(g, x, kernel, stride, padding, ceil, True, None),
                                       [pooled, x], str(options)))
    assert all(used)


@pytest.mark.parametrize("count", [2, 3])
def test_pools_to_sizes(count):
    for dtype in [torch.float32, torch.float64]:
        for x in [*in_formats((2, 4, *[6] * count), dtype), make((4, *[6] * count), dtype)]:
            average, largest = getattr(aten, f"_adaptive_avg_pool{count}d"), getattr(aten, f"adaptive_max_pool{count}d")
            assert check_call(lambda x: average(x, [3] * count), [x], "average")
            assert check_call(lambda x: largest(x, [3] * count), [x], "maximum")
            small, indices = largest(x, [3] * count)
            assert check_call(getattr(aten, f"_adaptive_avg_pool{count}d_backward"), [small, x], "average backward")
            assert check_call(getattr(aten, f"adaptive_max_pool{count}d_backward"), [small, x, indices], "backward")
            rest = [[2] * count, [0] * count] if count == 3 else []
            pooled, places = getattr(aten, f"max_pool{count}d_with_indices")(x, [2] * count)
            unpool = getattr(aten, f"max_unpool{count}d")
            assert check_call(lambda p, i: unpool(p, i, [6] * count, *rest), [pooled, places], "unpool")


def test_gradients_of_resizing_and_padding():
    for count, kinds in {1: ["nearest", "_nearest_exact", "linear"], 2: ["nearest", "_nearest_exact", "bilinear",
            "bicubic", "_bilinear_aa", "_bicubic_aa"], 3: ["nearest", "_nearest_exact", "trilinear"]}.items():
        for kind in kinds:
            base = ("_" if kind[0] == "_" else "") + "upsample_" + kind.strip("_").replace("_aa", "")
            name = f"{base}{count}d" + ("_aa" if kind.endswith("_aa") else "")
            rest = [] if "nearest" in kind else [False]
            for g in in_formats((2, 4, *[8] * count)):
                backward = getattr(aten, name + "_backward")
                assert check_call(lambda g: backward(g, [8] * count, [2, 4, *[6] * count], *rest), [g], name)
            for x in in_formats((2, 4, *[6] * count)):
                assert check_call(lambda x: getattr(aten, name)(x, [8] * count, *rest), [x], name)
        for kind in ("reflection", "replication"):
            backward = getattr(aten, f"{kind}_pad{count}d_backward")
            for x in [*in_formats((2, 4, *[6] * count)), make((4, *[6] * count))]:
                g = make((*x.shape[:-count], *[8] * count))
                assert check_call(lambda g, x: backward(g, x, [1] * 2 * count), [g, x], kind)


def orders(shape, dtype=torch.float32):
    """Tensors of this shape, with their dimensions in every order in memory."""
    for order in itertools.permutations(range(len(shape))):
        inverse = [order.index(d) for d in range(len(shape))]
        yield make(tuple(shape[d] for d in order), dtype).permute(inverse)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms(dtype):
    for dims in [[0], [1], [2], [0, 1], [1, 2], [2, 0], [0, 1, 2]]:
        for x in orders((3, 4, 6), dtype):
            for onesided in (True, False):
                assert check_call(lambda x: aten._fft_r2c(x, dims, 0, onesided), [x], f"r2c {dims}")
            z = torch.complex(x, x + 1)
            assert check_call(lambda z: aten._fft_c2c(z, dims, 0, True), [z], f"c2c {dims}", symbolic=False)
            assert check_call(lambda z: aten._fft_c2r(z, dims, 0, 2 * z.size(dims[-1]) - 2), [z], f"c2r {dims}",
                symbolic=False)
            assert check_call(lambda x: torch.fft.irfftn(torch.fft.rfftn(x, dim=dims), dim=dims), [x], f"rfftn {dims}")
    assert check_call(lambda z: aten._fft_c2c(z, [], 0, True), [torch.complex(x, x)], "nothing", symbolic=False)
    check_call(lambda x: aten._fft_r2c(x, [1], 0, True), [make((0, 4), dtype)], "empty")


MATRICES = {
    "cholesky": lambda a: torch.cholesky(a @ a.mT + torch.eye(4)),
    "cholesky_upper": lambda a: torch.cholesky(a @ a.mT + torch.eye(4), upper=True),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(a), "cholesky_solve": lambda a: torch.cholesky_solve(a[...,
        :2],
        a), "cholesky_solve_batch": lambda a: torch.cholesky_solve(make((5, 1, 4, 3), a.dtype), a),
    "eig": lambda a: torch.linalg.eig(a), "eigvals": lambda a: torch.linalg.eigvals(a),
    "householder": lambda a: torch.linalg.householder_product(a[..., :3], a[..., 0, :3]),
    "geqrf": lambda a: torch.geqrf(a[..., :3]), "geqrf_wide": lambda a: torch.geqrf(a[..., :3, :]),
    "ormqr": lambda a: torch.ormqr(a, a[..., 0, :], a[..., :2]),
    "ormqr_right": lambda a: torch.ormqr(a, a[..., 0, :], a[..., :2].mT, left=False),
    "triangular": lambda a: torch.linalg.solve_triangular(a, a[..., :2], upper=True),
    "triangular_right": lambda a: torch.linalg.solve_triangular(a, a[..., :2, :], upper=False, left=False),
    "triangular_batch": lambda a: torch.linalg.solve_triangular(a, make((5, 1, 4, 3), a.dtype), upper=True),
    "triangular_of_transposed": lambda a: torch.linalg.solve_triangular(a.mT, a[..., :2], upper=True),
    "euclid": lambda a: aten._euclidean_dist(a, a[..., :2, :]), "trace": lambda a: a.flatten(0, -2).trace(),
    "addr": lambda a: torch.addr(a.flatten(0, -2), a.flatten(0, -2)[:, 0], a.flatten(0, -2)[0]),
    "addr_line": lambda a: torch.addr(a.flatten(0, -2)[0], a.flatten(0, -2)[:, 0], a.flatten(0, -2)[0]),
    "addbmm": lambda a: torch.addbmm(a.flatten(0, -2)[:4], a.reshape(-1, 4, 4), a.reshape(-1, 4, 4)),
    "pdist": lambda a: F.pdist(a.reshape(-1, 4)), "dist": lambda a: torch.dist(a, a.mT),
    "cdist_backward": lambda a: aten._cdist_backward(a, a, a[..., :1, :, :] if a.dim() > 2 else a, 2.0, a),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name):
    for dtype in [torch.float32, torch.float64]:
        for shape in [(4, 4), (2, 4, 4), (2, 3, 4, 4)]:
            a = make(shape, dtype) + 4 * torch.eye(4, dtype=dtype)
            for t in [a, a.mT.contiguous().mT, torch.stack([a, a], -1)[..., 0]]:
                check_call(MATRICES[name], [t], name)


POINTWISE = {
    "logit": lambda x: torch.logit(x / 3), "mvlgamma": lambda x: torch.mvlgamma(x + 2, 2), "frexp": torch.frexp,
    "ldexp": lambda x: torch.ldexp(x, x[..., :1]), "ldexp_": lambda x: x.ldexp_(x[:1]),
    "complex": lambda x: torch.complex(x, x + 1).abs(), "polar": lambda x: torch.polar(x, x.contiguous()).abs(),
    "dropout_backward": lambda x: aten.native_dropout_backward(x, (x > 1).contiguous(), 2.0),
    "hardtanh_backward": lambda x: aten.hardtanh_backward(x, x.contiguous(), 0.0, 1.0),
    "rrelu_backward": lambda x: aten.rrelu_with_noise_backward(x, x.contiguous(), x + 1, 0.1, 0.3, True, False),
    "rrelu_backward_plain": lambda x: aten.rrelu_with_noise_backward(x, x.contiguous(), x, 0.1, 0.3, False, False),
    "soft_margin": lambda x: F.soft_margin_loss(x, x.contiguous(), reduction="none"),
    "soft_margin_mean": lambda x: F.soft_margin_loss(x, x),
    "soft_margin_backward": lambda x: aten.soft_margin_loss_backward(x, x.contiguous(), x, 0),
    "chebyshev": lambda x: torch.special.chebyshev_polynomial_t(x, 3),
    "chebyshev_of_number": lambda x: torch.special.chebyshev_polynomial_t(0.5, x),
    "zeta": lambda x: torch.special.zeta(x + 2, 3), "number_and": lambda x: aten.bitwise_and(3, x),
    "number_shift": lambda x: aten.bitwise_left_shift(3, x), "linspace": lambda x: torch.linspace(0, 1, 5) + x.sum(),
    "linspace_of_tensors": lambda x: torch.linspace(x.sum(), x.sum() + 1, 5),
    "logspace": lambda x: torch.logspace(0, 1, 5, dtype=torch.float64) + x.sum(),
    "hann": lambda x: torch.hann_window(x.size(0) + 2, False), "tril": lambda x: torch.tril_indices(3, 5, -1),
    "triu": lambda x: torch.triu_indices(4, 3, 1), "triu_of_more": lambda x: torch.triu_indices(2, 3, -4),
    "chunk_cat": lambda x: aten._chunk_cat([x[:9], x], 0, 2), "nonzero_static": lambda x: torch.nonzero_static(x,
        size=4),
    "alias_copy": torch.alias_copy, "t_copy": lambda x: torch.t_copy(x.flatten(1)),
    "expand_copy": lambda x: torch.expand_copy(x.unsqueeze(0), (3, *x.shape)), "diagonal_copy": torch.diagonal_copy,
    "unbind_copy": torch.unbind_copy, "squeeze_copy": torch.squeeze_copy,
        "narrow_copy": lambda x: torch.narrow_copy(x, 0,
        0, 1), "unfold_copy": lambda x: torch.unfold_copy(x, 0, 1, 1), "view_copy_dtype": lambda x: torch.view_copy(x,
        dtype=torch.int32), "split_copy": lambda x: torch.split_with_sizes_copy(x, [1, x.size(0) - 1]),
    "weight_norm": lambda x: torch._weight_norm(x, x[..., :1].sum(tuple(range(1, x.dim())), keepdim=True)),
    "channel_shuffle": lambda x: torch.channel_shuffle(x, 1), "norms": lambda x: torch._foreach_norm([x, x[0]]),
    "masked_index": lambda x: aten._unsafe_masked_index(x, x[..., 0] > 1, [torch.zeros(x.shape[:-1],
        dtype=torch.long)], 0.0), "norm": lambda x: aten.norm(x, 2), "norm_wide": lambda x: aten.norm(x, 2,
        dtype=torch.float64), "multi_margin": lambda x: F.multi_margin_loss(x.flatten(1), torch.zeros(x.size(0),
        dtype=torch.long), reduction="none"),
    "multilabel_margin": lambda x: F.multilabel_margin_loss(x.flatten(1), torch.zeros_like(x.flatten(1),
        dtype=torch.long)),
    "segments": lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, x.size(0) - 1])),
    "out": lambda x: torch.add(x, 1, out=torch.empty_like(x)),
    "out_of_other_layout": lambda x: torch.exp(x, out=torch.empty(x.shape, dtype=x.dtype)),
    "out_resized": lambda x: torch.abs(x, out=torch.empty(0, dtype=x.dtype)),
    "outs": lambda x: torch.sort(x, out=(torch.empty_like(x), torch.empty(x.shape, dtype=torch.long))),
    "out_of_other_dtype": lambda x: torch.add(x, 1, out=torch.empty(x.shape, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_layouts_of_others(name):
    for dtype in [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]:
        for kind in ["contiguous", "transposed", "channels_last", "sliced", "expanded", "empty", "one", "scalar"]:
            check_call(POINTWISE[name], [layout(kind, dtype)], name)


def test_a_recurrent_layer_in_training():
    """The library alone knows the size of its workspace: the op is run, and nothing in Python is asked."""
    layer = [make((5, 2, 3)), make((16, 3)), make((16, 4)), make((16,)), make((16,)), make((1, 2, 4)), make((1, 2, 4))]
    recording = Recording(lambda *t: aten.mkldnn_rnn_layer(*t, False, [], 2, 4, 1, True, False, False, True), layer)
    assert recording.recorder.executed_ops() == {"mkldnn_rnn_layer"} and recording.recorder.python_ops() == set()
    assert recording.replay(layer)[1:] == ([], [])
