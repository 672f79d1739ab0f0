"""Differential fuzzer of values: short programs over every dtype, layout and special value; compiled and eager must
agree in results, written arguments, strides and which results share memory.

    python tests/fuzz/values_fuzz.py [--seed N] [--count N] [--backend NAME]

graphs_fuzz.py makes long programs of tame numbers; this makes short ones of odd numbers: NaN, infinities, signed zeros,
small integers that wrap, bools, complex numbers, empty tensors, tensors without dimensions, expanded and overlapping
inputs. Operations whose result jumps read only values that every order of evaluation computes to the same bits.
"""
import random
import sys

import command
import graphs_fuzz
import rounds
from graphs_fuzz import copies, sharing

# {t} {u} any tensor; {e} {w} exact ones; {f} {h} floats; {g} {k} integers; {b} bools; {c} complex or any; {z} one
# without dimensions; {x} indices; {s} a Python number; {p} a positive int; {d} a dimension
EXACT = ["{t} + {u}", "{t} - {u}", "{t} * {u}", "{t} + {s}", "{t} - {s}", "{s} - {t}", "{t} * {s}", "-{t}",
         "{t}.abs()", "{t} / {s}", "{g} / {k}", "{t} + {z}", "{z} * {t}", "{z} + {s}", "{z} * {s}", "{t} + {t}",
         "torch.add({t}, {u}, alpha={p})", "torch.sub({t}, {u}, alpha={p})", "torch.rsub({t}, {u})",
         "torch.maximum({e}, {w})", "torch.minimum({e}, {w})", "torch.fmax({e}, {w})", "torch.fmin({e}, {w})",
         "{e}.clamp(min={s})", "{e}.clamp(max={s})", "{e}.clamp({s}, {s})", "torch.clamp({e}, {w}, {e} + 1)",
         "torch.where({b}, {t}, {u})", "torch.where({b}, {t}, {s})", "torch.where({b}, {s}, {t})",
         "{t}.masked_fill({b}, {s})", "{t}.to(torch.{dtype})", "{e}.to(torch.{dtype})", "{t}.float()",
         "{t}.double()", "torch.positive({f})", "torch.relu({e})", "{e}.sqrt()", "{f}.nan_to_num()",
         "{f}.nan_to_num({p}, 7.0, -7.0)", "torch.zeros_like({t})", "torch.ones_like({t}, dtype=torch.{dtype})",
         "torch.full_like({t}, {p})", "torch.nn.functional.threshold({e}, 0.5, {p})",
         "torch.nn.functional.hardtanh({e})", "{t}.conj()", "torch.full(({p}, 2), {s})", "torch.tensor({s})",
         "torch.tensor([{s}, {s}])", "torch.arange({p}) * {z}", "torch.arange(0, {p}, 0.5)",
         "torch.eye({p}, {p}, dtype=torch.{dtype})", "torch.copysign({f}, {e})",
         "torch.nn.functional.leaky_relu({e}, 0.25)", "torch.heaviside({f}, {f})", "{f}.square()", "{e} ** 2",
         "{t}.new_full((2,), {p})", "{t}.new_zeros({t}.shape)", "{t}.type_as({u})", "torch.real({t})",
         "torch.asarray({t})", "torch.scalar_tensor({s})"]
DISCRETE = ["{e} > {w}", "{e} == {w}", "{e} <= {s}", "{e} != {z}", "{e} >= {z}", "{s} < {e}", "{e} == {s}",
            "{e}.floor()", "{e}.ceil()", "{e}.round()", "{e}.trunc()", "{e}.frac()", "{e}.sign()", "{e}.sgn()",
            "{e}.bool()", "{e} // {w}", "{e} % {w}", "{e} // {s}", "{e} % {s}", "{s} // {e}", "{s} % {e}",
            "torch.fmod({e}, {s})", "torch.fmod({e}, {w})", "torch.remainder({e}, {w})", "torch.remainder({s}, {e})",
            "torch.div({e}, {w}, rounding_mode='floor')", "torch.div({e}, {w}, rounding_mode='trunc')",
            "torch.div({e}, {s}, rounding_mode='floor')", "torch.div({e}, {s}, rounding_mode='trunc')",
            "torch.floor_divide({e}, {w})", "{e}.round(decimals=1)", "{e}.isnan()", "{e}.isinf()",
            "torch.isfinite({e})", "torch.isposinf({e})", "torch.isneginf({e})", "torch.signbit({e})",
            "torch.isclose({e}, {w})", "torch.logical_and({e}, {w})", "torch.logical_xor({e}, {w})",
            "torch.logical_not({e})", "{e}.argmax({d})", "{e}.argmin({d})", "{e}.argmax()", "{e}.max({d})[0]",
            "{e}.max({d})[1]", "{e}.min({d})[1]", "{e}.min()", "{e}.max()", "{e}.amax({d})", "{e}.amin()",
            "{e}.aminmax()[1]", "{e}.any({d})", "{e}.all({d})", "{e}.any()", "{e}.all()", "{e}.count_nonzero({d})",
            "{e}.count_nonzero()", "{e}.sort({d})[0]", "{e}.sort({d}, stable=True)[1]",
            "{e}.sort({d}, descending=True, stable=True)[1]", "{e}.argsort({d}, stable=True)", "{e}.topk(1, {d})[0]",
            "{e}.kthvalue(1, {d})[0]", "{e}.msort()", "{e}.median({d})[0]", "{e}.nanmedian()", "{e}.mode({d})[0]",
            "{e}.cummax({d})[0]", "{e}.cummax({d})[1]", "{e}.cummin({d})[0]", "{e}.cummin({d})[1]",
            "torch.equal({e}, {w})", "torch.nextafter({f}, {f})", "torch.searchsorted({e}.flatten().sort()[0], {e})",
            "torch.bucketize({e}, torch.tensor([0.0, 1.0]))", "torch.histc({e}.float(), 4, -2, 2)",
            "torch.isin({e}, {w})", "torch.diff({e})", "torch.ldexp({e}, {g})", "torch.frexp({f})[0]",
            "torch.frexp({f})[1]", "torch.heaviside({e}, {w})", "{e}.eq({w}).all()",
            "torch.cartesian_prod({e}, {e})", "torch.unique_consecutive({e})[:1]", "torch.float_power({e}, 2)"]
