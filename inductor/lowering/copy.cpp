// inductor/lowering/copy.cpp — ops that move elements: cat, stack, pad, repeat, flip, triangles, scatters of slices.
//
// An op that writes regions (cat, pad, slice_scatter) has one nest per region, all into the result's buffer, in order.
#include <algorithm>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::TensorMeta;
using graph::ValueId;

namespace {

// Stores all of v (cast to the result's dtype) into the result at `place(index into v)`.
template <class Place>
void store_region(LowerContext& ctx, ValueId v, Place place) {
  NestBuilder b = ctx.nest(ctx.meta(v).sizes);
  const std::vector<SymExpr> index = b.range_dims();
  const InstId value = ctx.load(b, v, index);
  ctx.add_nest(std::move(b), ctx.result_buffer(), place(index), value);
}

std::optional<std::vector<ValueId>> tensor_list(LowerContext& ctx, size_t i) {
  const auto* list = ctx.arg(i) == nullptr ? nullptr : ctx.arg(i)->get<std::vector<ValueId>>();
  if (list == nullptr || std::find(list->begin(), list->end(), graph::kNoValue) != list->end()) return std::nullopt;
  return *list;
}

// cat(tensors, dim)
bool lower_cat(LowerContext& ctx) {
  const auto list = tensor_list(ctx, 0);
  if (!list || list->empty()) return false;
  const size_t ndim = ctx.result_meta().ndim();
  const size_t dim = static_cast<size_t>(wrap_dim(ctx.integer(1).value_or(0), ndim));
  SymExpr start = 0;
  for (ValueId v : *list) {
    if (ctx.meta(v).ndim() != ndim) {  // torch skips tensors of shape [0]
      if (!(ctx.meta(v).numel() == SymExpr(0))) return false;
    }
  }
  for (ValueId v : *list) {
    if (ctx.meta(v).ndim() != ndim) continue;
    store_region(ctx, v, [&](std::vector<SymExpr> index) {
      index[dim] = index[dim] + start;
      return index;
    });
    start = start + ctx.meta(v).sizes[dim];
  }
  return true;
}

// stack(tensors, dim)
bool lower_stack(LowerContext& ctx) {
  const auto list = tensor_list(ctx, 0);
  if (!list || list->empty()) return false;
  const size_t dim = static_cast<size_t>(wrap_dim(ctx.integer(1).value_or(0), ctx.result_meta().ndim()));
  for (size_t k = 0; k < list->size(); ++k) {
    store_region(ctx, (*list)[k], [&](std::vector<SymExpr> index) {
      index.insert(index.begin() + static_cast<long>(dim), SymExpr(static_cast<int64_t>(k)));
      return index;
    });
  }
  return true;
}

// constant_pad_nd(self, pad, value): fills everything, then copies the inside. Negative padding crops. If it might crop
// more elements than exist, the op is left to torch, which raises.
bool lower_pad(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const auto pad = ctx.sizes(1);
  const double value = ctx.given(2) ? ctx.number(2).value_or(0) : 0;
  if (!self || !pad || (ctx.given(2) && !ctx.number(2))) return false;
  SymSizes inside = ctx.meta(*self).sizes;
  std::vector<SymExpr> from(inside.size(), SymExpr(0)), to = from;  // where it begins in self, and in the result
  for (size_t k = 0; k + 1 < pad->size(); k += 2) {
    if (!(*pad)[k].is_constant() || !(*pad)[k + 1].is_constant()) return false;
    const size_t dim = inside.size() - 1 - k / 2;
    const int64_t before = (*pad)[k].constant(),
                  cropped = std::min<int64_t>(before, 0) + std::min<int64_t>((*pad)[k + 1].constant(), 0);
    from[dim] = SymExpr(std::max<int64_t>(-before, 0)), to[dim] = SymExpr(std::max<int64_t>(before, 0));
    inside[dim] = inside[dim] + SymExpr(cropped);
    if (cropped < 0 && ctx.graph().shapes.known(0, graph::Relation::kLe, inside[dim]) != true) return false;
  }
  NestBuilder b = ctx.result_nest();
  const InstId fill = b.constant(value, ctx.result_meta().dtype);
  ctx.store_result(std::move(b), fill);
  NestBuilder region = ctx.nest(std::move(inside));
  std::vector<SymExpr> read = region.range_dims(), written = read;
  for (size_t d = 0; d < read.size(); ++d) read[d] = read[d] + from[d], written[d] = written[d] + to[d];
  const InstId kept = ctx.load(region, *self, std::move(read));
  ctx.add_nest(std::move(region), ctx.result_buffer(), std::move(written), kept);
  return true;
}

// A result whose element at `index` is self's at map(index).
template <class Map>
bool gather_by(LowerContext& ctx, Map map) {
  NestBuilder b = ctx.result_nest();
  std::vector<SymExpr> index = map(b.range_dims());
  const InstId value = ctx.load(b, *ctx.tensor(0), std::move(index));
  ctx.store_result(std::move(b), value);
  return true;
}

// repeat(self, repeats)
bool lower_repeat(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  if (!self || ctx.meta(*self).numel() == SymExpr(0)) return false;
  const SymSizes& sizes = ctx.meta(*self).sizes;
  return gather_by(ctx, [&](std::vector<SymExpr> index) {
    index.erase(index.begin(), index.end() - static_cast<long>(sizes.size()));
    for (size_t d = 0; d < sizes.size(); ++d)
      index[d] = sizes[d] == SymExpr(1) ? SymExpr(0)
                 : ctx.result_meta().sizes[ctx.result_meta().ndim() - sizes.size() + d] == sizes[d]
                     ? index[d]
                     : SymExpr::mod(index[d], sizes[d]);
    return index;
  });
}

// flip(self, dims)
bool lower_flip(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const auto dims = ctx.integers(1);
  if (!self || !dims) return false;
  return gather_by(ctx, [&](std::vector<SymExpr> index) {
    for (int64_t d : *dims) {
      const size_t dim = static_cast<size_t>(wrap_dim(d, index.size()));
      if (dim < index.size()) index[dim] = ctx.meta(*self).sizes[dim] - SymExpr(1) - index[dim];
    }
    return index;
  });
}

// roll(self, shifts, dims) with one shift per dimension.
bool lower_roll(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const auto shifts = ctx.integers(1), dims = ctx.integers(2);
  if (!self || !shifts || !dims || dims->size() != shifts->size() || dims->empty() ||
      ctx.meta(*self).numel() == SymExpr(0))
    return false;
  return gather_by(ctx, [&](std::vector<SymExpr> index) {
    for (size_t k = 0; k < dims->size(); ++k) {
      const size_t dim = static_cast<size_t>(wrap_dim((*dims)[k], index.size()));
      const SymExpr& size = ctx.meta(*self).sizes[dim];
      index[dim] = SymExpr::mod(index[dim] + SymExpr::mod(SymExpr(-(*shifts)[k]), size), size);
    }
    return index;
  });
}

// tril, triu (self, diagonal)
bool lower_triangle(LowerContext& ctx, bool lower) {
  const auto self = ctx.tensor(0);
  const auto diagonal = ctx.given(1) ? ctx.size(1) : std::optional(SymExpr(0));
  if (!self || !diagonal || ctx.result_meta().ndim() < 2) return false;
  NestBuilder b = ctx.result_nest();
  const std::vector<SymExpr> index = b.range_dims();
  const InstId row = b.index(index[index.size() - 2] + *diagonal), column = b.index(index.back());
  const InstId keep = b.scalar(lower ? ScalarOp::k_le : ScalarOp::k_ge, {column, row});
  const InstId value = ctx.load(b, *self, index);
  const InstId result = b.scalar(ScalarOp::k_select, {keep, value, b.constant(0, ctx.result_meta().dtype)});
  ctx.store_result(std::move(b), result);
  return true;
}
bool lower_tril(LowerContext& ctx) { return lower_triangle(ctx, true); }
bool lower_triu(LowerContext& ctx) { return lower_triangle(ctx, false); }

// Where a slice begins: counted from the end if negative, limited by the size.
SymExpr slice_start(const SymExpr& start, const SymExpr& size) {
  if (start.is_constant() && start.constant() < 0) return SymExpr::max(start + size, 0);
  return start == SymExpr(0) ? start : SymExpr::min(start, size);
}

// slice_scatter(self, src, dim, start, end, step): self everywhere, then src over its region.
bool lower_slice_scatter(LowerContext& ctx) {
  const auto self = ctx.tensor(0), source = ctx.tensor(1);
  if (!self || !source || ctx.meta(*self).ndim() == 0) return false;
  const size_t dim = static_cast<size_t>(wrap_dim(ctx.integer(2).value_or(0), ctx.meta(*self).ndim()));
  const SymExpr& size = ctx.meta(*self).sizes[dim];
  const SymExpr start = slice_start(ctx.given(3) ? *ctx.size(3) : SymExpr(0), size);
  const int64_t step = ctx.integer(5).value_or(1);
  store_region(ctx, *self, [](std::vector<SymExpr> index) { return index; });
  store_region(ctx, *source, [&](std::vector<SymExpr> index) {
    index[dim] = index[dim] * SymExpr(step) + start;
    return index;
  });
  return true;
}

// select_scatter(self, src, dim, index)
bool lower_select_scatter(LowerContext& ctx) {
  const auto self = ctx.tensor(0), source = ctx.tensor(1);
  const auto at = ctx.size(3);
  if (!self || !source || !at) return false;
  const size_t dim = static_cast<size_t>(wrap_dim(ctx.integer(2).value_or(0), ctx.meta(*self).ndim()));
  const SymExpr position = at->is_constant() && at->constant() < 0 ? *at + ctx.meta(*self).sizes[dim] : *at;
  store_region(ctx, *self, [](std::vector<SymExpr> index) { return index; });
  store_region(ctx, *source, [&](std::vector<SymExpr> index) {
    index.insert(index.begin() + static_cast<long>(dim), position);
    return index;
  });
  return true;
}

void fill_with_zeros(LowerContext& ctx) {
  NestBuilder b = ctx.result_nest();
  const InstId zero = b.constant(0, ctx.result_meta().dtype);
  ctx.store_result(std::move(b), zero);
}

// select_backward(grad, sizes, dim, index): zeros, then grad where it was taken from.
bool lower_select_backward(LowerContext& ctx) {
  const auto grad = ctx.tensor(0);
  const auto dim_argument = ctx.dimension(2, ctx.result_meta().ndim());
  const auto at = ctx.size(3);
  const SymSizes& sizes = ctx.result_meta().sizes;
  if (!grad || !dim_argument || !at || ctx.meta(*grad).ndim() + 1 != sizes.size()) return false;
  const auto dim = static_cast<size_t>(*dim_argument);
  const SymExpr position = at->is_constant() && at->constant() < 0 ? *at + sizes[dim] : *at;
  fill_with_zeros(ctx);
  store_region(ctx, *grad, [&](std::vector<SymExpr> index) {
    index.insert(index.begin() + static_cast<long>(dim), position);
    return index;
  });
  return true;
}

// slice_backward(grad, sizes, dim, start, end, step)
bool lower_slice_backward(LowerContext& ctx) {
  const auto grad = ctx.tensor(0);
  const auto dim_argument = ctx.dimension(2, ctx.result_meta().ndim()), step = ctx.integer(5);
  const auto start_argument = ctx.size(3);
  const SymSizes& sizes = ctx.result_meta().sizes;
  if (!grad || !dim_argument || !step || !start_argument || sizes.empty() || ctx.meta(*grad).ndim() != sizes.size())
    return false;
  const auto dim = static_cast<size_t>(*dim_argument);
  const SymExpr start = slice_start(*start_argument, sizes[dim]);
  fill_with_zeros(ctx);
  store_region(ctx, *grad, [&](std::vector<SymExpr> index) {
    index[dim] = index[dim] * SymExpr(*step) + start;
    return index;
  });
  return true;
}

// A position on a diagonal: row and column of element `at`, inserted as dimensions `first` and `second` into an index
// of the other dimensions.
std::vector<SymExpr> on_diagonal(std::vector<SymExpr> others, const SymExpr& at, int64_t offset, size_t first,
                                 size_t second) {
  const SymExpr row = at + SymExpr(std::max<int64_t>(-offset, 0)), column = at + SymExpr(std::max<int64_t>(offset, 0));
  const auto put = [&](size_t d, const SymExpr& e) { others.insert(others.begin() + static_cast<long>(d), e); };
  put(std::min(first, second), first < second ? row : column);
  put(std::max(first, second), first < second ? column : row);
  return others;
}

void store_diagonal(LowerContext& ctx, ValueId source, int64_t offset, size_t first, size_t second) {
  store_region(ctx, source, [&](std::vector<SymExpr> index) {
    const SymExpr at = index.back();
    index.pop_back();
    return on_diagonal(std::move(index), at, offset, first, second);
  });
}

// diag_embed(self, offset, dim1, dim2): zeros, then the diagonal.
bool lower_diag_embed(LowerContext& ctx) {
  const auto self = ctx.tensor(0);
  const size_t ndim = ctx.result_meta().ndim();
  if (!self || ctx.meta(*self).ndim() == 0) return false;
  fill_with_zeros(ctx);
  store_diagonal(ctx, *self, ctx.integer(1).value_or(0),
                 static_cast<size_t>(wrap_dim(ctx.integer(2).value_or(-2), ndim)),
                 static_cast<size_t>(wrap_dim(ctx.integer(3).value_or(-1), ndim)));
  return true;
}

// diagonal_scatter(self, src, offset, dim1, dim2)
bool lower_diagonal_scatter(LowerContext& ctx) {
  const auto self = ctx.tensor(0), source = ctx.tensor(1);
  if (!self || !source || ctx.meta(*source).ndim() == 0) return false;
  const size_t ndim = ctx.result_meta().ndim();
  store_region(ctx, *self, [](std::vector<SymExpr> index) { return index; });
  store_diagonal(ctx, *source, ctx.integer(2).value_or(0),
                 static_cast<size_t>(wrap_dim(ctx.integer(3).value_or(0), ndim)),
                 static_cast<size_t>(wrap_dim(ctx.integer(4).value_or(1), ndim)));
  return true;
}

// block_diag(tensors): zeros, then one block after the other. A vector is a row.
bool lower_block_diag(LowerContext& ctx) {
  const auto list = tensor_list(ctx, 0);
  if (!list || list->empty()) return false;
  for (ValueId v : *list)
    if (ctx.meta(v).ndim() > 2) return false;
  fill_with_zeros(ctx);
  SymExpr row = 0, column = 0;
  for (ValueId v : *list) {
    store_region(ctx, v, [&](std::vector<SymExpr> index) {
      index.insert(index.begin(), 2 - index.size(), SymExpr(0));
      return std::vector<SymExpr>{index[0] + row, index[1] + column};
    });
    const SymSizes& sizes = ctx.meta(v).sizes;
    row = row + (sizes.size() < 2 ? SymExpr(1) : sizes[0]);
    column = column + (sizes.empty() ? SymExpr(1) : sizes.back());
  }
  return true;
}

}  // namespace

void register_copy_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {{"cat", lower_cat},
                                                               {"stack", lower_stack},
                                                               {"constant_pad_nd", lower_pad},
                                                               {"repeat", lower_repeat},
                                                               {"flip", lower_flip},
                                                               {"roll", lower_roll},
                                                               {"tril", lower_tril},
                                                               {"triu", lower_triu},
                                                               {"slice_scatter", lower_slice_scatter},
                                                               {"select_scatter", lower_select_scatter},
                                                               {"diag_embed", lower_diag_embed},
                                                               {"diagonal_scatter", lower_diagonal_scatter},
                                                               {"block_diag", lower_block_diag},
                                                               {"select_backward", lower_select_backward},
                                                               {"slice_backward", lower_slice_backward}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
