// inductor/lowering/scatter.cpp — stores at indices from data: scatter, index_add, index_copy, index_fill, index_put
// and the gradient of embedding.
//
// The result starts as a copy of self. Then one nest goes through the indices in order, and through the other
// dimensions in any order. If an element is written twice, the last write wins, as in eager. Half precision is added up
// as in eager: in float32 where eager keeps float32, otherwise rounded at each addition. Every index is checked against
// the extent; negative ones count from the end only where eager's do.
#include <algorithm>
#include <limits>

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::TensorMeta;
using graph::ValueId;

namespace {

// Whether it pays to write to float32 memory instead of a result in half precision: at least as many elements must be
// written as are copied.
bool wide_pays(LowerContext& ctx, ValueId written) {
  const auto all = ctx.result_meta().numel().as_constant(), some = ctx.meta(written).numel().as_constant();
  return !is_half(ctx.result_meta().dtype) || (all && some && *all <= *some);
}

// The destination of the writes: the result, or float32 memory in its place.
class Destination {
 public:
  Destination(LowerContext& ctx, bool is_wide) : ctx_(ctx), is_wide_(is_wide && is_half(ctx.result_meta().dtype)) {
    buffer_ = is_wide_ ? ctx.temp(DType::kFloat32, ctx.result_meta().sizes) : ctx.result_buffer();
  }
  LoopBufferId buffer() const { return buffer_; }

  void copy(ValueId self) {
    NestBuilder b = ctx_.result_nest();
    const InstId value = ctx_.load(b, self, b.range_dims());
    auto index = b.range_dims();
    ctx_.add_nest(std::move(b), buffer_, std::move(index), value);
  }
  void clear() {
    NestBuilder b = ctx_.result_nest();
    const InstId zero = b.constant(0, ctx_.result_meta().dtype);
    auto index = b.range_dims();
    ctx_.add_nest(std::move(b), buffer_, std::move(index), zero);
  }
  // After the last write.
  void cast_to_result() {
    if (!is_wide_) return;
    NestBuilder b = ctx_.result_nest();
    const InstId value = ctx_.load_temp(b, buffer_, b.range_dims());
    ctx_.store_result(std::move(b), value);
  }

