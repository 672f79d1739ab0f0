// inductor/lowering/norm.cpp — softmax family and normalisations: a few nests over the same rows, which fusion makes one kernel.
//
// Statistics are f32 temporaries (f64 for f64). A row of only -inf gives NaN, as in eager.
#include <cmath>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::TensorMeta;
using graph::ValueId;

namespace {

struct Rows {
  SymSizes kept;       // sizes without the reduced dimension
  size_t dim;
  SymExpr extent;
};

Rows rows_along(const TensorMeta& m, size_t dim) {
  Rows rows{m.sizes, dim, m.sizes[dim]};
  rows.kept.erase(rows.kept.begin() + static_cast<long>(dim));
  return rows;
}

std::vector<SymExpr> insert_at(std::vector<SymExpr> index, size_t dim, const SymExpr& e) {
  index.insert(index.begin() + static_cast<long>(dim), e);
  return index;
}
std::vector<SymExpr> without(std::vector<SymExpr> index, size_t dim) {
  index.erase(index.begin() + static_cast<long>(dim));
  return index;
}

// _softmax, _log_softmax, _safe_softmax (self, dim, half_to_float)
bool lower_softmax_like(LowerContext& ctx, bool logarithm, bool safe) {
  const auto self = ctx.tensor(0);
  const auto dim_argument = ctx.integer(1);
  if (!self || !dim_argument || ctx.meta(*self).ndim() == 0 || !is_float(ctx.result_meta().dtype)) return false;
  const TensorMeta& m = ctx.meta(*self);
  const DType compute = value_dtype(ctx.result_meta().dtype);
  const Rows rows = rows_along(m, static_cast<size_t>(wrap_dim(*dim_argument, m.ndim())));
  if (rows.extent == SymExpr(0)) return false;
  const auto input = [&](NestBuilder& b, const std::vector<SymExpr>& index) { return b.cast(ctx.load(b, *self, index), compute); };

  const LoopBufferId max = ctx.temp(compute, rows.kept), sum = ctx.temp(compute, rows.kept);
  NestBuilder first = ctx.nest(rows.kept, {rows.extent});
  std::vector<SymExpr> row = first.range_dims();
  const InstId largest = first.reduce(ReduceOp::kMax, input(first, insert_at(row, rows.dim, first.dim(row.size()))));
  ctx.finish(std::move(first), max, row, largest);

  const LoopBufferId scaled = logarithm ? max : ctx.temp(compute, m.sizes);
  if (!logarithm) {
    NestBuilder e = ctx.nest(m.sizes);
    const InstId shifted = e.scalar(ScalarOp::k_sub, {input(e, e.range_dims()), ctx.load_temp(e, max, without(e.range_dims(), rows.dim))});
    std::vector<SymExpr> at = e.range_dims();
    const InstId value = e.scalar(ScalarOp::k_exp, {shifted});
    ctx.finish(std::move(e), scaled, at, value);
  }
  NestBuilder second = ctx.nest(rows.kept, {rows.extent});
  const std::vector<SymExpr> point = insert_at(row, rows.dim, second.dim(row.size()));
  InstId term;
  if (logarithm) {
    term = second.scalar(ScalarOp::k_exp, {second.scalar(ScalarOp::k_sub, {input(second, point), ctx.load_temp(second, max, row)})});
  } else {
    term = ctx.load_temp(second, scaled, point);
  }
  InstId total = second.reduce(ReduceOp::kSum, term);
  if (logarithm) total = second.scalar(ScalarOp::k_log, {total});
  ctx.finish(std::move(second), sum, row, total);

  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> own_row = without(b.range_dims(), rows.dim);
  InstId result;
  if (logarithm) {
    const InstId shifted = b.scalar(ScalarOp::k_sub, {input(b, b.range_dims()), ctx.load_temp(b, max, own_row)});
    result = b.scalar(ScalarOp::k_sub, {shifted, ctx.load_temp(b, sum, own_row)});
  } else {
    result = b.scalar(ScalarOp::k_div, {ctx.load_temp(b, scaled, b.range_dims()), ctx.load_temp(b, sum, own_row)});
  }
  if (safe) {
    const InstId masked = b.scalar(ScalarOp::k_eq, {ctx.load_temp(b, max, own_row), b.constant(-INFINITY, compute)});
    result = b.scalar(ScalarOp::k_select, {masked, b.constant(0, compute), result});
  }
  ctx.finish_result(std::move(b), result);
  return true;
}
bool lower_softmax(LowerContext& ctx) { return lower_softmax_like(ctx, false, false); }
bool lower_safe_softmax(LowerContext& ctx) { return lower_softmax_like(ctx, false, true); }
bool lower_log_softmax(LowerContext& ctx) { return lower_softmax_like(ctx, true, false); }

// Mean and reciprocal standard deviation over the reduced dimensions, stored in two temporaries over `kept`.
struct Statistics {
  LoopBufferId mean, rstd;
};
template <class LoadInput>
Statistics emit_statistics(LowerContext& ctx, const SymSizes& kept, const SymSizes& reduced, DType compute, double eps, LoadInput input) {
  Statistics result{ctx.temp(compute, kept), ctx.temp(compute, kept)};
  SymExpr count = 1;
  for (const SymExpr& e : reduced) count = count * e;
  NestBuilder first = ctx.nest(kept, reduced);
  const std::vector<SymExpr> row = first.range_dims();
  const InstId sum = first.reduce(ReduceOp::kSum, input(first));
  const InstId mean = first.scalar(ScalarOp::k_div, {sum, first.cast(first.index(count), compute)});
  ctx.finish(std::move(first), result.mean, row, mean);
  NestBuilder b = ctx.nest(kept, reduced);
  const InstId distance = b.scalar(ScalarOp::k_sub, {input(b), ctx.load_temp(b, result.mean, row)});
  const InstId squares = b.reduce(ReduceOp::kSum, b.scalar(ScalarOp::k_mul, {distance, distance}));
  const InstId variance = b.scalar(ScalarOp::k_div, {squares, b.cast(b.index(count), compute)});
  const InstId root = b.scalar(ScalarOp::k_sqrt, {b.scalar(ScalarOp::k_add, {variance, b.constant(eps, compute)})});
  const InstId rstd = b.scalar(ScalarOp::k_div, {b.constant(1, compute), root});
  ctx.finish(std::move(b), result.rstd, row, rstd);
  return result;
}

InstId normalise(LowerContext& ctx, NestBuilder& b, InstId input, const Statistics& s, const std::vector<SymExpr>& row) {
  return b.scalar(ScalarOp::k_mul, {b.scalar(ScalarOp::k_sub, {input, ctx.load_temp(b, s.mean, row)}), ctx.load_temp(b, s.rstd, row)});
}

InstId scale_and_shift(LowerContext& ctx, NestBuilder& b, InstId value, size_t weight, size_t bias, const std::vector<SymExpr>& index, DType compute) {
  if (const auto w = ctx.tensor(weight)) value = b.scalar(ScalarOp::k_mul, {value, b.cast(ctx.load_broadcast(b, *w, index), compute)});
  if (const auto v = ctx.tensor(bias)) value = b.scalar(ScalarOp::k_add, {value, b.cast(ctx.load_broadcast(b, *v, index), compute)});
  return value;
}

// Copies a temporary of statistics over `kept` into result k, which has the same elements in another shape.
void store_statistic(LowerContext& ctx, LoopBufferId from, const SymSizes& kept, size_t k) {
  if (k >= ctx.node().results.size() || ctx.node().results[k] == graph::kNoValue) return;
  NestBuilder b = ctx.result_nest(k);
  const InstId value = ctx.load_temp(b, from, reshape_index(kept, ctx.result_meta(k).sizes, b.range_dims(), b.bounds()));
  ctx.finish_result(std::move(b), value, k);
}

// native_layer_norm(input, normalized_shape, weight, bias, eps) -> (out, mean, rstd)
bool lower_layer_norm(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const auto shape = ctx.sizes(1);
  const auto eps = ctx.number(4);
  if (!self || !shape || !eps || shape->empty()) return false;
  const TensorMeta& m = ctx.meta(*self);
  const DType compute = value_dtype(m.dtype);
  const size_t outer = m.ndim() - shape->size();
  const SymSizes kept(m.sizes.begin(), m.sizes.begin() + static_cast<long>(outer));
  const SymSizes reduced(m.sizes.begin() + static_cast<long>(outer), m.sizes.end());
  const auto input = [&](NestBuilder& b) {
    std::vector<SymExpr> index;
    for (size_t d = 0; d < m.ndim(); ++d) index.push_back(b.dim(d));
    return b.cast(ctx.load(b, *self, std::move(index)), compute);
  };
  const Statistics s = emit_statistics(ctx, kept, reduced, compute, *eps, input);
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> index = b.range_dims(), row(index.begin(), index.begin() + static_cast<long>(outer));
  const InstId value = scale_and_shift(ctx, b, normalise(ctx, b, input(b), s, row), 2, 3, index, compute);
  ctx.finish_result(std::move(b), value);
  store_statistic(ctx, s.mean, kept, 1);
  store_statistic(ctx, s.rstd, kept, 2);
  return true;
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps) -> (out, mean, rstd)
bool lower_group_norm(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const auto groups = ctx.integer(6);
  const auto eps = ctx.number(7);
  if (!self || !groups || !eps || ctx.meta(*self).ndim() < 2) return false;
  const TensorMeta& m = ctx.meta(*self);
  const DType compute = value_dtype(m.dtype);
  const SymExpr per_group = SymExpr::floor_div(m.sizes[1], *groups);
  if (per_group == SymExpr(0)) return false;
  SymSizes kept{m.sizes[0], *groups}, reduced(m.sizes.begin() + 2, m.sizes.end());
  reduced.insert(reduced.begin(), per_group);
  const auto input = [&](NestBuilder& b) {
    std::vector<SymExpr> index{b.dim(0), b.dim(1) * per_group + b.dim(2)};
    for (size_t d = 2; d < m.ndim(); ++d) index.push_back(b.dim(d + 1));
    return b.cast(ctx.load(b, *self, std::move(index)), compute);
  };
  const Statistics s = emit_statistics(ctx, kept, reduced, compute, *eps, input);
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> row{b.dim(0), SymExpr::floor_div(b.dim(1), per_group)};
  InstId value = normalise(ctx, b, b.cast(ctx.load(b, *self, b.range_dims()), compute), s, row);
  value = scale_and_shift(ctx, b, value, 1, 2, {b.dim(1)}, compute);
  ctx.finish_result(std::move(b), value);
  store_statistic(ctx, s.mean, kept, 1);
  store_statistic(ctx, s.rstd, kept, 2);
  return true;
}

// Batch norm with running statistics: (x - mean) / sqrt(var + eps) * weight + bias, folded per channel.
bool lower_batch_norm_with(LowerContext& ctx, size_t mean, size_t variance, size_t eps_argument) {
  const auto self = ctx.tensor(0);
  const auto eps = ctx.number(eps_argument);
  if (!self || !eps || !ctx.tensor(mean) || !ctx.tensor(variance) || ctx.meta(*self).ndim() < 2) return false;
  for (size_t k = 1; k < ctx.node().results.size(); ++k)  // saved statistics are empty when nothing is trained
    if (ctx.node().results[k] != graph::kNoValue && !(ctx.result_meta(k).numel() == SymExpr(0))) return false;
  const DType compute = value_dtype(ctx.result_meta().dtype);
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> channel{b.dim(1)};
  const auto of_channel = [&](size_t argument) { return b.cast(ctx.load(b, *ctx.tensor(argument), channel), compute); };
  const InstId root = b.scalar(ScalarOp::k_sqrt, {b.scalar(ScalarOp::k_add, {of_channel(variance), b.constant(*eps, compute)})});
  InstId scale = b.scalar(ScalarOp::k_div, {b.constant(1, compute), root});
  if (ctx.tensor(1)) scale = b.scalar(ScalarOp::k_mul, {scale, of_channel(1)});
  const InstId centred = b.scalar(ScalarOp::k_sub, {b.cast(ctx.load(b, *self, b.range_dims()), compute), of_channel(mean)});
  InstId value = b.scalar(ScalarOp::k_mul, {centred, scale});
  if (ctx.tensor(2)) value = b.scalar(ScalarOp::k_add, {value, of_channel(2)});
  ctx.finish_result(std::move(b), value);
  for (size_t k = 1; k < ctx.node().results.size(); ++k) {
    if (ctx.node().results[k] == graph::kNoValue) continue;
    NestBuilder empty = ctx.result_nest(k);
    const InstId zero = empty.constant(0, ctx.result_meta(k).dtype);
    ctx.finish_result(std::move(empty), zero, k);
  }
  return true;
}
// native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
bool lower_batch_norm(LowerContext& ctx) { return !ctx.flag(5, true) && lower_batch_norm_with(ctx, 3, 4, 7); }
// _native_batch_norm_legit_no_training(input, weight, bias, running_mean, running_var, momentum, eps)
bool lower_batch_norm_eval(LowerContext& ctx) { return lower_batch_norm_with(ctx, 3, 4, 6); }

}  // namespace

void register_norm_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {
      {"_softmax", lower_softmax}, {"_log_softmax", lower_log_softmax}, {"_safe_softmax", lower_safe_softmax},
      {"softmax.int", lower_softmax}, {"log_softmax.int", lower_log_softmax},
      {"native_layer_norm", lower_layer_norm}, {"native_group_norm", lower_group_norm}, {"native_batch_norm", lower_batch_norm},
      {"_native_batch_norm_legit", lower_batch_norm}, {"_native_batch_norm_legit_no_training", lower_batch_norm_eval}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
