// inductor/lowering/reduction.cpp — sums, means, extrema, truth, positions and variances.
//
// A reduction is one nest: the kept dimensions are its ranges, the reduced ones its reduced dimensions. Sums of half
// precision are kept in f32. Variance takes two passes (mean, then squared differences): that is more exact than one
// pass, and the row is in cache.
#include <algorithm>
#include <cmath>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::TensorMeta;
using graph::ValueId;

namespace {

// Which dimensions of `ndim` are reduced; absent or empty: all of them (empty_is_all).
std::optional<std::vector<bool>> reduced_dims(LowerContext& ctx, std::optional<size_t> argument, size_t ndim) {
  std::vector<bool> reduced(ndim, false);
  if (!argument || !ctx.given(*argument)) return std::vector<bool>(ndim, true);
  const auto dims = ctx.integers(*argument);
  if (!dims) return std::nullopt;
  if (dims->empty()) return std::vector<bool>(ndim, true);
  if (ndim == 0) return reduced;
  for (int64_t d : *dims) reduced[static_cast<size_t>(wrap_dim(d, ndim))] = true;
  return reduced;
}

struct Split {
  SymSizes kept, reduced;
  std::vector<bool> is_reduced;
  SymExpr count = 1;  // elements that are combined into one
};

Split split_sizes(const SymSizes& sizes, const std::vector<bool>& is_reduced) {
  Split s;
  s.is_reduced = is_reduced;
  for (size_t d = 0; d < sizes.size(); ++d) {
    (is_reduced[d] ? s.reduced : s.kept).push_back(sizes[d]);
    if (is_reduced[d]) s.count = s.count * sizes[d];
  }
  if (s.reduced.empty()) s.reduced.push_back(1);
  return s;
}

// Index into the input at a point of the nest (kept dimensions first, then reduced ones).
std::vector<SymExpr> input_index(const NestBuilder& b, const Split& s) {
  std::vector<SymExpr> index;
  size_t kept = 0, reduced = s.kept.size();
  for (bool is_reduced : s.is_reduced) index.push_back(b.dim(is_reduced ? reduced++ : kept++));
  return index;
}

// Index into a result that may have kept the reduced dimensions as size 1.
std::vector<SymExpr> result_index(const NestBuilder& b, const Split& s, size_t result_ndim) {
  std::vector<SymExpr> index;
  size_t kept = 0;
  if (result_ndim == s.is_reduced.size()) {
    for (bool is_reduced : s.is_reduced) index.push_back(is_reduced ? SymExpr(0) : b.dim(kept++));
  } else {
    for (; kept < s.kept.size(); ++kept) index.push_back(b.dim(kept));
  }
  return index;
}

bool is_surely_empty(const Split& s) { return s.count == SymExpr(0); }

InstId load_input(LowerContext& ctx, NestBuilder& b, const Split& s, DType dtype, bool discrete = false) {
  const ValueId self = *ctx.tensor(0);
  InstId value = ctx.load(b, self, input_index(b, s));
  if (discrete) value = b.round_to(value, ctx.meta(self).dtype);
  return b.cast(value, dtype);
}

std::optional<Split> split_argument(LowerContext& ctx, std::optional<size_t> dims_argument) {
  const auto self = ctx.tensor(0);
  if (!self) return std::nullopt;
  const auto dims = reduced_dims(ctx, dims_argument, ctx.meta(*self).ndim());
  if (!dims) return std::nullopt;
  return split_sizes(ctx.meta(*self).sizes, *dims);
}

// dims_argument: null in a full reduction.
bool reduce_as(LowerContext& ctx, std::optional<size_t> dims_argument, ReduceOp op, DType dtype, bool discrete,
               bool empty_allowed) {
  const auto s = split_argument(ctx, dims_argument);
  if (!s || (is_surely_empty(*s) && !empty_allowed)) return false;
  NestBuilder b = ctx.nest(s->kept, s->reduced);
  const InstId value = b.reduce(op, load_input(ctx, b, *s, dtype, discrete));
  auto index = result_index(b, *s, ctx.result_meta().ndim());
  ctx.add_nest(std::move(b), ctx.result_buffer(), std::move(index), value);
  return true;
}

bool lower_sum_dims(LowerContext& ctx) {
  return reduce_as(ctx, 1, ReduceOp::kSum, ctx.result_meta().dtype, false, true);
}
bool lower_sum(LowerContext& ctx) {
  return reduce_as(ctx, std::nullopt, ReduceOp::kSum, ctx.result_meta().dtype, false, true);
}
bool lower_prod_dim(LowerContext& ctx) {
  return reduce_as(ctx, 1, ReduceOp::kProd, ctx.result_meta().dtype, false, true);
}
bool lower_prod(LowerContext& ctx) {
  return reduce_as(ctx, std::nullopt, ReduceOp::kProd, ctx.result_meta().dtype, false, true);
}
bool lower_amax(LowerContext& ctx) { return reduce_as(ctx, 1, ReduceOp::kMax, ctx.result_meta().dtype, false, false); }
bool lower_amin(LowerContext& ctx) { return reduce_as(ctx, 1, ReduceOp::kMin, ctx.result_meta().dtype, false, false); }
bool lower_max(LowerContext& ctx) {
  return reduce_as(ctx, std::nullopt, ReduceOp::kMax, ctx.result_meta().dtype, false, false);
}
bool lower_min(LowerContext& ctx) {
  return reduce_as(ctx, std::nullopt, ReduceOp::kMin, ctx.result_meta().dtype, false, false);
}

// any and all of uint8 return uint8 (torch's old mask dtype), which is 0 or 1 there.
bool lower_any_dim(LowerContext& ctx) { return reduce_as(ctx, 1, ReduceOp::kAny, DType::kBool, false, true); }
bool lower_any(LowerContext& ctx) { return reduce_as(ctx, std::nullopt, ReduceOp::kAny, DType::kBool, false, true); }
bool lower_all_dim(LowerContext& ctx) { return reduce_as(ctx, 1, ReduceOp::kAll, DType::kBool, false, true); }
bool lower_all(LowerContext& ctx) { return reduce_as(ctx, std::nullopt, ReduceOp::kAll, DType::kBool, false, true); }

// Not for bools: torch has no such kernel, and its error reaches the user.
bool lower_position(LowerContext& ctx, ReduceOp op) {
  const auto self = ctx.tensor(0);
  return self && ctx.meta(*self).dtype != DType::kBool && reduce_as(ctx, 1, op, ctx.meta(*self).dtype, true, false);
}
bool lower_argmax(LowerContext& ctx) { return lower_position(ctx, ReduceOp::kArgmax); }
bool lower_argmin(LowerContext& ctx) { return lower_position(ctx, ReduceOp::kArgmin); }

// max.dim, min.dim: values and positions in one nest.
bool lower_extremum_dim(LowerContext& ctx, ReduceOp value_op, ReduceOp position_op) {
  const auto s = split_argument(ctx, 1);
  if (!s || is_surely_empty(*s)) return false;
  NestBuilder b = ctx.nest(s->kept, s->reduced);
  const InstId input = load_input(ctx, b, *s, ctx.result_meta().dtype, true);
  const InstId value = b.reduce(value_op, input), position = b.reduce(position_op, input);
  auto index = result_index(b, *s, ctx.result_meta().ndim());
  b.store(ctx.result_buffer(0), index, value);
  ctx.add_nest(std::move(b), ctx.result_buffer(1), std::move(index), position);
  return true;
}
bool lower_max_dim(LowerContext& ctx) { return lower_extremum_dim(ctx, ReduceOp::kMax, ReduceOp::kArgmax); }
bool lower_min_dim(LowerContext& ctx) { return lower_extremum_dim(ctx, ReduceOp::kMin, ReduceOp::kArgmin); }

InstId count_of(NestBuilder& b, const SymExpr& count, DType dtype) { return b.cast(b.index(count), dtype); }

bool lower_mean_over(LowerContext& ctx, std::optional<size_t> dims_argument) {
  const auto s = split_argument(ctx, dims_argument);
  if (!s || !is_float(ctx.result_meta().dtype)) return false;
  const DType compute = value_dtype(ctx.result_meta().dtype);
  NestBuilder b = ctx.nest(s->kept, s->reduced);
  const InstId sum = b.reduce(ReduceOp::kSum, load_input(ctx, b, *s, compute));
  const InstId mean = b.scalar(ScalarOp::k_div, {sum, count_of(b, s->count, compute)});
  auto index = result_index(b, *s, ctx.result_meta().ndim());
  ctx.add_nest(std::move(b), ctx.result_buffer(), std::move(index), mean);
  return true;
}
bool lower_mean_dim(LowerContext& ctx) { return lower_mean_over(ctx, 1); }
bool lower_mean(LowerContext& ctx) { return lower_mean_over(ctx, std::nullopt); }

// var, std, var_mean, std_mean over (self, dim, *, correction, keepdim).
bool lower_variance(LowerContext& ctx, bool root, bool with_mean) {
  const auto s = split_argument(ctx, 1);
  if (!s || !is_float(ctx.result_meta().dtype)) return false;
  const auto correction = ctx.given(2) ? ctx.number(2) : std::optional(1.0);
  if (!correction) return false;
  const DType compute = value_dtype(ctx.result_meta().dtype);
  NestBuilder first = ctx.nest(s->kept, s->reduced);
  const InstId sum = first.reduce(ReduceOp::kSum, load_input(ctx, first, *s, compute));
  const InstId mean = first.scalar(ScalarOp::k_div, {sum, count_of(first, s->count, compute)});
  const LoopBufferId mean_buffer = ctx.temp(compute, s->kept);
  std::vector<SymExpr> mean_index = first.range_dims();
  if (with_mean) first.store(ctx.result_buffer(1), result_index(first, *s, ctx.result_meta(1).ndim()), mean);
  ctx.add_nest(std::move(first), mean_buffer, mean_index, mean);
  NestBuilder b = ctx.nest(s->kept, s->reduced);
  const InstId distance =
      b.scalar(ScalarOp::k_sub, {load_input(ctx, b, *s, compute), ctx.load_temp(b, mean_buffer, mean_index)});
  const InstId squares = b.reduce(ReduceOp::kSum, b.scalar(ScalarOp::k_mul, {distance, distance}));
  const InstId freedom =
      b.scalar(ScalarOp::k_maximum,
               {b.scalar(ScalarOp::k_sub, {count_of(b, s->count, compute), b.constant(*correction, compute)}),
                b.constant(0, compute)});
  InstId result = b.scalar(ScalarOp::k_div, {squares, freedom});
  if (root) result = b.scalar(ScalarOp::k_sqrt, {result});
  auto index = result_index(b, *s, ctx.result_meta().ndim());
  ctx.add_nest(std::move(b), ctx.result_buffer(), std::move(index), result);
  return true;
}
bool lower_var(LowerContext& ctx) { return lower_variance(ctx, false, false); }
bool lower_std(LowerContext& ctx) { return lower_variance(ctx, true, false); }
bool lower_var_mean(LowerContext& ctx) { return lower_variance(ctx, false, true); }
bool lower_std_mean(LowerContext& ctx) { return lower_variance(ctx, true, true); }

// What an order of linalg_vector_norm sums (or takes the extremum of), and what is done with the total.
struct NormSteps {
  ReduceOp op;
  InstId term;
};
NormSteps norm_steps(NestBuilder& b, InstId value, double order, DType compute) {
  const InstId size = b.scalar(ScalarOp::k_abs, {value});
  if (std::isinf(order)) return {order > 0 ? ReduceOp::kMax : ReduceOp::kMin, size};
  if (order == 0) return {ReduceOp::kSum, b.cast(b.scalar(ScalarOp::k_ne, {value, b.constant(0, compute)}), compute)};
  if (order == 1) return {ReduceOp::kSum, size};
  if (order == 2) return {ReduceOp::kSum, b.scalar(ScalarOp::k_mul, {value, value})};
  return {ReduceOp::kSum, b.scalar(ScalarOp::k_pow, {size, b.constant(order, compute)})};
}

// linalg_vector_norm(self, ord, dim, keepdim, dtype)
bool lower_vector_norm(LowerContext& ctx) {
  const auto s = split_argument(ctx, 2);
  const auto order = ctx.given(1) ? ctx.number(1) : std::optional(2.0);
  if (!s || !order || std::isnan(*order) || !is_float(ctx.result_meta().dtype)) return false;
  if ((std::isinf(*order) || *order < 0) && is_surely_empty(*s)) return false;
  const DType compute = value_dtype(ctx.result_meta().dtype);
  NestBuilder b = ctx.nest(s->kept, s->reduced);
  const NormSteps steps = norm_steps(b, load_input(ctx, b, *s, compute), *order, compute);
  InstId result = b.reduce(steps.op, steps.term);
  // Eager's kernel has the order in the type that it computes with. There it may be infinite, and the root is then 1.
  const double root = compute == DType::kFloat64 ? *order : static_cast<double>(static_cast<float>(*order));
  if (*order == 2) result = b.scalar(ScalarOp::k_sqrt, {result});
  else if (!std::isinf(*order) && *order != 0 && *order != 1)  // in float32, 1 / order is too coarse an exponent
    result = b.cast(b.scalar(ScalarOp::k_pow, {b.cast(result, DType::kFloat64), b.constant(1 / root, DType::kFloat64)}),
                    compute);
  auto index = result_index(b, *s, ctx.result_meta().ndim());
  ctx.add_nest(std::move(b), ctx.result_buffer(), std::move(index), result);
  return true;
}

}  // namespace

void register_reduction_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {{"sum.dim_IntList", lower_sum_dims},
                                                               {"sum", lower_sum},
                                                               {"prod.dim_int", lower_prod_dim},
                                                               {"prod", lower_prod},
                                                               {"amax", lower_amax},
                                                               {"amin", lower_amin},
                                                               {"max", lower_max},
                                                               {"min", lower_min},
                                                               {"any.dim", lower_any_dim},
                                                               {"any.dims", lower_any_dim},
                                                               {"any", lower_any},
                                                               {"all.dim", lower_all_dim},
                                                               {"all.dims", lower_all_dim},
                                                               {"all", lower_all},
                                                               {"argmax", lower_argmax},
                                                               {"argmin", lower_argmin},
                                                               {"max.dim", lower_max_dim},
                                                               {"min.dim", lower_min_dim},
                                                               {"mean.dim", lower_mean_dim},
                                                               {"mean", lower_mean},
                                                               {"var.correction", lower_var},
                                                               {"std.correction", lower_std},
                                                               {"var_mean.correction", lower_var_mean},
                                                               {"std_mean.correction", lower_std_mean},
                                                               {"linalg_vector_norm", lower_vector_norm}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