 private:
  LowerContext& ctx_;
  const bool is_wide_;
  LoopBufferId buffer_ = 0;
};

struct Write {
  StoreMode mode = StoreMode::kLast;
  ReduceOp op = ReduceOp::kSum;
};
constexpr Write kSet{}, kAdd{StoreMode::kJoin, ReduceOp::kSum};

void store(LowerContext& ctx, Walk walk, LoopBufferId buffer, std::vector<SymExpr> at, InstId value, Write write) {
  const InstId stored = walk.builder.cast(value, ctx.buffer_dtype(buffer));
  walk.builder.store(buffer, std::move(at), stored, write.mode, write.op);
  ctx.add_nest(std::move(walk.builder));
}

// Whether a is certainly not larger than b; sizes that only a guard could compare do not count.
bool fits(const SymExpr& a, const SymExpr& b) {
  return a == b || (a.is_constant() && b.is_constant() && a.constant() <= b.constant());
}

// A number argument, or a tensor without dimensions, in the dtype of the result.
std::optional<InstId> number(LowerContext& ctx, NestBuilder& b, size_t argument) {
  const DType dtype = ctx.result_meta().dtype;
  if (const auto tensor = ctx.tensor(argument)) {
    if (ctx.meta(*tensor).ndim() != 0) return std::nullopt;
    return b.cast(ctx.load(b, *tensor, {}), dtype);
  }
  if (const auto size = ctx.size(argument)) return b.cast(b.index(*size), dtype);
  if (const auto value = ctx.number(argument)) return b.constant(*value, dtype);
  return std::nullopt;
}

// scatter and related ops (self, dim, index, src or value, ...): one write for each element of index, which may be
// smaller than self.
struct ScatterArgs {
  ValueId self, index;
  std::optional<ValueId> source;
  int64_t dim = 0;
};

std::optional<ScatterArgs> scatter_args(LowerContext& ctx) {
  const auto self = ctx.tensor(0), index = ctx.tensor(2), source = ctx.tensor(3);
  const auto dim = self ? ctx.dimension(1, ctx.meta(*self).ndim()) : std::nullopt;
  if (!index || !dim) return std::nullopt;
  const TensorMeta &m = ctx.meta(*self), &i = ctx.meta(*index);
  if ((i.dtype != DType::kInt64 && i.dtype != DType::kInt32) || i.ndim() != m.ndim()) return std::nullopt;
  const int64_t along = *dim;
  for (size_t d = 0; d < m.ndim(); ++d)
    if (static_cast<int64_t>(d) != along && !fits(i.sizes[d], m.sizes[d])) return std::nullopt;
  const bool has_source = source && ctx.meta(*source).ndim() == m.ndim() && ctx.meta(*source).dtype == m.dtype;
  for (size_t d = 0; has_source && d < m.ndim(); ++d)
    if (!fits(i.sizes[d], ctx.meta(*source).sizes[d])) return std::nullopt;
  return ScatterArgs{*self, *index, has_source ? source : std::nullopt, along};
}

// Writes what `value` returns for an element of index.
template <class ValueOf>
bool scatter(LowerContext& ctx, const ScatterArgs& args, LoopBufferId buffer, Write write, ValueOf value_of) {
  Walk walk = ctx.walk(ctx.meta(args.index).sizes, args.dim);
  const std::optional<InstId> value = value_of(walk.builder, walk.index);
  if (!value) return false;
  const InstId place = ctx.load(walk.builder, args.index, walk.index);
  const SymSizes& sizes = ctx.meta(args.self).sizes;
  std::vector<SymExpr> at = walk.index;
  const SymExpr checked =
      walk.builder.checked_index(place, at.empty() ? SymExpr(1) : sizes[static_cast<size_t>(args.dim)], false);
  if (!at.empty()) at[static_cast<size_t>(args.dim)] = checked;
  store(ctx, std::move(walk), buffer, std::move(at), *value, write);
  return true;
}

bool scatter_source(LowerContext& ctx, const ScatterArgs& args, LoopBufferId buffer, Write write) {
  return scatter(ctx, args, buffer, write, [&](NestBuilder& b, const std::vector<SymExpr>& at) {
    return std::optional(ctx.load(b, *args.source, at));
  });
}

bool lower_scatter(LowerContext& ctx) {
  const auto args = scatter_args(ctx);
  if (!args || !args->source) return false;
  Destination to(ctx, false);
  to.copy(args->self);
  return scatter_source(ctx, *args, to.buffer(), kSet);
}

bool lower_scatter_value(LowerContext& ctx) {
  const auto args = scatter_args(ctx);
  if (!args) return false;
  Destination to(ctx, false);
  to.copy(args->self);
  return scatter(ctx, *args, to.buffer(), kSet, [&](NestBuilder& b, const auto&) { return number(ctx, b, 3); });
}

bool lower_scatter_add(LowerContext& ctx) {
  const auto args = scatter_args(ctx);
  if (!args || !args->source || ctx.result_meta().dtype == DType::kBool || !wide_pays(ctx, args->index)) return false;
  Destination to(ctx, true);
  to.copy(args->self);
  scatter_source(ctx, *args, to.buffer(), kAdd);
  to.cast_to_result();
  return true;
}

// scatter.reduce, scatter.value_reduce (self, dim, index, source or value, "add" or "multiply")
bool lower_scatter_joined(LowerContext& ctx) {
  const auto args = scatter_args(ctx);
  const auto name = ctx.text(4);
  if (!args || !name || ctx.result_meta().dtype == DType::kBool || !wide_pays(ctx, args->index)) return false;
  if ((*name != "add" && *name != "multiply") || (ctx.tensor(3) && !args->source)) return false;
  const Write write{StoreMode::kJoin, *name == "add" ? ReduceOp::kSum : ReduceOp::kProd};
  Destination to(ctx, true);
  to.copy(args->self);
  const bool done = args->source ? scatter_source(ctx, *args, to.buffer(), write)
                                 : scatter(ctx, *args, to.buffer(), write,
                                           [&](NestBuilder& b, const auto&) { return number(ctx, b, 3); });
  to.cast_to_result();
  return done;
}

// scatter_reduce.two(self, dim, index, src, reduce, include_self). Means are left to torch.
bool lower_scatter_reduce(LowerContext& ctx) {
  static constexpr std::pair<std::string_view, ReduceOp> kOps[] = {
      {"sum", ReduceOp::kSum}, {"prod", ReduceOp::kProd}, {"amax", ReduceOp::kMax}, {"amin", ReduceOp::kMin}};
  const auto args = scatter_args(ctx);
  const auto name = ctx.text(4);
  const DType dtype = ctx.result_meta().dtype;
  if (!args || !args->source || !name || dtype == DType::kBool) return false;
  const auto row = std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& r) { return r.first == *name; });
  if (row == std::end(kOps)) return false;
  const bool joins_self = ctx.flag(5, true),
             is_extremum = row->second == ReduceOp::kMax || row->second == ReduceOp::kMin;
  if ((!joins_self && is_extremum && !is_float(dtype)) || (!is_extremum && !wide_pays(ctx, args->index))) return false;
  Destination to(ctx, !is_extremum);
  to.copy(args->self);
  const double infinity = std::numeric_limits<double>::infinity();
  const double neutral = row->second == ReduceOp::kSum    ? 0
                         : row->second == ReduceOp::kProd ? 1
                         : row->second == ReduceOp::kMax  ? -infinity
                                                          : infinity;
  if (!joins_self)
    scatter(ctx, *args, to.buffer(), kSet,
            [&](NestBuilder& b, const auto&) { return std::optional(b.constant(neutral, dtype)); });
  scatter_source(ctx, *args, to.buffer(), {StoreMode::kJoin, row->second});
  to.cast_to_result();
  return true;
}