INTEGER = ["{g} & {k}", "{g} | {k}", "{g} ^ {k}", "~{g}", "{g} << {p}", "{g} >> {p}", "{g} << {k}.abs() % 4",
           "{g} >> {k}.abs() % 4", "{g} // {p}", "{g} % {p}", "{g} // -{p}", "{g} % -{p}", "{g} ** 2", "{g} ** {p}",
           "{p} ** {g}.abs()", "{g} ** {k}.abs()", "torch.gcd({g}, {k})", "torch.lcm({g}, {k})", "{g}.abs()", "-{g}",
           "{g} * 100", "{g} + 200", "{g} * {g} * {g}", "{g}.sum()", "{g}.sum({d})", "{g}.prod()", "{g}.prod({d})",
           "{g}.cumsum({d})", "{g}.cumprod({d})", "{g}.sum({d}, dtype=torch.{integer})", "{b}.sum()", "{b}.sum({d})",
           "{b}.cumsum({d})", "{b} & {b}", "{b} | {g}", "{b} ^ {b}", "{b} * {g}", "{b} + {b}", "{b} * {b}",
           "{b} * {s}", "{b}.prod({d})", "{g}.to(torch.{integer})", "{e}.to(torch.{integer})", "{g}.bitwise_not()",
           "torch.bitwise_left_shift({g}, 1)", "torch.bitwise_right_shift({g}, 2)",
           "{b}.long() - {b}.to(torch.int8)", "torch.bincount({x})", "torch.bincount({x}, minlength=5)",
           "torch.nn.functional.one_hot({x}, 3)", "{g} > {k}", "{g} == {k}", "{g}.max({d})[0]",
           "{g}.clamp({s}, {p})", "{g} / {p}", "{g} / {k}", "{g}.sign()", "torch.arange({p}, dtype=torch.{integer})",
           "{g} * {b}", "{g} - {z}", "{g} * {s}", "{g} + {s}", "{g}.square()", "{g}.float().long()",
           "{g}.view(torch.uint8)", "{g}.bool()", "{g} @ {g}.T", "torch.trace({g})", "{g}.tril()",
           "{g}.diagonal().sum()", "{g}.flip(0).cumsum(0)"]
