// graph/ops/loss.cpp — losses, gated units and bags of embeddings. A loss is elementwise if reduction is 0 (none),
// otherwise a number.
#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

bool same_sizes(ShapeEnv& env, const TensorMeta& a, const TensorMeta& b) {
  if (a.ndim() != b.ndim()) return false;
  for (size_t i = 0; i < a.ndim(); ++i)
    if (!same_size(env, a.sizes[i], b.sizes[i])) return false;
  return true;
}

// self, target, reduction, ...: broadcast together.
bool broadcast_loss(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const auto reduction = args.integer(2);
  if (args.tensor(0) == nullptr || args.tensor(1) == nullptr || !reduction) return false;
  if (!elementwise(args, env, {0, 1}, keep, results.emplace_back())) return false;
  if (*reduction != 0) results[0] = dense_like(results[0], {});
  return true;
}

// Absent, or a tensor that fits these sizes.
bool fits(const RuleArgs& args, ShapeEnv& env, size_t i, const TensorMeta& to) {
  return !args.given(i) ||
         (args.tensor(i) != nullptr && args.tensor(i)->dtype == to.dtype && expands_to(env, *args.tensor(i), to.sizes));
}

bool binary_cross_entropy(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, target, weight, reduction
  const TensorMeta *self = args.tensor(0), *target = args.tensor(1);
  const auto reduction = args.integer(3);
  if (self == nullptr || target == nullptr || !reduction || self->dtype != target->dtype || !is_float(self->dtype))
    return false;
  if (!same_sizes(env, *self, *target) || !fits(args, env, 2, *self)) return false;
  results.push_back(*reduction == 0 ? preserved(*self, env) : dense_like(*self, {}));
  return true;
}

// Eager composes it as (1 - target).mul_(self)..., so it has the target's layout.
bool binary_cross_entropy_with_logits(const RuleArgs& args, ShapeEnv& env,
                                      Results& results) {  // self, target, weight, pos_weight, reduction
  const TensorMeta *self = args.tensor(0), *target = args.tensor(1);
  const auto reduction = args.integer(4);
  if (self == nullptr || target == nullptr || !reduction || self->dtype != target->dtype || !is_float(self->dtype))
    return false;
  if (!same_sizes(env, *self, *target) || !fits(args, env, 2, *self) || !fits(args, env, 3, *self)) return false;
  TensorMeta meta = dense_like(*target, *reduction == 0 ? target->sizes : SymSizes{});
  if (*reduction == 0) meta.strides = iterator_strides(env, target->sizes, {target}, true);
  results.push_back(std::move(meta));
  return true;
}

bool nll_loss_forward(const RuleArgs& args, ShapeEnv& env,
                      Results& results) {  // self, target, weight, reduction, ignore_index
  const TensorMeta *self = args.tensor(0), *target = args.tensor(1), *weight = args.tensor(2);
  const auto reduction = args.integer(3);
  if (self == nullptr || target == nullptr || !reduction || self->ndim() < 1 || self->ndim() > 2 || target->ndim() > 1)
    return false;
  if (self->ndim() == 2 && (target->ndim() != 1 || !same_size(env, self->sizes[0], target->sizes[0]))) return false;
  if (weight != nullptr && (weight->ndim() != 1 || !same_size(env, weight->sizes[0], self->sizes.back()))) return false;
  results.push_back(dense_like(*self, *reduction == 0 && self->ndim() == 2 ? target->sizes : SymSizes{}));
  results.push_back(dense_like(*self, {}));
  return true;
}

bool nll_loss2d_forward(const RuleArgs& args, ShapeEnv& env,
                        Results& results) {  // self, target, weight, reduction, ignore_index
  const TensorMeta *self = args.tensor(0), *target = args.tensor(1), *weight = args.tensor(2);
  const auto reduction = args.integer(3);
  if (self == nullptr || target == nullptr || !reduction || self->ndim() != 4 || target->ndim() != 3 ||
      target->dtype != DType::kInt64)
    return false;
  for (const size_t i : {0, 1, 2})
    if (!same_size(env, target->sizes[i], self->sizes[i == 0 ? 0 : i + 1])) return false;
  if (weight != nullptr &&
      (weight->dtype != self->dtype || weight->ndim() != 1 || !same_size(env, weight->sizes[0], self->sizes[1])))
    return false;
  results.push_back(dense_like(*self, *reduction == 0 ? target->sizes : SymSizes{}));
  results.push_back(dense_like(*self, {}));
  return true;
}