// index_add, index_copy, index_fill (self, dim, index, ...): index has one dimension and names slices of self.
struct SliceArgs {
  ValueId self, index;
  std::optional<ValueId> source;  // its slices are written; in all other dimensions it has self's sizes
  size_t dim = 0;
};

std::optional<SliceArgs> slice_args(LowerContext& ctx, bool has_source) {
  const auto self = ctx.tensor(0), index = ctx.tensor(2), source = ctx.tensor(3);
  const auto dim = self ? ctx.dimension(1, ctx.meta(*self).ndim()) : std::nullopt;
  if (!index || !dim) return std::nullopt;
  const TensorMeta &m = ctx.meta(*self), &i = ctx.meta(*index);
  if (m.ndim() == 0 || i.ndim() != 1 || (i.dtype != DType::kInt64 && i.dtype != DType::kInt32)) return std::nullopt;
  SliceArgs args{*self, *index, std::nullopt, static_cast<size_t>(*dim)};
  if (!has_source) return args;
  if (!source || ctx.meta(*source).dtype != m.dtype || ctx.meta(*source).ndim() != m.ndim()) return std::nullopt;
  args.source = source;
  for (size_t d = 0; d < m.ndim(); ++d)
    if (!(ctx.meta(*source).sizes[d] == (d == args.dim ? i.sizes[0] : m.sizes[d]))) return std::nullopt;
  return args;
}

bool write_slices(LowerContext& ctx, const SliceArgs& args, LoopBufferId buffer, Write write, bool wrap) {
  SymSizes sizes = ctx.meta(args.self).sizes;
  const SymExpr extent = sizes[args.dim];
  sizes[args.dim] = ctx.meta(args.index).sizes[0];
  Walk walk = ctx.walk(std::move(sizes), static_cast<int64_t>(args.dim));
  const auto value =
      args.source ? std::optional(ctx.load(walk.builder, *args.source, walk.index)) : number(ctx, walk.builder, 3);
  if (!value) return false;
  std::vector<SymExpr> at = walk.index;
  at[args.dim] = walk.builder.checked_index(ctx.load(walk.builder, args.index, {at[args.dim]}), extent, wrap);
  store(ctx, std::move(walk), buffer, std::move(at), *value, write);
  return true;
}

// index_add(self, dim, index, source, alpha). With a factor it is left to torch, which multiplies and adds in one step.
bool lower_index_add(LowerContext& ctx) {
  const auto args = slice_args(ctx, true);
  if (!args || ctx.result_meta().dtype == DType::kBool || (ctx.given(4) && ctx.number(4) != 1.0) ||
      !wide_pays(ctx, *args->source))
    return false;
  Destination to(ctx, true);
  to.copy(args->self);
  write_slices(ctx, *args, to.buffer(), kAdd, false);
  to.cast_to_result();
  return true;
}