SMOOTH = ["torch.tanh({f})", "torch.sigmoid({f})", "torch.exp({f})", "torch.exp2({f})", "torch.expm1({f})",
          "torch.log({f})", "torch.log2({f})", "torch.log10({f})", "torch.log1p({f})", "torch.sin({f})",
          "torch.cos({f})", "torch.tan({f})", "torch.asin({f})", "torch.acos({f})", "torch.atan({f})",
          "torch.sinh({f})", "torch.cosh({f})", "torch.asinh({f})", "torch.acosh({f})", "torch.atanh({f})",
          "torch.atan2({f}, {h})", "torch.erf({f})", "torch.erfc({f})", "torch.erfinv({f})", "torch.lgamma({f})",
          "torch.digamma({f})", "torch.rsqrt({f})", "torch.reciprocal({t})", "{f} / {h}", "{t} / {u}", "{f} ** {h}",
          "{f} ** -1", "{f} ** 0.5", "{f} ** 3", "{f} ** {p}", "{f} ** -2", "2 ** {f}", "{s} ** {f}", "{f} ** 0",
          "{t}.pow({p})", "torch.pow({t}, {u})", "torch.hypot({f}, {h})", "torch.logaddexp({f}, {h})",
          "torch.logaddexp2({f}, {h})", "torch.xlogy({f}, {h})", "torch.special.xlog1py({f}, {h})",
          "torch.sinc({f})", "torch.special.entr({f})", "torch.special.ndtr({f})", "torch.special.i0({f})",
          "torch.logit({f})", "torch.nn.functional.gelu({f})", "torch.nn.functional.gelu({f}, approximate='tanh')",
          "torch.exp({g})", "torch.nn.functional.silu({f})", "torch.nn.functional.elu({f})",
          "torch.nn.functional.selu({f})", "torch.nn.functional.celu({f}, 0.5)", "torch.nn.functional.softplus({f})",
          "torch.sqrt({g})", "torch.nn.functional.softsign({f})", "torch.nn.functional.mish({f})",
          "torch.nn.functional.logsigmoid({f})", "torch.nn.functional.hardswish({f})",
          "torch.nn.functional.hardsigmoid({f})", "torch.sigmoid({b})", "torch.nn.functional.relu6({f})",
          "torch.nn.functional.softshrink({f})", "torch.sin({g})", "torch.log({g})",
          "torch.nn.functional.hardshrink({f})", "torch.nn.functional.tanhshrink({f})", "torch.deg2rad({f})",
          "torch.lerp({f}, {f}, 0.25)", "torch.lerp({f}, {f} + 1, {f})", "torch.addcmul({f}, {f}, {f}, value={s})",
          "torch.addcdiv({f}, {f}, {f}, value=2)", "torch.nn.functional.prelu({f}, torch.tensor([0.25]))",
          "{f}.sum()", "{f}.sum({d})", "{f}.mean()", "{f}.mean({d})", "{f}.prod({d})", "{f}.prod()", "{f}.nansum()",
          "{f}.nanmean({d})", "{f}.var()", "{f}.var({d}, correction=0)", "{f}.std({d})",
          "torch.var_mean({f}, {d})[0]", "{f}.norm()", "{f}.norm(1, {d})",
          "torch.linalg.vector_norm({f}, float('inf'))", "{t}.sum()", "{t}.mean(0)",
          "torch.linalg.vector_norm({f}, 0)", "torch.linalg.vector_norm({f}, -float('inf'), {d})", "{t}.prod()",
          "torch.softmax({f}, {d})", "torch.log_softmax({f}, {d})", "torch.logsumexp({f}, {d})",
          "torch.nn.functional.softmin({f}, {d})", "torch.softmax({f}, {d}, dtype=torch.float64)", "{t}.cumsum({d})",
          "{f}.cumprod({d})", "{f}.logcumsumexp({d})", "torch.nn.functional.normalize({f}, dim={d})",
          "torch.nn.functional.layer_norm({f}, {f}.shape[-1:])", "torch.nn.functional.rms_norm({f}, {f}.shape[-1:])",
          "torch.nn.functional.group_norm({f}[None], 1)", "torch.nn.functional.mse_loss({f}, {h})",
          "torch.nn.functional.l1_loss({f}, {h})", "torch.nn.functional.smooth_l1_loss({f}, {h})",
          "torch.nn.functional.huber_loss({f}, {h})", "torch.nn.functional.kl_div({f}, {h}, reduction='sum')",
          "torch.nn.functional.binary_cross_entropy_with_logits({f}, {h})", "torch.dist({f}, {f})",
          "torch.nn.functional.cross_entropy({f}.view(1, -1), {x}[:1])",
          "torch.nn.functional.cosine_similarity({f}, {f})", "{f} @ {f}.mT", "torch.matmul({f}, {f})",
          "torch.outer({f}, {f})", "torch.dot({f}, {f})", "torch.cov({f})", "torch.cdist({f}[None], {f}[None])",
          "torch.trapezoid({f})", "torch.cross({f}, {f})", "torch.quantile({f}.float(), 0.5)",
          "torch.renorm({f}, 2, 0, 1.0)", "torch.addmm({f}, {f}, {f})",
          "torch.nn.functional.avg_pool1d({f}[None], 2)", "torch.nn.functional.max_pool1d({e}[None], 2, 1, 1)",
          "torch.nn.functional.max_pool2d({e}[None], 3, 2, 1)", "torch.nn.functional.avg_pool2d({f}[None], 3, 2, 1)",
          "torch.nn.functional.avg_pool2d({f}[None], 2, 1, 1, ceil_mode=True, count_include_pad=False)",
          "torch.nn.functional.max_pool2d({e}[None], 2, 2, ceil_mode=True)",
          "torch.nn.functional.adaptive_avg_pool1d({f}[None], 2)",
          "torch.nn.functional.adaptive_max_pool1d({e}[None], 2)",
          "torch.nn.functional.adaptive_avg_pool2d({f}[None], (3, 2))",
          "torch.nn.functional.lp_pool1d({f}[None], 2, 2)",
          "torch.nn.functional.interpolate({f}[None, None], scale_factor=2)", "torch.polar({f}, {f})",
          "torch.nn.functional.interpolate({f}[None, None], size=(3, 5), mode='bilinear')",
          "torch.nn.functional.interpolate({f}[None, None], size=(3, 5), mode='bilinear', align_corners=True)",
          "torch.nn.functional.interpolate({f}[None, None], size=(2, 3), mode='nearest-exact')",
          "torch.nn.functional.interpolate({f}[None, None], scale_factor=1.5, mode='bicubic')",
          "torch.nn.functional.interpolate({f}[None, None], size=(3, 2), mode='area')",
          "torch.nn.functional.interpolate({f}[None, None], size=(7, 3), mode='bilinear', antialias=True)",
          "torch.nn.functional.interpolate({f}[None], size=4, mode='linear')",
          "torch.nn.functional.conv1d({f}[None], {f}[:, :1].reshape(1, -1, 1))",
          "torch.nn.functional.conv2d({f}[None, None], {f}[:2, :2][None, None], padding=1)",
          "torch.nn.functional.conv2d({f}[None, None], {f}[:2, :1][None, None], stride=2, padding=1, dilation=2)",
          "torch.nn.functional.conv_transpose2d({f}[None, None], {f}[:2, :2][None, None], stride=2)",
          "torch.nn.functional.unfold({f}[None, None], 2, padding=1)", "torch.nn.functional.glu({f})",
          "torch.nn.functional.pad({f}[None], (1, 1), mode='reflect')", "torch.complex({f}, {f})", "{c}.abs()",
          "torch.nn.functional.pad({f}[None], (2, 1), mode='replicate')", "torch.view_as_real({c})",
          "torch.exp({c})", "torch.nn.functional.pad({f}[None], (1, 2), mode='circular')", "{c} * {c}",
          "{c}.conj() * {c}", "{c}.angle()", "torch.fft.fft({f})", "torch.fft.rfft({f}).abs()",
          "torch.view_as_complex({f}[..., :2].contiguous())", "torch.linalg.matrix_norm({f})", "torch.corrcoef({f})",
          "torch.clamp({f}, min={f})", "torch.exp({z})"]
