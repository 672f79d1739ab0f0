// inductor/lowering/factory.cpp — tensors from nothing: constants and ranges. Sizes and dtype are those of the result's
// meta.
#include "inductor/lowering/lower.h"

namespace framejit::inductor {
namespace {

bool fill(LowerContext& ctx, size_t argument) {
  NestBuilder b = ctx.result_nest();
  const DType dtype = ctx.result_meta().dtype;
  InstId value;
  if (const auto tensor = ctx.tensor(argument)) {
    value = b.cast(ctx.load_broadcast(b, *tensor, b.range_dims()), dtype);
  } else if (const auto size = ctx.size(argument)) {
    value = b.cast(b.index(*size), dtype);
  } else if (const auto number = ctx.number(argument)) {
    value = b.constant(*number, dtype);
  } else {
    return false;
  }
  ctx.store_result(std::move(b), value);
  return true;
}

// full(size, value), full_like(self, value), fill(self, value); new_full(self, size, value)
bool lower_full(LowerContext& ctx) { return fill(ctx, 1); }
bool lower_new_full(LowerContext& ctx) { return fill(ctx, 2); }

// arange.start_step(start, end, step): start + i * step, computed as torch does: in int64 for integer results, in f64
// (then rounded) for float ones.
bool lower_range(LowerContext& ctx) {
  const DType dtype = ctx.result_meta().dtype;
  const auto number = [&](NestBuilder& b, size_t i, int64_t otherwise, DType compute) -> std::optional<InstId> {
    if (!ctx.given(i)) return b.integer(otherwise, compute);
    if (const auto e = ctx.size(i)) return b.cast(b.index(*e), compute);
    const auto value = ctx.number(i);
    if (!value || !is_float(compute)) return std::nullopt;
    return b.constant(*value, compute);
  };
  const DType compute = is_float(dtype) ? DType::kFloat64 : DType::kInt64;
  NestBuilder b = ctx.result_nest();
  const auto first = number(b, 0, 0, compute), stride = number(b, 2, 1, compute);
  if (!first || !stride) return false;
  const InstId position = b.cast(b.index(b.dim(0)), compute);
  const InstId value = b.scalar(ScalarOp::k_add, {*first, b.scalar(ScalarOp::k_mul, {position, *stride})});
  ctx.store_result(std::move(b), value);
  return true;
}

// eye(n), eye(n, m)
bool lower_eye(LowerContext& ctx) {
  NestBuilder b = ctx.result_nest();
  const InstId same = b.scalar(ScalarOp::k_eq, {b.index(b.dim(0)), b.index(b.dim(1))});
  const InstId value = b.cast(same, ctx.result_meta().dtype);
  ctx.store_result(std::move(b), value);
  return true;
}

}  // namespace

// The other fills and ranges are decomposed into full and arange.start_step; if the number is a tensor, they stay.
void register_factory_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {
      {"full", lower_full},         {"full_like", lower_full},          {"fill.Scalar", lower_full},
      {"new_full", lower_new_full}, {"arange.start_step", lower_range}, {"eye", lower_eye},
      {"eye.m", lower_eye}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