bool lower_index_copy(LowerContext& ctx) {
  const auto args = slice_args(ctx, true);
  if (!args || ctx.meta(args->index).dtype != DType::kInt64) return false;
  Destination to(ctx, false);
  to.copy(args->self);
  return write_slices(ctx, *args, to.buffer(), kSet, false);
}

bool lower_index_fill(LowerContext& ctx) {
  const auto args = slice_args(ctx, false);
  const auto value = ctx.tensor(3);
  if (!args || ctx.meta(args->index).dtype != DType::kInt64) return false;
  if (value && ctx.meta(*value).dtype != ctx.result_meta().dtype) return false;
  Destination to(ctx, false);
  to.copy(args->self);
  return write_slices(ctx, *args, to.buffer(), kSet, true);
}

// index_put(self, indices, values, accumulate): integer indices, broadcast together. If they are adjacent, their
// dimensions in `values` take the place of the first of them; otherwise they come first.
struct PutArgs {
  std::vector<ValueId> indices;  // per dimension of self; kNoValue for those taken whole
  SymSizes together;             // sizes of the indices, broadcast
  size_t position = 0;           // of `together` among the written dimensions
};

bool join_sizes(SymSizes& sizes, const SymSizes& more) {
  while (sizes.size() < more.size()) sizes.insert(sizes.begin(), SymExpr(1));
  for (size_t k = 0; k < more.size(); ++k) {
    SymExpr& into = sizes[sizes.size() - more.size() + k];
    if (into == SymExpr(1)) into = more[k];
    else if (!(more[k] == SymExpr(1)) && !(more[k] == into)) return false;
  }
  return true;
}

std::optional<PutArgs> put_args(LowerContext& ctx, size_t ndim) {
  const auto* list = ctx.arg(1) == nullptr ? nullptr : ctx.arg(1)->get<std::vector<ValueId>>();
  if (list == nullptr || list->size() > ndim) return std::nullopt;
  PutArgs args{*list, {}, 0};
  args.indices.resize(ndim, graph::kNoValue);
  size_t first = ndim, last = 0, count = 0;
  for (size_t d = 0; d < ndim; ++d) {
    if (args.indices[d] == graph::kNoValue) continue;
    const TensorMeta& m = ctx.meta(args.indices[d]);
    if ((m.dtype != DType::kInt64 && m.dtype != DType::kInt32) || !join_sizes(args.together, m.sizes))
      return std::nullopt;
    first = std::min(first, d);
    last = d;
    ++count;
  }
  if (count == 0) return std::nullopt;
  args.position = last - first + 1 == count ? first : 0;
  return args;
}

// torch goes through several dimensions of indices in the order of their strides.
bool is_row_major(LowerContext& ctx, const PutArgs& args, ValueId values) {
  const auto is_dense = [&](ValueId v) {
    return v == graph::kNoValue || ctx.meta(v).strides == graph::contiguous_strides(ctx.meta(v).sizes);
  };
  return args.together.size() < 2 ||
         (is_dense(values) && std::all_of(args.indices.begin(), args.indices.end(), is_dense));
}

bool lower_index_put(LowerContext& ctx) {
  const auto self = ctx.tensor(0), values = ctx.tensor(2);
  if (!self || !values) return false;
  const TensorMeta& m = ctx.meta(*self);
  const auto args = put_args(ctx, m.ndim());
  const bool adds = ctx.flag(3, false);
  if (!args || ctx.meta(*values).dtype != m.dtype || (adds && m.dtype == DType::kBool) ||
      !is_row_major(ctx, *args, *values))
    return false;
  SymSizes whole, written;
  for (size_t d = 0; d < m.ndim(); ++d)
    if (args->indices[d] == graph::kNoValue) whole.push_back(m.sizes[d]);
  written = whole;
  written.insert(written.begin() + static_cast<long>(args->position), args->together.begin(), args->together.end());
  const SymSizes& given = ctx.meta(*values).sizes;
  if (given.size() > written.size()) return false;
  for (size_t k = 0; k < given.size(); ++k)
    if (!(given[k] == SymExpr(1)) && !(given[k] == written[written.size() - given.size() + k])) return false;
  Destination to(ctx, false);
  to.copy(*self);
  const SymSizes walked = args->together.empty() ? SymSizes{SymExpr(1)} : args->together;
  Walk walk{ctx.nest(whole, walked), {}};
  NestBuilder& b = walk.builder;
  std::vector<SymExpr> index_point, place = b.range_dims(), at;
  for (size_t k = 0; k < args->together.size(); ++k) index_point.push_back(b.dim(whole.size() + k));
  place.insert(place.begin() + static_cast<long>(args->position), index_point.begin(), index_point.end());
  for (size_t d = 0, next = 0; d < m.ndim(); ++d) {
    const ValueId index = args->indices[d];
    at.push_back(index == graph::kNoValue
                     ? b.dim(next++)
                     : b.checked_index(ctx.load_broadcast(b, index, index_point), m.sizes[d], true));
  }
  const InstId value = ctx.load_broadcast(b, *values, place);
  store(ctx, std::move(walk), to.buffer(), std::move(at), value, adds ? kAdd : kSet);
  return true;
}

// embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq): adds rows of grad to the rows
// that indices name. Indices that name none are skipped, as in eager: they add nothing to row 0.
bool lower_embedding_backward(LowerContext& ctx) {
  const auto grad = ctx.tensor(0), indices = ctx.tensor(1);
  const auto padding = ctx.integer(3);
  if (!grad || !indices || !padding || ctx.flag(4, false) || ctx.result_meta().dtype != ctx.meta(*grad).dtype)
    return false;
  const SymSizes& rows = ctx.meta(*indices).sizes;
  const SymSizes& sizes = ctx.result_meta().sizes;
  const DType index_dtype = ctx.meta(*indices).dtype;
  if ((index_dtype != DType::kInt64 && index_dtype != DType::kInt32) || ctx.meta(*grad).ndim() != rows.size() + 1)
    return false;
  for (size_t d = 0; d < rows.size(); ++d)
    if (!(ctx.meta(*grad).sizes[d] == rows[d])) return false;
  Destination to(ctx, false);
  to.clear();
  Walk walk{ctx.nest({sizes[1]}, rows.empty() ? SymSizes{SymExpr(1)} : rows), {}};
  NestBuilder& b = walk.builder;
  for (size_t d = 0; d < rows.size(); ++d) walk.index.push_back(b.dim(1 + d));
  const InstId row = b.cast(ctx.load(b, *indices, walk.index), DType::kInt64), zero = b.integer(0, DType::kInt64);
  const InstId inside = b.scalar(
      ScalarOp::k_bit_and, {b.scalar(ScalarOp::k_ge, {row, zero}), b.scalar(ScalarOp::k_lt, {row, b.index(sizes[0])})});
  const InstId counts =
      b.scalar(ScalarOp::k_bit_and, {inside, b.scalar(ScalarOp::k_ne, {row, b.integer(*padding, DType::kInt64)})});
  const SymExpr at = b.checked_index(b.scalar(ScalarOp::k_select, {counts, row, zero}), sizes[0], false);
  walk.index.push_back(b.dim(0));
  const InstId given = ctx.load(b, *grad, walk.index);
  const InstId value = b.scalar(ScalarOp::k_select, {counts, given, b.constant(0, ctx.meta(*grad).dtype)});
  store(ctx, std::move(walk), to.buffer(), {at, b.dim(0)}, value, kAdd);
  return true;
}

}  // namespace

void register_scatter_lowerings() {
  static constexpr std::pair<const char*, LowerFn> kTable[] = {{"scatter.src", lower_scatter},
                                                               {"scatter.value", lower_scatter_value},
                                                               {"scatter.reduce", lower_scatter_joined},
                                                               {"scatter.value_reduce", lower_scatter_joined},
                                                               {"scatter_add", lower_scatter_add},
                                                               {"scatter_reduce.two", lower_scatter_reduce},
                                                               {"index_add", lower_index_add},
                                                               {"index_copy", lower_index_copy},
                                                               {"index_fill.int_Scalar", lower_index_fill},
                                                               {"index_fill.int_Tensor", lower_index_fill},
                                                               {"index_put", lower_index_put},
                                                               {"embedding_dense_backward", lower_embedding_backward}};
  for (const auto& [op, function] : kTable) add_lowering(op, function);
}

}  // namespace framejit::inductor
