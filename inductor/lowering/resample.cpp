// inductor/lowering/resample.cpp — elements from computed positions: nearest and linear resampling, reflected and
// repeated edges.
//
// A position is an index expression if an exact one exists; otherwise the kernel computes it as eager's kernels do. It
// is in range by construction and needs no check.
#include <algorithm>
#include <cmath>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::TensorMeta;
using graph::ValueId;

namespace {

// Scale of output to input positions, as at::native::area_pixel_compute_scale computes it without align_corners: in
// float32, except for the linear forms of float64.
std::optional<double> pixel_scale(LowerContext& ctx, size_t argument, int64_t input, int64_t output, bool in_double) {
  const auto given = ctx.given(argument) ? ctx.number(argument) : std::optional<double>(0.0);
  if (!given) return std::nullopt;
  if (in_double) return *given > 0 ? 1.0 / *given : static_cast<double>(input) / static_cast<double>(output);
  if (*given > 0) return static_cast<double>(static_cast<float>(1.0 / *given));
  return static_cast<double>(static_cast<float>(input) / static_cast<float>(output));
}

struct Axis {
  size_t dim;
  int64_t input, output;
  double scale;
};

// The last dimensions of (self, output_size, [align], scales...) with their scales; nothing if a size is not constant.
std::optional<std::vector<Axis>> resampled_axes(LowerContext& ctx, size_t count, size_t scales_at,
                                                bool in_double = false) {
  const auto self = ctx.tensor(0);
  if (!self || ctx.meta(*self).ndim() != count + 2) return std::nullopt;
  std::vector<Axis> axes;
  for (size_t k = 0; k < count; ++k) {
    const size_t dim = k + 2;
    const auto input = ctx.meta(*self).sizes[dim].as_constant(), output = ctx.result_meta().sizes[dim].as_constant();
    if (!input || !output || *input == 0 || *output == 0) return std::nullopt;
    const auto scale = pixel_scale(ctx, scales_at + k, *input, *output, in_double);
    if (!scale) return std::nullopt;
    axes.push_back({dim, *input, *output, *scale});
  }
  return axes;
}

int64_t nearest(const Axis& axis, int64_t to, double shift) {
  const float at = (static_cast<float>(to) + static_cast<float>(shift)) * static_cast<float>(axis.scale);
  return std::min(static_cast<int64_t>(std::floor(at)), axis.input - 1);
}

// The factor, if the nearest position of every output position `to` is to // factor. As an index expression, that is
// exact and cheap.
std::optional<int64_t> whole_factor(const Axis& axis, double shift) {
  if (axis.output % axis.input != 0) return std::nullopt;
  const int64_t factor = axis.output / axis.input;
  for (int64_t to = 0; to < axis.output; ++to)
    if (nearest(axis, to, shift) != to / factor) return std::nullopt;
  return factor;
}

// If sizes are equal or doubled, torch's kernels for two and three dimensions copy or double elements, some of them
// whatever scale was given. Which kernel runs depends on memory formats and sizes.
bool kernels_differ(const Axis& axis) {
  const bool is_copied = axis.output == axis.input, is_doubled = axis.output == 2 * axis.input;
  return (is_copied || is_doubled) && !whole_factor(axis, 0);
}

SymExpr place_of(NestBuilder& b, InstId value) { return b.symbols().value(b.cast(value, DType::kInt64)); }

// (self, output_size, scales...); `shift` is 0.5 for the exact forms.
bool lower_nearest(LowerContext& ctx, size_t count, double shift) {
  const auto axes = resampled_axes(ctx, count, 2);
  if (!axes || (count > 1 && shift == 0 && std::ranges::any_of(*axes, kernels_differ))) return false;
  NestBuilder b = ctx.result_nest();
  std::vector<SymExpr> index = b.range_dims();
  for (const Axis& axis : *axes) {
    SymExpr& at = index[axis.dim];
    if (const auto factor = whole_factor(axis, shift)) {
      at = SymExpr::floor_div(at, *factor);
      continue;
    }
    InstId position = b.cast(b.index(at), DType::kFloat32);
    if (shift != 0) position = b.scalar(ScalarOp::k_add, {position, b.constant(shift, DType::kFloat32)});
    position =
        b.scalar(ScalarOp::k_floor, {b.scalar(ScalarOp::k_mul, {position, b.constant(axis.scale, DType::kFloat32)})});
    const InstId whole = b.cast(position, DType::kInt64);
    at = place_of(b, b.scalar(ScalarOp::k_minimum, {whole, b.integer(axis.input - 1, DType::kInt64)}));
  }
  const InstId value = ctx.load(b, *ctx.tensor(0), std::move(index));
  ctx.store_result(std::move(b), value);
  return true;
}
bool lower_nearest1d(LowerContext& ctx) { return lower_nearest(ctx, 1, 0); }
bool lower_nearest2d(LowerContext& ctx) { return lower_nearest(ctx, 2, 0); }
bool lower_nearest3d(LowerContext& ctx) { return lower_nearest(ctx, 3, 0); }
bool lower_nearest_exact1d(LowerContext& ctx) { return lower_nearest(ctx, 1, 0.5); }
bool lower_nearest_exact2d(LowerContext& ctx) { return lower_nearest(ctx, 2, 0.5); }
bool lower_nearest_exact3d(LowerContext& ctx) { return lower_nearest(ctx, 3, 0.5); }

// Two neighbours along an axis and the weight of the second one.
struct Neighbours {
  SymExpr low, high;
  InstId weight;
};

Neighbours neighbours(NestBuilder& b, const Axis& axis, const SymExpr& at, bool align_corners, DType compute,
                      const TargetInfo& target) {
  const auto number = [&](double n) { return b.constant(n, compute); };
  if (axis.input == axis.output && !target.traits.resampling_keeps_equal_sizes)
    return {at, at, number(0)};  // eager multiplies by this zero, too: infinity gives NaN
  const double scale = !align_corners    ? axis.scale
                       : axis.output > 1 ? static_cast<double>(axis.input - 1) / static_cast<double>(axis.output - 1)
                                         : 0.0;
  InstId place = b.cast(b.index(at), compute);
  if (align_corners) {
    place = b.scalar(ScalarOp::k_mul, {place, number(scale)});
  } else {
    place = b.scalar(ScalarOp::k_mul, {b.scalar(ScalarOp::k_add, {place, number(0.5)}), number(scale)});
    place = b.scalar(ScalarOp::k_maximum, {b.scalar(ScalarOp::k_sub, {place, number(0.5)}), number(0)});
  }
  const InstId last = b.integer(axis.input - 1, DType::kInt64), one = b.integer(1, DType::kInt64);
  const InstId low = b.scalar(ScalarOp::k_minimum, {b.cast(b.scalar(ScalarOp::k_floor, {place}), DType::kInt64), last});
  const InstId high = b.scalar(ScalarOp::k_minimum, {b.scalar(ScalarOp::k_add, {low, one}), last});
  InstId weight = b.scalar(ScalarOp::k_sub, {place, b.cast(low, compute)});
  weight = b.scalar(ScalarOp::k_minimum, {b.scalar(ScalarOp::k_maximum, {weight, number(0)}), number(1)});
  return {place_of(b, low), place_of(b, high), weight};
}

InstId blend(LowerContext& ctx, NestBuilder& b, const std::vector<Axis>& axes, const std::vector<Neighbours>& near,
             size_t axis, std::vector<SymExpr> index, DType compute) {
  if (axis == axes.size()) return b.cast(ctx.load(b, *ctx.tensor(0), std::move(index)), compute);
  const Neighbours& n = near[axis];
  index[axes[axis].dim] = n.low;
  const InstId low = blend(ctx, b, axes, near, axis + 1, index, compute);
  index[axes[axis].dim] = n.high;
  const InstId high = blend(ctx, b, axes, near, axis + 1, index, compute);
  const InstId rest = b.scalar(ScalarOp::k_sub, {b.constant(1, compute), n.weight});
  return b.scalar(ScalarOp::k_add,
                  {b.scalar(ScalarOp::k_mul, {low, rest}), b.scalar(ScalarOp::k_mul, {high, n.weight})});
}

// (self, output_size, align_corners, scales...) for floats.
bool lower_linear(LowerContext& ctx, size_t count) {
  const auto axes = resampled_axes(ctx, count, 3, ctx.result_meta().dtype == DType::kFloat64);
  if (!axes || !is_float(ctx.result_meta().dtype)) return false;
  const DType compute = value_dtype(ctx.result_meta().dtype);
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> index = b.range_dims();
  if (ctx.target().traits.resampling_keeps_equal_sizes &&
      std::ranges::all_of(*axes, [](const Axis& axis) { return axis.input == axis.output; })) {
    const InstId value = ctx.load(b, *ctx.tensor(0), index);
    ctx.store_result(std::move(b), value);
    return true;
  }
  std::vector<Neighbours> near;
  for (const Axis& axis : *axes)
    near.push_back(neighbours(b, axis, index[axis.dim], ctx.flag(2, false), compute, ctx.target()));
  const InstId value = blend(ctx, b, *axes, near, 0, index, compute);
  ctx.store_result(std::move(b), value);
  return true;
}
bool lower_linear1d(LowerContext& ctx) { return lower_linear(ctx, 1); }
bool lower_bilinear2d(LowerContext& ctx) { return lower_linear(ctx, 2); }
bool lower_trilinear3d(LowerContext& ctx) { return lower_linear(ctx, 3); }

// (self, padding): positions outside become those of the edge, or are reflected at it.
bool lower_edge_pad(LowerContext& ctx, size_t count, bool reflects) {
  const auto self = ctx.tensor(0);
  const auto padding = ctx.integers(1);
  if (!self || !padding || padding->size() != 2 * count || ctx.meta(*self).ndim() < count ||
      ctx.meta(*self).numel() == SymExpr(0))
    return false;
  NestBuilder b = ctx.result_nest();
  std::vector<SymExpr> index = b.range_dims();
  for (size_t k = 0; k < count; ++k) {
    const int64_t before = (*padding)[2 * k], after = (*padding)[2 * k + 1];
    const size_t dim = index.size() - 1 - k;
    if (before == 0 && after == 0) continue;
    const InstId zero = b.integer(0, DType::kInt64), last = b.index(ctx.meta(*self).sizes[dim] - SymExpr(1));
    InstId at = b.index(index[dim] - SymExpr(before));
    if (reflects) {  // |at|, then mirrored at the last element
      at = b.scalar(ScalarOp::k_abs, {at});
      at = b.scalar(ScalarOp::k_sub, {last, b.scalar(ScalarOp::k_abs, {b.scalar(ScalarOp::k_sub, {last, at})})});
    } else {
      at = b.scalar(ScalarOp::k_minimum, {b.scalar(ScalarOp::k_maximum, {at, zero}), last});
    }
    index[dim] = place_of(b, at);
  }
  const InstId value = ctx.load(b, *self, std::move(index));
  ctx.store_result(std::move(b), value);
  return true;
}
template <size_t count, bool reflects>
bool lower_edges(LowerContext& ctx) { return lower_edge_pad(ctx, count, reflects); }

}  // namespace

void register_resample_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {{"upsample_nearest1d", lower_nearest1d},
                                                               {"upsample_nearest2d", lower_nearest2d},
                                                               {"upsample_nearest3d", lower_nearest3d},
                                                               {"_upsample_nearest_exact1d", lower_nearest_exact1d},
                                                               {"_upsample_nearest_exact2d", lower_nearest_exact2d},
                                                               {"_upsample_nearest_exact3d", lower_nearest_exact3d},
                                                               {"upsample_linear1d", lower_linear1d},
                                                               {"upsample_bilinear2d", lower_bilinear2d},
                                                               {"upsample_trilinear3d", lower_trilinear3d},
                                                               {"reflection_pad1d", lower_edges<1, true>},
                                                               {"reflection_pad2d", lower_edges<2, true>},
                                                               {"reflection_pad3d", lower_edges<3, true>},
                                                               {"replication_pad1d", lower_edges<1, false>},
                                                               {"replication_pad2d", lower_edges<2, false>},
                                                               {"replication_pad3d", lower_edges<3, false>}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
