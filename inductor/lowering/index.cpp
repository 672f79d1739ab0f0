// inductor/lowering/index.cpp — loads at indices from data: embedding, index_select, gather, index with integer
// tensors.
//
// Every such index is checked against the extent, as in eager; negative ones count from the end only where eager's do.
#include <algorithm>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::TensorMeta;
using graph::ValueId;

namespace {

// embedding(weight, indices, ...): weight[indices[...], column]
bool lower_embedding(LowerContext& ctx) {
  const auto weight = ctx.tensor(0), indices = ctx.tensor(1);
  if (!weight || !indices || ctx.meta(*weight).ndim() != 2 || !is_integral(ctx.meta(*indices).dtype)) return false;
  NestBuilder b = ctx.result_nest();
  std::vector<SymExpr> at = b.range_dims();
  const SymExpr column = at.back();
  at.pop_back();
  const SymExpr row = b.checked_index(ctx.load(b, *indices, at), ctx.meta(*weight).sizes[0], false);
  const InstId value = ctx.load(b, *weight, {row, column});
  ctx.store_result(std::move(b), value);
  return true;
}

// index_select(self, dim, index); a number counts as a tensor of one element, as self and as index
bool lower_index_select(LowerContext& ctx) {
  const auto self = ctx.tensor(0), index = ctx.tensor(2);
  const auto dim_argument = self ? ctx.dimension(1, ctx.meta(*self).ndim()) : std::nullopt;
  if (!index || !dim_argument || ctx.meta(*index).ndim() > 1) return false;
  const bool is_number = ctx.meta(*self).ndim() == 0;
  if (is_number && !(ctx.meta(*index).numel() == SymExpr(1))) return false;
  const auto dim = static_cast<size_t>(*dim_argument);
  NestBuilder b = ctx.result_nest();
  std::vector<SymExpr> at = b.range_dims(), which;
  if (ctx.meta(*index).ndim() == 1) which = {is_number ? SymExpr(0) : at[dim]};
  const SymExpr place = b.checked_index(ctx.load(b, *index, std::move(which)),
                                        is_number ? SymExpr(1) : ctx.meta(*self).sizes[dim], false);
  if (!is_number) at[dim] = place;
  const InstId value = ctx.load(b, *self, std::move(at));
  ctx.store_result(std::move(b), value);
  return true;
}

// gather(self, dim, index)
bool lower_gather(LowerContext& ctx) {
  const auto self = ctx.tensor(0), index = ctx.tensor(2);
  const auto dim_argument = self ? ctx.dimension(1, ctx.meta(*self).ndim()) : std::nullopt;
  if (!index || !dim_argument || ctx.meta(*self).ndim() == 0) return false;
  if (ctx.meta(*index).ndim() != ctx.meta(*self).ndim()) return false;
  const auto dim = static_cast<size_t>(*dim_argument);
  NestBuilder b = ctx.result_nest();
  std::vector<SymExpr> at = b.range_dims();
  at[dim] = b.checked_index(ctx.load(b, *index, at), ctx.meta(*self).sizes[dim], false);
  const InstId value = ctx.load(b, *self, std::move(at));
  ctx.store_result(std::move(b), value);
  return true;
}

// index.Tensor(self, indices): integer index tensors, broadcast together. If they are adjacent, their dimensions take
// the place of the first of them; otherwise they come first.
bool lower_index(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const auto* list = ctx.arg(1) == nullptr ? nullptr : ctx.arg(1)->get<std::vector<ValueId>>();
  if (!self || list == nullptr) return false;
  const TensorMeta& m = ctx.meta(*self);
  size_t first = list->size(), last = 0, count = 0, broadcast_ndim = 0;
  for (size_t d = 0; d < list->size(); ++d) {
    if ((*list)[d] == graph::kNoValue) continue;
    if (!is_integral(ctx.meta((*list)[d]).dtype) || ctx.meta((*list)[d]).dtype == DType::kUInt8) return false;
    first = std::min(first, d);
    last = d;
    ++count;
    broadcast_ndim = std::max(broadcast_ndim, ctx.meta((*list)[d]).ndim());
  }
  if (count == 0) return false;
  const size_t position = last - first + 1 == count ? first : 0;
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> dims = b.range_dims();
  const std::vector<SymExpr> index_point(dims.begin() + static_cast<long>(position),
                                         dims.begin() + static_cast<long>(position + broadcast_ndim));
  std::vector<SymExpr> at;
  size_t next = 0;  // next dimension of the result that is not one of the index tensors'
  for (size_t d = 0; d < m.ndim(); ++d) {
    if (d < list->size() && (*list)[d] != graph::kNoValue) {
      at.push_back(b.checked_index(ctx.load_broadcast(b, (*list)[d], index_point), m.sizes[d], true));
      continue;
    }
    if (next == position) next += broadcast_ndim;
    at.push_back(dims[next++]);
  }
  const InstId value = ctx.load(b, *self, std::move(at));
  ctx.store_result(std::move(b), value);
  return true;
}

// take(self, index): self as one row; negative indices count from the end.
bool lower_take(LowerContext& ctx) {
  const auto self = ctx.tensor(0), index = ctx.tensor(1);
  if (!self || !index || ctx.meta(*index).dtype != DType::kInt64 || ctx.meta(*self).numel() == SymExpr(0)) return false;
  const SymSizes& sizes = ctx.meta(*self).sizes;
  NestBuilder b = ctx.result_nest();
  const SymExpr numel = ctx.meta(*self).numel();
  const SymExpr flat = b.checked_index(ctx.load(b, *index, b.range_dims()), numel, true);
  const InstId value = ctx.load(b, *self, reshape_index(sizes, {numel}, {flat}, b.bounds()));
  ctx.store_result(std::move(b), value);
  return true;
}

}  // namespace

void register_index_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {{"embedding", lower_embedding},
                                                               {"index_select", lower_index_select},
                                                               {"gather", lower_gather},
                                                               {"index.Tensor", lower_index},
                                                               {"take", lower_take}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