// self, target, then the reduction at `reduction_at`: a number for each row, or one number.
template <size_t reduction_at, bool has_mask>
bool margin_loss(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *target = args.tensor(1);
  const auto reduction = args.integer(reduction_at);
  if (self == nullptr || target == nullptr || !reduction || self->ndim() < 1 || self->ndim() > 2 ||
      !is_float(self->dtype) || target->dtype != DType::kInt64)
    return false;
  if (has_mask ? !same_sizes(env, *self, *target) : target->ndim() + 1 != self->ndim()) return false;
  if (!has_mask && self->ndim() == 2 && !same_size(env, self->sizes[0], target->sizes[0])) return false;
  if (!env.decide(0, Relation::kLt, self->sizes.back(), "there are classes")) return false;
  const bool by_row = *reduction == 0 && self->ndim() == 2;
  results.push_back(dense_like(*self, by_row ? SymSizes{self->sizes[0]} : SymSizes{}));
  if (has_mask) results.push_back(dense_like(*self, self->sizes));
  return true;
}

// Eager composes it from the product of self and target.
bool soft_margin_loss(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, target, reduction
  const TensorMeta *self = args.tensor(0), *target = args.tensor(1);
  const auto reduction = args.integer(2);
  if (self == nullptr || target == nullptr || !reduction || self->dtype != target->dtype || !is_float(self->dtype) ||
      !same_sizes(env, *self, *target))
    return false;
  TensorMeta meta = dense_like(*self, *reduction == 0 ? self->sizes : SymSizes{});
  if (*reduction == 0) meta.strides = iterator_strides(env, self->sizes, {self, target}, false);
  results.push_back(std::move(meta));
  return true;
}

bool glu(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, dim: an iterator over both halves
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || self->ndim() == 0) return false;
  const auto dim = wrap_dim(args.integer_or(1, -1), self->ndim());
  if (!dim || !env.decide(SymExpr::mod(self->sizes[*dim], 2), Relation::kEq, 0, "glu halves its input")) return false;
  TensorMeta half = *self;
  half.sizes[*dim] = SymExpr::floor_div(half.sizes[*dim], 2);
  TensorMeta meta = dense_like(*self, half.sizes);
  meta.strides = iterator_strides(env, half.sizes, {&half, &half}, false);
  results.push_back(std::move(meta));
  return true;
}

// weight, indices, offsets, scale_grad_by_freq, mode (0 sum, 1 mean, 2 max), sparse, per_sample_weights,
// include_last_offset, padding_idx.
// If fbgemm computes the sums, offset2bag is empty. With `forward_only`, the bag sizes of a sum count the last offset.
template <bool forward_only>
bool embedding_bag(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta *weight = args.tensor(0), *indices = args.tensor(1), *offsets = args.tensor(2);
  const auto mode = args.integer(4);
  if (weight == nullptr || indices == nullptr || offsets == nullptr || !mode || !weight->device.is_cpu()) return false;
  if (weight->ndim() != 2 || indices->ndim() != 1 || offsets->ndim() != 1 || args.given(6) || !weight->is_contiguous())
    return false;
  const bool has_fast_path = weight->dtype == DType::kFloat32 || is_half(weight->dtype);
  const bool sums = *mode == 0, is_fast = sums && has_fast_path && args.integer_or(8, -1) < 0;
  const SymExpr bags = args.flag(7) ? offsets->sizes[0] - 1 : offsets->sizes[0];
  const SymExpr counted = sums && forward_only ? offsets->sizes[0] : bags;
  results.push_back(dense_like(*weight, {bags, weight->sizes[1]}));
  results.push_back(dense_like(*indices, {is_fast ? SymExpr(0) : indices->sizes[0]}));
  results.push_back(dense_like(*indices, {counted}));
  results.push_back(dense_like(*indices, *mode == 2 ? SymSizes{bags, weight->sizes[1]} : SymSizes{counted}));
  return indices->dtype == offsets->dtype;
}

}  // namespace

std::vector<OpRow> loss_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, broadcast_loss, {"mse_loss", "smooth_l1_loss", "huber_loss"});
  add_rows(rows, binary_cross_entropy, {"binary_cross_entropy"}, kChecksData);
  add_rows(rows, binary_cross_entropy_with_logits, {"binary_cross_entropy_with_logits"});
  add_rows(rows, nll_loss_forward, {"nll_loss_forward"}, kChecksData);
  add_rows(rows, nll_loss2d_forward, {"nll_loss2d_forward"}, kChecksData);
  add_rows(rows, margin_loss<5, false>, {"multi_margin_loss"}, kChecksData);
  add_rows(rows, margin_loss<2, true>, {"multilabel_margin_loss_forward"}, kChecksData);
  add_rows(rows, soft_margin_loss, {"soft_margin_loss"});
  add_rows(rows, glu, {"glu"});
  add_rows(rows, embedding_bag<false>, {"_embedding_bag"}, kChecksData);
  add_rows(rows, embedding_bag<true>, {"_embedding_bag_forward_only"}, kChecksData);
  return rows;
}

}  // namespace framejit::graph
