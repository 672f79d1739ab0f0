// inductor/lowering/scan.cpp — running results along a dimension: cumsum, cumprod, cummax, cummin.
//
// A scan is one nest: the dimension is reduced, the others are ranges, and every reduced point stores. Sums and
// products are carried as in eager: integers in int64, float32 in float64, half precision in float32.
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

namespace {

DType carried_dtype(DType dtype) {
  if (!is_float(dtype)) return DType::kInt64;
  return dtype == DType::kFloat32 ? DType::kFloat64 : value_dtype(dtype);
}

// cumsum, cumprod (self, dim, dtype): self is first converted to the result's dtype.
bool lower_running(LowerContext& ctx, ReduceOp op) {
  const DType dtype = ctx.result_meta().dtype;
  const auto self = ctx.tensor(0);
  const auto dim = self ? ctx.dimension(1, ctx.meta(*self).ndim()) : std::nullopt;
  if (!dim || dtype == DType::kBool) return false;
  auto [b, index] = ctx.walk(ctx.meta(*self).sizes, *dim);
  InstId value = b.cast(ctx.load(b, *self, index), dtype);
  if (ctx.meta(*self).dtype != dtype) value = b.round_to(value, dtype);
  value = b.scan(op, b.cast(value, carried_dtype(dtype)));
  ctx.add_nest(std::move(b), ctx.result_buffer(), std::move(index), value);
  return true;
}
bool lower_cumsum(LowerContext& ctx) { return lower_running(ctx, ReduceOp::kSum); }
bool lower_cumprod(LowerContext& ctx) { return lower_running(ctx, ReduceOp::kProd); }

// cummax, cummin (self, dim): values, and the position of the last of equally good ones.
bool lower_extrema(LowerContext& ctx, ReduceOp value_op, ReduceOp position_op) {
  const auto self = ctx.tensor(0);
  const auto dim = self ? ctx.dimension(1, ctx.meta(*self).ndim()) : std::nullopt;
  if (!dim) return false;
  auto [b, index] = ctx.walk(ctx.meta(*self).sizes, *dim);
  const InstId input = b.round_to(ctx.load(b, *self, index), ctx.meta(*self).dtype);
  const InstId value = b.scan(value_op, input), position = b.scan(position_op, input);
  b.store(ctx.result_buffer(0), index, value);
  ctx.add_nest(std::move(b), ctx.result_buffer(1), std::move(index), position);
  return true;
}
bool lower_cummax(LowerContext& ctx) { return lower_extrema(ctx, ReduceOp::kMax, ReduceOp::kArgmax); }
bool lower_cummin(LowerContext& ctx) { return lower_extrema(ctx, ReduceOp::kMin, ReduceOp::kArgmin); }

}  // namespace

void register_scan_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {
      {"cumsum", lower_cumsum}, {"cumprod", lower_cumprod}, {"cummax", lower_cummax}, {"cummin", lower_cummin}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