MOVES = ["torch.cat([{t}, {u}], {d})", "torch.stack([{t}, {t}], {d})", "torch.cat([{t}, {u}])", "{t}.flip({d})",
         "{t}.roll(1, {d})", "{t}.roll(-1)", "{t}.repeat(2, *[1] * ({t}.dim() - 1))",
         "{t}.repeat_interleave(2, {d})", "torch.nn.functional.pad({t}, (1, 2))",
         "torch.nn.functional.pad({t}, (-1, 1), value={s})", "{t}.tril(-1)", "{t}.triu()", "{t}[{x}]",
         "{t}[..., {x}]", "{t}[{x}, {x}]", "{t}[{x}, :, None]", "{t}.index_select({d}, {x})", "{t}[:, {x}, 0]",
         "{t}[{b}]", "torch.gather({t}, {d}, {x}.view(-1, 1))", "{t}.take({x})",
         "torch.take_along_dim({t}, {x}.view(-1, 1), 0)", "{t}.index_add(0, {x}, {t}[{x}])", "{t}[-1:]",
         "{t}.index_add({d}, {x}, {t}.index_select({d}, {x}), alpha={p})", "{t}.index_copy(0, {x}[:1], {t}[:1])",
         "{t}.scatter(0, {x}.view(-1, 1), {s})", "{t}.scatter_add(0, {x}.view(-1, 1), {t}[{x}][:, :1])",
         "{t}.scatter(0, {x}[:1].view(-1, 1), {t}[:1, :1])", "{t}.scatter_add(0, {x}, {t}[{x}])",
         "{t}.scatter_reduce(0, {x}, {t}[{x}], 'amax')", "{t}.scatter_reduce(0, {x}, {t}[{x}], 'sum')",
         "{t}.scatter_reduce(0, {x}, {t}[{x}], 'amin', include_self=False)", "{t}.index_fill({d}, {x}, {p})",
         "{t}.scatter_reduce(0, {x}, {t}[{x}], 'prod')", "{t}.scatter_reduce(0, {x}, {t}[{x}], 'mean')",
         "{t}.index_reduce(0, {x}, {t}[{x}], 'amax')", "{t}.index_reduce(0, {x}, {t}[{x}], 'prod')",
         "{t}.index_put(({x},), {t}[{x}], accumulate=True)", "{t}.index_put(({x},), {z}.to({t}.dtype))",
         "{t}.index_put(({x},), {z}.to({t}.dtype), accumulate=True)", "{t}.masked_scatter({b}, {t})",
         "{t}.select_scatter({t}.select({d}, 0), {d}, -1)", "{t}.slice_scatter({t}[:1], 0, -1)", "{t}.fliplr()",
         "{t}.diagonal_scatter({t}.diagonal())", "torch.rot90({t})", "torch.tile({t}, (2,))", "torch.diag({t})",
         "torch.diag_embed({t})", "torch.block_diag({t}, {t})", "torch.meshgrid({t}, {t}, indexing='ij')[1]",
         "torch.hstack([{t}, {t}])", "torch.dstack([{t}, {t}])", "torch.column_stack([{t}, {t}])",
         "torch.cat([*{t}.chunk(2, {d})][::-1], {d})", "torch.stack({t}.unbind({d})[::-1], {d})",
         "torch.cat({t}.split(1, {d}), {d})", "torch.tril_indices({p}, 3)", "torch.kron({t}, {t})",
         "torch.broadcast_tensors({t}, {u})[0]", "torch.atleast_2d({t})", "torch.combinations({t})",
         "torch.nn.functional.pixel_shuffle({t}[None].expand(4, *{t}.shape), 2)",
         "{t}.to(memory_format=torch.contiguous_format)", "torch.einsum('i...->...', {t})",
         "torch.einsum('...ii->...i', {t})", "torch.vander({t})", "{t}.unfold(0, 2, 1)",
         "torch.tensordot({f}, {f}, 1)", "{t}.contiguous()", "{t}.clone()", "torch.empty_like({t}).fill_({p})",
         "torch.cummax({e}, {d})[0]", "{e}.flatten().argsort(stable=True)",
         "torch.constant_pad_nd({t}, (1, 0, 0, 1), {p})"]
