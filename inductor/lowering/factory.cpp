// inductor/lowering/factory.cpp — tensors from nothing: constants and ranges. Sizes and dtype are those of the result's meta.
#include "inductor/lowering/lower.h"

namespace framejit::inductor {
namespace {

bool fill(LowerContext& ctx, size_t argument, std::optional<double> fixed) {
  NestBuilder b = ctx.result_nest();
  const DType dtype = ctx.result_meta().dtype;
  InstId value;
  if (fixed) {
    value = b.constant(*fixed, dtype);
  } else if (const auto tensor = ctx.tensor(argument)) {
    value = b.cast(ctx.load_broadcast(b, *tensor, b.range_dims()), dtype);
  } else if (const auto size = ctx.size(argument)) {
    value = b.cast(b.index(*size), dtype);
  } else if (const auto number = ctx.number(argument)) {
    value = b.constant(*number, dtype);
  } else {
    return false;
  }
  ctx.finish_result(std::move(b), value);
  return true;
}

bool lower_zeros(LowerContext& ctx) { return fill(ctx, 0, 0.0); }
bool lower_ones(LowerContext& ctx) { return fill(ctx, 0, 1.0); }
bool lower_full(LowerContext& ctx) { return fill(ctx, 1, std::nullopt); }
bool lower_new_full(LowerContext& ctx) { return fill(ctx, 2, std::nullopt); }
bool lower_scalar_tensor(LowerContext& ctx) { return fill(ctx, 0, std::nullopt); }

// start + i * step, computed as torch does: in int64 for integer results, in f64 (then rounded) for float ones.
bool lower_range(LowerContext& ctx, std::optional<size_t> start, std::optional<size_t> step) {
  const DType dtype = ctx.result_meta().dtype;
  const auto number = [&](NestBuilder& b, std::optional<size_t> i, int64_t otherwise, DType compute) -> std::optional<InstId> {
    if (!i || !ctx.given(*i)) return b.integer(otherwise, compute);
    if (const auto e = ctx.size(*i)) return b.cast(b.index(*e), compute);
    const auto value = ctx.number(*i);
    if (!value || !is_float(compute)) return std::nullopt;
    return b.constant(*value, compute);
  };
  const DType compute = is_float(dtype) ? DType::kFloat64 : DType::kInt64;
  NestBuilder b = ctx.result_nest();
  const auto first = number(b, start, 0, compute), stride = number(b, step, 1, compute);
  if (!first || !stride) return false;
  const InstId position = b.cast(b.index(b.dim(0)), compute);
  const InstId value = b.scalar(ScalarOp::k_add, {*first, b.scalar(ScalarOp::k_mul, {position, *stride})});
  ctx.finish_result(std::move(b), value);
  return true;
}
bool lower_arange(LowerContext& ctx) { return lower_range(ctx, std::nullopt, std::nullopt); }
bool lower_arange_start(LowerContext& ctx) { return lower_range(ctx, 0, std::nullopt); }
bool lower_arange_step(LowerContext& ctx) { return lower_range(ctx, 0, 2); }

// eye(n), eye(n, m)
bool lower_eye(LowerContext& ctx) {
  NestBuilder b = ctx.result_nest();
  const InstId same = b.scalar(ScalarOp::k_eq, {b.index(b.dim(0)), b.index(b.dim(1))});
  const InstId value = b.cast(same, ctx.result_meta().dtype);
  ctx.finish_result(std::move(b), value);
  return true;
}

}  // namespace

void register_factory_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {
      {"zeros", lower_zeros}, {"zeros_like", lower_zeros}, {"new_zeros", lower_zeros}, {"ones", lower_ones}, {"ones_like", lower_ones},
      {"new_ones", lower_ones}, {"full", lower_full}, {"full_like", lower_full}, {"new_full", lower_new_full}, {"fill.Scalar", lower_full},
      {"fill.Tensor", lower_full}, {"scalar_tensor", lower_scalar_tensor}, {"arange", lower_arange}, {"arange.start", lower_arange_start},
      {"arange.start_step", lower_arange_step}, {"eye", lower_eye}, {"eye.m", lower_eye}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
