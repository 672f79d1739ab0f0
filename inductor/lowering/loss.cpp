// inductor/lowering/loss.cpp — losses that check their operands: the class of each row, a likelihood.
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::TensorMeta;

namespace {

enum Reduction : int64_t { kNone, kMean, kSum };  // ATen/core/Reduction.h

// What row `at` (empty: the only one) adds: -input[at, target] * weight[target], and the weight; zeros where the target
// is ignored. Targets are checked against the number of classes.
struct RowLoss {
  InstId loss, weight;
};
RowLoss row_loss(LowerContext& ctx, NestBuilder& b, const std::vector<SymExpr>& at, int64_t ignored, DType compute) {
  const size_t along = at.empty() ? 0 : 1;  // the dimension of the classes
  const SymExpr classes = ctx.meta(*ctx.tensor(0)).sizes[along];
  const InstId target = b.cast(ctx.load(b, *ctx.tensor(1), at), DType::kInt64);
  const InstId is_ignored = b.scalar(ScalarOp::k_eq, {target, b.integer(ignored, DType::kInt64)});
  const InstId picked = b.scalar(ScalarOp::k_select, {is_ignored, b.integer(0, DType::kInt64), target});
  const SymExpr column = b.checked_index(picked, classes, false);
  std::vector<SymExpr> element = at;
  element.insert(element.begin() + static_cast<ptrdiff_t>(along), column);
  const InstId weight = ctx.tensor(2) ? b.cast(ctx.load(b, *ctx.tensor(2), {column}), compute) : b.constant(1, compute);
  const InstId value = b.scalar(ScalarOp::k_neg, {b.cast(ctx.load(b, *ctx.tensor(0), element), compute)});
  const InstId loss = b.scalar(ScalarOp::k_mul, {value, weight}), zero = b.constant(0, compute);
  return {b.scalar(ScalarOp::k_select, {is_ignored, zero, loss}),
          b.scalar(ScalarOp::k_select, {is_ignored, zero, weight})};
}

// nll_loss_forward(self, target, weight, reduction, ignore_index) -> (output, total_weight), nll_loss2d_forward alike
bool lower_nll_loss(LowerContext& ctx) {
  const auto self = ctx.tensor(0), target = ctx.tensor(1);
  const auto reduction = ctx.integer(3), ignored = ctx.integer(4);
  if (!self || !target || !reduction || !ignored || !is_float(ctx.result_meta().dtype)) return false;
  const TensorMeta &input = ctx.meta(*self), &targets = ctx.meta(*target);
  const size_t rows = input.ndim() - 1;
  if (input.ndim() < 1 || targets.ndim() != rows || !is_integral(targets.dtype)) return false;
  if (ctx.given(2) && (!ctx.tensor(2) || ctx.meta(*ctx.tensor(2)).ndim() != 1)) return false;
  const DType compute = value_dtype(ctx.result_meta().dtype);
  const auto store_weight = [&](NestBuilder b, std::vector<SymExpr> index, InstId value) {
    if (ctx.node().results.size() > 1 && ctx.node().results[1] != graph::kNoValue)
      ctx.add_nest(std::move(b), ctx.result_buffer(1), std::move(index), value);
  };
  if (*reduction == kNone && rows != 0) {
    NestBuilder b = ctx.nest(targets.sizes);
    const std::vector<SymExpr> at = b.range_dims();
    const InstId loss = row_loss(ctx, b, at, *ignored, compute).loss;
    ctx.add_nest(std::move(b), ctx.result_buffer(), at, loss);
    NestBuilder weight = ctx.nest({});
    const InstId zero = weight.constant(0, compute);
    store_weight(std::move(weight), {}, zero);
    return true;
  }
  NestBuilder b = ctx.nest({}, rows != 0 ? targets.sizes : SymSizes{SymExpr(1)});
  std::vector<SymExpr> at;
  for (size_t d = 0; d < rows; ++d) at.push_back(b.dim(d));
  const RowLoss row = row_loss(ctx, b, at, *ignored, compute);
  const InstId total = b.reduce(ReduceOp::kSum, row.weight);
  InstId loss = b.reduce(ReduceOp::kSum, row.loss);
  if (*reduction == kMean) loss = b.scalar(ScalarOp::k_div, {loss, total});
  NestBuilder weight = b;
  ctx.add_nest(std::move(b), ctx.result_buffer(), {}, loss);
  store_weight(std::move(weight), {}, total);
  return true;
}

// nll_loss_backward(grad, self, target, weight, reduction, ignore_index, total_weight), nll_loss2d_backward alike: each
// row is zero except at its target class. The forward has checked the targets. Rounds where eager does.
bool lower_nll_loss_backward(LowerContext& ctx) {
  const auto grad = ctx.tensor(0), self = ctx.tensor(1), target = ctx.tensor(2), total = ctx.tensor(6);
  const auto reduction = ctx.integer(4), ignored = ctx.integer(5);
  const DType dtype = ctx.result_meta().dtype;
  if (!grad || !self || !target || !total || !reduction || !ignored || !is_float(dtype)) return false;
  const size_t ndim = ctx.result_meta().ndim(), along = ndim == 1 ? 0 : 1;
  if (ndim == 0 || ctx.meta(*target).ndim() != ndim - 1 || !is_integral(ctx.meta(*target).dtype)) return false;
  if (ctx.given(3) && (!ctx.tensor(3) || ctx.meta(*ctx.tensor(3)).ndim() != 1)) return false;
  const bool is_each = *reduction == kNone && ndim > 1;
  if (ctx.meta(*grad).ndim() != (is_each ? ndim - 1 : 0)) return false;
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> at = b.range_dims();
  std::vector<SymExpr> row = at;
  row.erase(row.begin() + static_cast<ptrdiff_t>(along));
  const DType compute = value_dtype(dtype);
  const auto step = [&](ScalarOp op, InstId left, InstId right) {
    return b.round_to(b.scalar(op, {left, right}), dtype);
  };
  InstId value = b.cast(ctx.load(b, *grad, is_each ? row : std::vector<SymExpr>{}), compute);
  if (*reduction == kMean) value = step(ScalarOp::k_div, value, b.cast(ctx.load(b, *total, {}), compute));
  value = b.scalar(ScalarOp::k_neg, {value});
  const InstId wanted = b.cast(ctx.load(b, *target, row), DType::kInt64), zero = b.constant(0, compute);
  const InstId counts = b.scalar(ScalarOp::k_ne, {wanted, b.integer(*ignored, DType::kInt64)});
  if (const auto weight = ctx.tensor(3))
    value = step(ScalarOp::k_mul, value, b.cast(ctx.load(b, *weight, {at[along]}), compute));
  value = b.scalar(ScalarOp::k_select, {counts, value, zero});  // without weights: computed once per row
  const InstId is_hit = b.scalar(ScalarOp::k_eq, {wanted, b.index(at[along])});
  const InstId result = b.scalar(ScalarOp::k_select, {is_hit, value, zero});
  ctx.store_result(std::move(b), result);
  return true;
}

// binary_cross_entropy(self, target, weight, reduction), for each element: (target - 1) * log1p(-self) - target *
// log(self), with the logarithms limited to -100. In float16, eager rounds each step, which may overflow. A self or a
// target outside [0, 1] is an error.
bool lower_binary_cross_entropy(LowerContext& ctx) {
  const auto self = ctx.tensor(0), target = ctx.tensor(1);
  const auto reduction = ctx.given(3) ? ctx.integer(3) : std::optional<int64_t>(kMean);
  if (!self || !target || reduction != kNone || !is_float(ctx.result_meta().dtype) || (ctx.given(2) && !ctx.tensor(2)))
    return false;
  const DType dtype = ctx.result_meta().dtype;
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> at = b.range_dims();
  const InstId x = ctx.load(b, *self, at), t = ctx.load(b, *target, at);
  const auto number = [&](double value) { return b.constant(value, dtype); };
  const auto step = [&](InstId value) { return dtype == DType::kFloat16 ? b.round_to(value, dtype) : value; };
  const auto is_likelihood = [&](InstId v) {
    return b.scalar(ScalarOp::k_bit_and,
                    {b.scalar(ScalarOp::k_ge, {v, number(0)}), b.scalar(ScalarOp::k_le, {v, number(1)})});
  };
  const InstId likely = b.scalar(ScalarOp::k_bit_and, {is_likelihood(x), is_likelihood(t)});
  b.checked_index(b.scalar(ScalarOp::k_select, {likely, b.integer(0, DType::kInt64), b.integer(1, DType::kInt64)}), 1,
                  false);
  const auto cut = [&](InstId value) { return b.scalar(ScalarOp::k_maximum, {step(value), number(-100)}); };
  const InstId missed = cut(b.scalar(ScalarOp::k_log1p, {b.scalar(ScalarOp::k_neg, {x})})),
               hit = cut(b.scalar(ScalarOp::k_log, {x}));
  const InstId left = step(b.scalar(ScalarOp::k_mul, {step(b.scalar(ScalarOp::k_sub, {t, number(1)})), missed}));
  InstId loss = step(b.scalar(ScalarOp::k_sub, {left, step(b.scalar(ScalarOp::k_mul, {t, hit}))}));
  if (ctx.tensor(2)) loss = step(b.scalar(ScalarOp::k_mul, {loss, ctx.load_broadcast(b, *ctx.tensor(2), at)}));
  ctx.store_result(std::move(b), loss);
  return true;
}

}  // namespace

void register_loss_lowerings() {
  add_lowering("nll_loss_forward", lower_nll_loss);
  add_lowering("nll_loss2d_forward", lower_nll_loss);
  add_lowering("nll_loss_backward", lower_nll_loss_backward);
  add_lowering("nll_loss2d_backward", lower_nll_loss_backward);
  add_lowering("binary_cross_entropy", lower_binary_cross_entropy);
}

}  // namespace framejit::inductor