VIEWS = ["{t}.transpose({d}, {d2})", "{t}.unsqueeze({d})", "{t}.squeeze()", "{t}.squeeze({d})", "{t}.flatten()",
         "{t}.reshape(-1)", "{t}.view(-1)", "{t}[1:]", "{t}[:0]", "{t}[::2]", "{t}[..., 1:]", "{t}[..., ::2]",
         "{t}[0]", "{t}[..., -1]", "{t}[None]", "{t}[..., None]", "{t}.narrow({d}, 0, 1)", "{t}.select({d}, -1)",
         "{t}.expand(2, *{t}.shape)", "{t}.chunk(2, {d})[-1]", "{t}.split(1, {d})[0]", "{t}.unbind({d})[-1]",
         "{t}.diagonal()", "{t}.T", "{t}.mT", "{t}.tensor_split(2, {d})[0]", "{t}.as_strided((2, 2), (1, 1))",
         "{t}.as_strided((2,), (0,))", "{e}.view(torch.{same})", "{t}.expand_as({u})", "{t}.broadcast_to({u}.shape)",
         "{t}.detach()", "{t}.movedim(0, -1)", "{t}.real", "{t}.permute(*reversed(range({t}.dim())))", "{t}.data",
         "{t}.hsplit(1)[0]", "{t}.swapaxes(0, {d})", "{t}.unflatten(0, (1, -1))", "{t}.view_as({u})"]
WRITES = ["{t}.add_({u})", "{t}.sub_({u})", "{t}.mul_({u})", "{t}.mul_({s})", "{t}.add_({s})", "{t}.div_({p})",
          "{t}.zero_()", "{t}.fill_({s})", "{t}.fill_({z})", "{t}[0] = {s}", "{t}[..., :1] = {u}", "{t}.copy_({u})",
          "{t}[:] = {u}", "{t}[{b}] = {s}", "{t}[{b}] = {z}", "{t}[{b}] += 1", "{t}.masked_fill_({b}, {s})",
          "{t}[:, 0].fill_({s})", "{t}.transpose(0, -1).mul_(2)", "{t}[::2].add_(1)", "{t}[{x}] = {s}",
          "{t}[{x}] += 1", "{t}[{x}] = {t}[0]", "{t} += {u}", "{t} *= {s}", "{t} -= {z}", "{t} /= {p}",
          "{t} //= {p}", "{t} %= {p}", "{t} **= 2", "{g} &= {k}", "{g} |= {k}", "{g} ^= {k}", "{g} <<= 1",
          "{g} >>= 1", "{b} &= {b}", "{b} |= {b}", "{b} ^= {b}", "{e}.clamp_({s}, {p})", "{e}.clamp_(min={s})",
          "{t}.neg_()", "{e}.abs_()", "{e}.sign_()", "{e}.floor_()", "{f}.exp_()", "{f}.tanh_()", "{f}.sqrt_()",
          "{t}.t_()", "{t}.unsqueeze_(0)", "{t}.squeeze_()", "{t}.transpose_(0, {d})",
          "{t}.select({d}, 0).copy_({u}.select({d2}, -1))", "{t}.view(-1)[1:].neg_()", "{t}.fill_diagonal_({p})",
          "{t}.index_fill_({d}, {x}, {s})", "{t}.index_add_(0, {x}, {t}[{x}])",
          "{t}.index_put_(({x},), {z}.to({t}.dtype), accumulate=True)", "{t}.scatter_(0, {x}.view(-1, 1), {s})",
          "{t}.scatter_add_(0, {x}, {t}[{x}])", "{t}.diagonal().add_(1)", "{t}[-1] -= {t}[0]", "{t}.flip(0).add_(1)",
          "{t}.tril_()", "{t}.triu_(1)", "{t}.cumsum_(0)", "torch.add({t}, {u}, out={t})",
          "torch.mul({t}, {s}, out={u})", "torch.sum({t}, {d}, out={u})", "torch.exp({f}, out={h})",
          "torch.eq({e}, {w}, out={b})", "torch.abs({e}, out={e})", "torch.where({b}, {t}, {u}, out={t})",
          "torch.cat([{t}, {t}], out={u})", "{t}.set_({t}.clone())", "{t}.bitwise_not_()", "{b}.logical_not_()",
          "{t}.lerp_({t}, 0.5)", "{t}.addcmul_({t}, {t})", "{t}.put_({x}, {t}.flatten()[:{x}.numel()])",
          "{t}.resize_(0)", "{t}.logical_and_({u})", "{t}.eq_({s})", "{t}.gt_({z})",
          "{t}.masked_scatter_({b}, {t}.clone())", "{t}.expand(2, *{t}.shape)[0].add_(1)",
          "{t}[..., 0] = {t}[..., -1]", "{t}[1:] = {t}[:-1].clone()", "{t}[1:].copy_({t}[:-1])"]
POOLS = {"exact": EXACT, "discrete": DISCRETE, "integer": INTEGER, "smooth": SMOOTH, "moves": MOVES, "views": VIEWS,
         "writes": WRITES}
DTYPES = ["float32"] * 4 + ["float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"] + [
    "int64", "bool"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]
NUMBERS = ["0", "1", "-1", "2", "3", "-3", "0.5", "-0.25", "2.0", "-0.0", "True", "False", "7", "100", "-100", "1.5"]
SUMS = ["prod", "mean", "sum", "@", "einsum", "tensordot", "kron", "vander", "scatter_reduce", "_add", "accumulate",
        "reduce"]
TIES = ["max", "min", "clamp", "sort", "topk", "kthvalue", "median", "mode", "hardtanh", "relu"]  # of 0.0 and -0.0
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0]


def values(rng, dtype, shape, tame):
    import torch
    dtype = getattr(torch, dtype)
    count = 1
    for size in shape:
        count *= size
    if dtype == torch.bool:
        made = [rng.random() < 0.5 for _ in range(count)]
    elif dtype.is_floating_point or dtype.is_complex:
        made = [rng.randint(-8, 8) / 4 for _ in range(count)]
        if not tame:
            made = [rng.choice(SPECIAL) if rng.random() < 0.2 else v for v in made]
    else:
        limits = torch.iinfo(dtype)
        low = 0 if dtype == torch.uint8 else -4
        made = [rng.randint(low, 4) for _ in range(count)]
        if not tame:
            made = [rng.choice([limits.max, limits.min, limits.max - 1, 100]) if rng.random() < 0.15 else v
                    for v in made]
    return torch.tensor(made, dtype=dtype).view(shape)


def layouts(rng, t):
    """The same values in another layout."""
    import torch
    kind = rng.randint(0, 7)
    if kind == 0 and t.dim() == 2:
        return t.T.contiguous().T
    if kind == 1 and t.dim() and t.shape[-1]:
        return t.repeat(*[1] * (t.dim() - 1), 2)[..., ::2]
    if kind == 2 and t.dim() and t.shape[0]:
        return torch.cat([t, t])[-t.shape[0]:]
    if kind == 3 and t.dim():
        return t[:1].expand(t.shape) if t.shape[0] else t
    if kind == 4:
        return torch.cat([t.flatten()[:0], t.new_zeros(1), t.flatten()])[1:].view(t.shape)
    return t


def make_inputs(rng, dtypes, kinds, tame, sizes):
    import torch
    rows, columns = sizes
    made = []
    for dtype, kind in zip(dtypes, kinds):
        shape = [(rows, columns), (columns,), (rows, 1), (), (2, rows, columns), (1, 1), (rows, columns), (1,),
                 (rows, columns), (0, columns), (rows, 0)][kind]
        made.append(layouts(rng, values(rng, dtype, shape, tame)))
    made.append(torch.tensor([rng.randint(-1, 1) for _ in range(rng.choice([1, 2, 3]))]))
    made.append(values(rng, "bool", (rows, columns), True))
    made.append(values(rng, rng.choice(DTYPES), (), tame))
    share = rng.random()
    if share < 0.1:
        made[1] = made[0]
    elif share < 0.2 and made[0].dim():
        made[1] = made[0][1:]
    elif share < 0.25 and made[0].dim() and made[0].shape[-1]:
        made[1] = made[0][..., 0]
    return [*made, rng.choice([0, 1, 2, 3, -1, 7]), rng.choice([0.5, 2.0, -0.0, -1.5, 3.0])]


TENSORS, INPUTS = ["a", "b", "c", "n", "m", "z"], ["a", "b", "c", "n", "m", "z", "k", "q"]  # k and q: an int, a float


class Program:
    def __init__(self, seed, lines=None):
        import torch
        self.rng = rng = random.Random(seed)
        lines = lines or rng.randint(1, 7)
        self.tame = rng.random() < 0.5
        self.dynamic = rng.choice([None, None, None, True])
        dtypes = [rng.choice(DTYPES + ["complex64"] * (rng.random() < 0.1)) for _ in range(3)]
        if rng.random() < 0.4:
            dtypes = [dtypes[0]] * 3
        kinds = [rng.randrange(9 + 2 * (rng.random() < 0.2)) for _ in range(3)]
        size = rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 3, 4, 9, 17])
        seeds = [rng.random() for _ in range(4)]
        self.calls = [make_inputs(random.Random(seeds[0]), dtypes, kinds, self.tame, size),
                      make_inputs(random.Random(seeds[0]), dtypes, kinds, self.tame, size),
                      make_inputs(random.Random(seeds[1]), dtypes, kinds, self.tame, size)]
        if rng.random() < 0.4:
            sizes = [(rng.randint(1, 6), rng.randint(1, 9)) for _ in range(2)]
            self.calls += [make_inputs(random.Random(s), dtypes, kinds, self.tame, size)
                           for s, size in zip(seeds[2:], sizes)]
        self.scope = {"torch": torch, **dict(zip(INPUTS, copies(self.calls[0])))}
        self.names, self.lines, self.exact = list(TENSORS), [], set(INPUTS)
        for _ in range(100):
            if len(self.lines) >= lines:
                break
            self.try_line()
        shown = [n for n in self.names if n not in INPUTS]
        self.result = ", ".join(shown[-4:]) if shown else "a"

    def fill(self, pattern):
        rng, scope = self.rng, self.scope
        recent = self.names[-4:] * 2 + self.names

        def some(test):
            return [n for n in recent if test(scope[n].dtype)] or None
        import torch
        kinds = {"tu": recent, "ew": [n for n in recent if n in self.exact] or None,
                 "fh": some(lambda d: d.is_floating_point),
                 "gk": some(lambda d: not (d.is_floating_point or d.is_complex or d == torch.bool)),
                 "b": some(lambda d: d == torch.bool), "c": some(lambda d: d.is_complex) or recent,
                 "z": [n for n in recent if not scope[n].dim()] or None}
        used = set()

        def pick(key):
            for letters, names in kinds.items():
                if key in letters:
                    if not names:
                        return None
                    name = rng.choice(names)
                    used.add(name)
                    return name
            return {"x": "n", "s": rng.choice([*NUMBERS, "k", "q", "k", "q"]), "p": str(rng.randint(1, 4)),
                    "d": str(rng.choice([-1, 0, -1, 0, 1])), "d2": str(rng.choice([-1, 0, 1])),
                    "dtype": rng.choice(DTYPES), "integer": rng.choice(INTEGERS),
                    "same": rng.choice(["int32", "uint8", "int16"])}[key]
        text, rest = "", pattern
        while "{" in rest:
            before, rest = rest.split("{", 1)
            key, rest = rest.split("}", 1)
            word = pick(key)
            if word is None:
                return None, used
            text += before + word
        return text + rest, used

    def rounds(self, pool, line, used, after):
        """Whether the order of evaluation shows in the result of the line."""
        import torch
        if pool == "smooth" or any(word in line for word in ("lerp", "addc", "exp", "tanh", "float_power")):
            return True
        if any(word in line for word in SUMS) and any(self.scope[n].dtype.is_floating_point for n in used):
            return True
        halves = (torch.float16, torch.bfloat16)  # whose roundings between ops may be dropped
        return pool not in ("views", "moves") and any(t.dtype in halves for t in after.values()
                                                      if isinstance(t, torch.Tensor))

    def try_line(self):
        import torch
        pool = self.rng.choice(["exact"] * 3 + ["discrete"] * 3 + ["integer"] * 2 + ["smooth"] * 3 + ["views"] * 2
                               + ["moves"] * 3 + ["writes"] * 3)
        pattern = self.rng.choice(POOLS[pool])
        text, used = self.fill(pattern)
        if text is None:
            return
        name = f"t{len(self.lines)}"
        line = text if pool == "writes" else f"{name} = {text}"
        trial = dict(zip(self.scope, copies(list(self.scope.values()))))
        try:
            with torch.no_grad():
                exec(line, trial)
        except Exception:
            return
        made = [trial[n] for n in self.names] + ([trial[name]] if pool != "writes" else [])
        if not all(isinstance(t, torch.Tensor) and t.numel() < 3000 for t in made):
            return
        exact = used <= self.exact and not self.rounds(pool, line, used, trial)
        self.scope = trial
        if pool != "writes":
            self.names.append(name)
            if exact:
                self.exact.add(name)
        elif not exact:
            where = {trial[n].untyped_storage().data_ptr() for n in used}
            self.exact -= {n for n in self.names if trial[n].untyped_storage().data_ptr() in where} | used
        self.lines.append(line)

    @property
    def unit(self):
        """The largest unit in the last place of the dtypes on the way."""
        import torch
        dtypes = {t.dtype for t in self.scope.values() if isinstance(t, torch.Tensor) and t.dtype.is_floating_point}
        dtypes |= {d for d in (torch.float16, torch.bfloat16, torch.float32) if str(d) in self.source()}
        return max([2**-23, *(torch.finfo(d).eps for d in dtypes)])

    @property
    def overflows(self):
        """Whether float16 is on the way: values between ops may exceed its range."""
        return "torch.float16" in self.source() or any(str(getattr(t, "dtype", "")) == "torch.float16"
                                                       for t in self.scope.values())

    @property
    def inputs(self):
        return self.calls[0]

    def source(self):
        return f"def f({', '.join(INPUTS)}):\n" + "".join(f"    {line}\n" for line in self.lines) + (
            f"    return {self.result}\n")


def classes(t):
    import torch
    t = t.double() if t.dtype.is_floating_point else t
    return torch.where(t.isnan(), 3, torch.where(t == float("inf"), 1, torch.where(t == -float("inf"), 2, 0)))


def difference(got, want, program, reference, reach, where, exact_zeros):
    """reference() is the result in float64, and reach() how far roundings move each element."""
    import torch
    if type(got) is not type(want):
        return f"{where}: {type(got)} instead of {type(want)}"
    if not isinstance(want, torch.Tensor):
        return None if got == want else f"{where}: {got} instead of {want}"
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{where}: {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    strides = [(a, b) for n, a, b in zip(want.shape, got.stride(), want.stride()) if n > 1 and want.numel()]
    if any(a != b for a, b in strides):
        return f"{where}: strides {got.stride()} instead of {want.stride()}"
    if got.is_conj() != want.is_conj() or got.is_neg() != want.is_neg():
        return f"{where}: conj {got.is_conj()} instead of {want.is_conj()}"
    if want.dtype.is_complex:
        # Bits: framejit does not compute with complex numbers. NaNs of any bits are equal.
        got, want = torch.view_as_real(got.resolve_conj()), torch.view_as_real(want.resolve_conj())
        same = (got == want) & (got.signbit() == want.signbit()) | got.isnan() & want.isnan()
        return None if bool(same.all()) else f"{where}: complex values differ"
    if not want.dtype.is_floating_point:
        return None if torch.equal(got, want) else f"{where}: values differ, {got.tolist()} instead of {want.tolist()}"
    zeros = (want == 0) & (got == 0)
    if exact_zeros and bool((zeros & (got.signbit() != want.signbit())).any()):
        return f"{where}: sign of zero, {got.tolist()} instead of {want.tolist()}"
    coarse = program.unit
    if not program.overflows and not torch.equal(classes(got), classes(want)):
        return f"{where}: {got.tolist()} instead of {want.tolist()}"
    fine = torch.isfinite(want) & torch.isfinite(got)
    got, want = got[fine].double(), want[fine].double()
    if torch.equal(got, want):
        return None
    if bool(((got - want).abs() <= 4 * coarse * want.abs()).all()):
        return None
    exact = reference()
    exact = exact[fine].double() if isinstance(exact, torch.Tensor) and exact.shape == fine.shape else want
    bound = 8 * (want - exact).abs() + 32 * coarse * exact.abs()
    far = ~((got - exact).abs() <= bound) & exact.isfinite()
    if bool(far.any()):
        far &= ~((got - exact).abs() <= 8 * reach()[fine].nan_to_num())
    if not bool(far.any()):
        return None
    return f"{where}: {got[far][:4].tolist()} instead of {want[far][:4].tolist()}, exactly {exact[far][:4].tolist()}"


def run(program, seed, backend):
    import torch
    import framejit
    from wide import in_float64
    source = program.source()
    scope = {"torch": torch}
    exec(compile(source, f"<values_fuzz {seed}>", "exec"), scope)
    framejit.reset()
    compiled = framejit.compile(scope["f"], backend=backend, dynamic=program.dynamic)
    program.raised = False
    for number, inputs in enumerate(program.calls):
        plain, ours = copies(inputs), copies(inputs)
        want, got = graphs_fuzz.call(scope["f"], plain), graphs_fuzz.call(compiled, ours)
        if isinstance(want, str) or isinstance(got, str):
            program.raised = True
            if want != got:
                return f"call {number}: {got} instead of {want}"
            continue
        if len(got) != len(want):
            return "another number of results"

        def exact(k, noise=None):
            result, after, _ = in_float64(scope["f"], copies(inputs), noise=noise)
            flat = [*(result if isinstance(result, list) else [result]), *after]
            return flat[k]
        for k, (a, b) in enumerate(zip(got + ours, want + plain)):
            where = f"call {number}, " + (f"result {k}" if k < len(want) else f"argument {INPUTS[k - len(want)]}")

            def reach(k=k):
                e = exact(k).double()
                return torch.stack([(exact(k, n).double() - e).abs() for n in range(8)]).amax(0)
            name = program.result.split(", ")[k] if k < len(want) else INPUTS[k - len(want)]
            zeros = name in program.exact and not any(word in source for word in TIES)
            why = difference(a, b, program, lambda k=k: exact(k), reach, where, zeros)
            if why:
                return why
        shared, expected = (sharing([v for v in values if isinstance(v, torch.Tensor)])
                            for values in (got + ours, want + plain))
        if shared != expected:
            return f"call {number}: memory is shared as {shared} instead of {expected}"
    return None


def shrink(program, seed, backend):
    """Drops lines with their results, and results."""
    def result_without(name):
        before = program.result
        program.result = ", ".join(n for n in before.split(", ") if n != name) or "a"
        return lambda: setattr(program, "result", before)

    def drop_line(edit, name):
        undo_result, undo = result_without(name), edit()
        return lambda: (undo(), undo_result())

    def edits():
        for k, edit in zip(reversed(range(len(program.lines))), rounds.drops(program.lines)):
            name = program.lines[k].split(" = ")[0]
            yield lambda: drop_line(edit, name)
        names = program.result.split(", ")
        for name in names if len(names) > 1 else []:
            yield lambda: result_without(name)
    rounds.shrink(edits, lambda: graphs_fuzz.still_fails(program, seed, backend, run))


def shown(v):
    if isinstance(v, (int, float)):
        return v
    return f"{v.dtype}{list(v.shape)}{v.stride()} {v.tolist() if v.numel() < 40 else ''}"


def fuzz(first, count, backend):
    import framejit

    def one(seed):
        program = Program(seed)
        why = run(program, seed, backend)
        stats = framejit.stats()
        whole = graphs_fuzz.is_whole(stats)
        if why:
            shrink(program, seed, backend)
        elif stats["fallbacks"] and not program.raised:
            why = f"compiled code failed and plain Python ran: {stats['fallback_reasons']}"
        if why:
            inputs = "".join(f"  {n}: {shown(v)}\n" for n, v in zip(INPUTS, program.inputs))
            why = f"{why}\n{program.source()}{inputs}  now: {run(program, seed, backend)}"
        return why, whole
    return rounds.run(first, count, one, "whole", backend)


def main():
    options = command.parser("framejit").parse_args()
    return 1 if fuzz(options.seed, options.count, options.backend)[0] else 0


if __name__ == "__main__":
    import warnings
    warnings.simplefilter("ignore")
    sys.exit(main())
