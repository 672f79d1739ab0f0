// graph/ops/index.cpp — gathering, scattering, joining and repeating.
#include <algorithm>
#include <cstdlib>

#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

bool is_index(const TensorMeta* t) { return t != nullptr && (t->dtype == DType::kInt64 || t->dtype == DType::kInt32); }

bool embedding(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta *weight = args.tensor(0), *indices = args.tensor(1);
  if (weight == nullptr || !is_index(indices) || weight->ndim() != 2) return false;
  SymSizes sizes = indices->sizes;
  sizes.push_back(weight->sizes[1]);
  results.push_back(dense_like(*weight, std::move(sizes)));
  return true;
}

bool index_select(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, dim, index
  const TensorMeta *self = args.tensor(0), *index = args.tensor(2);
  const auto dim = args.integer(1);
  if (self == nullptr || !is_index(index) || !dim || index->ndim() > 1) return false;
  const auto d = wrap_dim(*dim, self->ndim());
  if (!d) return false;
  SymSizes sizes = self->sizes;
  if (!sizes.empty()) sizes[*d] = index->ndim() == 1 ? index->sizes[0] : SymExpr(1);
  results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

bool gather(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, dim, index, sparse_grad
  const TensorMeta *self = args.tensor(0), *index = args.tensor(2);
  const auto dim = args.integer(1);
  if (self == nullptr || !is_index(index) || !dim || self->ndim() != index->ndim()) return false;
  const auto d = wrap_dim(*dim, self->ndim());
  if (!d) return false;
  for (size_t i = 0; i < self->ndim(); ++i)
    if (i != *d && index->sizes[i] != self->sizes[i] &&
        !env.decide(index->sizes[i], Relation::kLe, self->sizes[i], "gather stays inside"))
      return false;
  results.push_back(dense_like(*self, index->sizes));
  return true;
}

// index.Tensor(self, indices): integer indices only. Adjacent indexed dimensions stay in place, others move to the
// front. The strides are those of TensorIterator over self (with stride 0 for indexed dimensions) and the indices.
bool index_tensor(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  std::vector<const TensorMeta*> indices;
  if (self == nullptr || !args.tensors(1, indices) || indices.size() > self->ndim()) return false;
  std::vector<const TensorMeta*> present;
  std::vector<size_t> indexed, plain;
  for (size_t i = 0; i < self->ndim(); ++i) {
    const TensorMeta* index = i < indices.size() ? indices[i] : nullptr;
    (index != nullptr ? indexed : plain).push_back(i);
    if (index == nullptr) continue;
    if (!is_integral(index->dtype) || index->dtype == DType::kUInt8) return false;
    present.push_back(index);
  }
  if (present.empty()) return false;
  const auto shape = broadcast(env, present);
  if (!shape) return false;
  const bool adjacent = indexed.back() - indexed.front() + 1 == indexed.size();
  const size_t before = adjacent ? indexed.front() : 0;
  SymSizes sizes, strides;
  auto take = [&](size_t d) {
    sizes.push_back(self->sizes[d]);
    strides.push_back(self->strides[d]);
  };
  for (size_t i = 0; i < before; ++i) take(plain[i]);
  sizes.insert(sizes.end(), shape->begin(), shape->end());
  strides.resize(sizes.size(), SymExpr(0));
  for (size_t i = before; i < plain.size(); ++i) take(plain[i]);
  std::vector<SymSizes> operands{strides};
  for (const TensorMeta* index : present) {
    SymSizes& s = operands.emplace_back(sizes.size(), SymExpr(0));
    const size_t first = before + shape->size() - index->ndim();
    for (size_t i = 0; i < index->ndim(); ++i)
      if (index->sizes[i] != SymExpr(1)) s[first + i] = index->strides[i];
    // Indices get dimensions of size one around their own; if the result has size one there too, their strides matter.
    if (self->is_contiguous()) continue;
    const bool is_plain = index->is_contiguous() && index->sizes == *shape;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] != SymExpr(1)) continue;
      if (!is_plain) return false;
      const bool is_inside = d >= first && d < first + index->ndim();
      s[d] = is_inside ? index->strides[d - first] : d < first ? index->numel() : SymExpr(1);
    }
  }
  TensorMeta meta = dense_like(*self, sizes);
  meta.strides = permuted_strides(env, sizes, operands);
  results.push_back(std::move(meta));
  return true;
}

bool is_legacy_empty(const TensorMeta& t) { return t.ndim() == 1 && t.sizes[0] == SymExpr(0); }

bool joined(const std::vector<TensorMeta>& parts, int64_t dim, const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* first = nullptr;
  std::vector<const TensorMeta*> all;
  bool channels_last = true;
  for (const TensorMeta& part : parts) {
    all.push_back(&part);
    if (is_legacy_empty(part)) continue;
    if (first == nullptr) first = &part;
    channels_last = channels_last && suggests_channels_last(part, env);
  }
  if (first == nullptr) first = &parts[0];
  const auto d = wrap_dim(dim, first->ndim());
  if (!d || first->ndim() == 0) return false;
  SymSizes sizes = first->sizes;
  sizes[*d] = 0;
  for (const TensorMeta& part : parts) {
    if (is_legacy_empty(part) && first->ndim() != 1) continue;
    if (part.ndim() != first->ndim()) return false;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (i != *d && !same_size(env, sizes[i], part.sizes[i])) return false;
    sizes[*d] = sizes[*d] + part.sizes[*d];
  }
  TensorMeta meta = dense(result_type(all, {}, args.default_dtype), first->device, std::move(sizes));
  if (channels_last) meta.strides = channels_last_strides(meta.sizes);
  results.push_back(std::move(meta));
  return true;
}

bool cat(const RuleArgs& args, ShapeEnv& env, Results& results) {
  std::vector<const TensorMeta*> list;
  if (!args.tensors(0, list) || list.empty()) return false;
  std::vector<TensorMeta> parts;
  for (const TensorMeta* t : list) {
    if (t == nullptr) return false;
    parts.push_back(*t);
  }
  return joined(parts, args.integer_or(1, 0), args, env, results);
}

// As at::stack: concatenates along the dimension and then unfolds it, or concatenates along a new last dimension.
bool stack(const RuleArgs& args, ShapeEnv& env, Results& results) {
  std::vector<const TensorMeta*> list;
  if (!args.tensors(0, list) || list.empty() || list[0] == nullptr) return false;
  const size_t ndim = list[0]->ndim();
  const auto d = wrap_dim(args.integer_or(1, 0), ndim + 1);
  if (!d) return false;
  std::vector<TensorMeta> parts;
  for (const TensorMeta* t : list) {
    if (t == nullptr || t->ndim() != ndim) return false;
    TensorMeta& part = parts.emplace_back(*t);
    if (*d < ndim && !same_size(env, t->sizes[*d], list[0]->sizes[*d])) return false;
    if (*d < ndim) continue;
    part.sizes.emplace_back(1);
    part.strides.emplace_back(1);
  }
  if (!joined(parts, static_cast<int64_t>(*d), args, env, results)) return false;
  if (*d == ndim) return true;
  TensorMeta& meta = results[0];
  const auto at = static_cast<std::ptrdiff_t>(*d);
  const SymExpr size = list[0]->sizes[*d];
  SymSizes sizes = meta.sizes;
  sizes[*d] = size;
  sizes.insert(sizes.begin() + at, SymExpr(static_cast<int64_t>(list.size())));
  auto strides = view_strides(env, meta, sizes);
  if (!strides) return false;
  meta.strides = std::move(*strides);
  meta.sizes = std::move(sizes);
  return true;
}

bool repeat(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes repeats;
  if (self == nullptr || !args.sizes(1, repeats) || repeats.size() < self->ndim() || any_negative(env, repeats))
    return false;
  const size_t added = repeats.size() - self->ndim();
  for (size_t i = 0; i < self->ndim(); ++i) repeats[added + i] = repeats[added + i] * self->sizes[i];
  results.push_back(dense_like(*self, std::move(repeats)));
  return true;
}

bool dense_self(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  results.push_back(dense_like(*self, self->sizes));
  return true;
}

// self, mask, source: self and mask broadcast together.
bool masked_scatter(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *mask = args.tensor(1);
  auto sizes = self && mask ? broadcast(env, {self, mask}) : std::nullopt;
  if (!sizes) return false;
  results.push_back(dense_like(*self, std::move(*sizes)));
  return true;
}

bool triangle(const RuleArgs& args, ShapeEnv& env, Results& results) {
  return args.tensor(0) != nullptr && args.tensor(0)->ndim() >= 2 && dense_self(args, env, results);
}

bool flip(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, dims
  const TensorMeta* self = args.tensor(0);
  std::vector<int64_t> dims;
  if (self == nullptr || !args.integers(1, dims)) return false;
  std::vector<bool> seen(std::max<size_t>(self->ndim(), 1), false);
  for (const int64_t dim : dims) {
    const auto d = wrap_dim(dim, self->ndim());
    if (!d || seen[*d]) return false;
    seen[*d] = true;
  }
  results.push_back(preserved(*self, env));
  return true;
}

// On a CPU, at::roll joins two narrowed parts for every dimension, so the layout is that of cat: channels_last only if
// both parts are. On a GPU it is row-major.
bool roll(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, shifts, dims
  const TensorMeta* self = args.tensor(0);
  std::vector<int64_t> dims;
  SymSizes shifts;
  if (self == nullptr || !args.sizes(1, shifts)) return false;
  if (args.given(2) && !args.integers(2, dims)) return false;
  const bool on_cpu = self->device.is_cpu();
  if (self->numel() == SymExpr(0) && on_cpu) results.push_back(preserved(*self, env));
  else results.push_back(dense_like(*self, self->sizes));
  if (dims.empty()) return shifts.size() == 1;
  if (dims.size() != shifts.size()) return false;
  bool channels_last = on_cpu && suggests_channels_last(*self, env);
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto d = wrap_dim(dims[i], self->ndim());
    if (!d || self->ndim() == 0) return false;
    if (!channels_last) continue;
    const auto size = self->sizes[*d].as_constant(), shift = shifts[i].as_constant();
    if (!size || !shift) return false;
    channels_last = *size != 0 && *shift % *size != 0;  // otherwise one part is empty
  }
  if (channels_last) results[0].strides = channels_last_strides(self->sizes);
  return true;
}

bool constant_pad_nd(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, pad, value
  const TensorMeta* self = args.tensor(0);
  SymSizes pad;
  if (self == nullptr || !args.sizes(1, pad) || pad.size() % 2 != 0 || pad.size() > 2 * self->ndim()) return false;
  SymSizes sizes = self->sizes;
  bool grows = false;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    SymExpr& size = sizes[sizes.size() - 1 - i];
    size = size + pad[2 * i] + pad[2 * i + 1];
    grows = grows || env.decide(0, Relation::kLt, pad[2 * i], "padding grows") ||
            env.decide(0, Relation::kLt, pad[2 * i + 1], "padding grows");
  }
  if (!grows) {  // it only crops: a clone of a view
    TensorMeta view = *self;
    view.sizes = std::move(sizes);
    if (any_negative(env, view.sizes)) return false;
    results.push_back(preserved(view, env));
    return true;
  }
  results.push_back(in_suggested_format(*self, std::move(sizes), env));
  return true;
}

// self, padding of the last `count` dimensions. A batch and channels come before these. A reflection must stay inside.
template <size_t count, bool reflects>
bool edge_pad(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes pad;
  if (self == nullptr || self->ndim() < count + 1 || self->ndim() > count + 2) return false;
  if (!args.sizes(1, pad) || pad.size() != 2 * count || any_negative(env, pad)) return false;
  SymSizes sizes = self->sizes;
  for (size_t k = 0; k < count; ++k) {
    SymExpr& size = sizes[sizes.size() - 1 - k];
    if (!env.decide(0, Relation::kLt, size, "padded dimension has elements")) return false;
    for (size_t side : {2 * k, 2 * k + 1})
      if (reflects && !env.decide(pad[side], Relation::kLt, size, "reflection stays inside")) return false;
    size = size + pad[2 * k] + pad[2 * k + 1];
  }
  results.push_back(count > 1 ? with_edges(*self, std::move(sizes), env) : dense_like(*self, std::move(sizes)));
  return true;
}

bool diag_embed(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, offset, dim1, dim2
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || self->ndim() == 0) return false;
  const size_t ndim = self->ndim() + 1;
  const auto first = wrap_dim(args.integer_or(2, -2), ndim), second = wrap_dim(args.integer_or(3, -1), ndim);
  if (!first || !second || *first == *second) return false;
  SymSizes sizes(self->sizes.begin(), self->sizes.end() - 1);
  const SymExpr side = self->sizes.back() + std::abs(args.integer_or(1, 0));
  for (const size_t d : {std::min(*first, *second), std::max(*first, *second)})
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(d), side);
  results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

// The positions of the numbers of argument `numbers` (a tensor or a number) in the sorted argument `sorted`, which is
// 1-d or has one row for each row of numbers.
bool searched(const RuleArgs& args, ShapeEnv& env, size_t sorted, size_t numbers,
              Results& results) {  // then out_int32, right, side, sorter
  const TensorMeta *rows = args.tensor(sorted), *self = args.tensor(numbers);
  if (rows == nullptr || rows->ndim() == 0 || args.given(5) ||
      (self == nullptr && (!args.number(numbers) || rows->ndim() != 1)))
    return false;
  if (rows->ndim() != 1) {
    if (rows->ndim() != self->ndim()) return false;
    for (size_t i = 0; i + 1 < rows->ndim(); ++i)
      if (!same_size(env, rows->sizes[i], self->sizes[i])) return false;
  }
  results.push_back(
      dense(args.flag(2) ? DType::kInt32 : DType::kInt64, rows->device, self == nullptr ? SymSizes{} : self->sizes));
  return true;
}

bool is_in(const RuleArgs& args, ShapeEnv&, Results& results) {  // elements, test_elements
  const TensorMeta *elements = args.tensor(0), *tested = args.tensor(1);
  if (elements == nullptr && tested == nullptr) return false;
  results.push_back(dense(DType::kBool, (elements != nullptr ? elements : tested)->device,
                          elements != nullptr ? elements->sizes : SymSizes{}));
  return true;
}

bool take(const RuleArgs& args, ShapeEnv&, Results& results) {  // self, index
  const TensorMeta *self = args.tensor(0), *index = args.tensor(1);
  if (self == nullptr || index == nullptr || index->dtype != DType::kInt64) return false;
  results.push_back(dense_like(*self, index->sizes));
  return true;
}

bool block_diag(const RuleArgs& args, ShapeEnv&,
                Results& results) {  // a list of at most 2-d tensors; numbers and vectors are rows
  std::vector<const TensorMeta*> list;
  if (!args.tensors(0, list) || list.empty() || list[0] == nullptr) return false;
  TensorMeta meta = dense_like(*list[0], {0, 0});
  for (const TensorMeta* t : list) {
    if (t == nullptr || t->ndim() > 2 || t->device != meta.device) return false;
    meta.sizes[0] = meta.sizes[0] + (t->ndim() == 2 ? t->sizes[0] : SymExpr(1));
    meta.sizes[1] = meta.sizes[1] + (t->ndim() == 0 ? SymExpr(1) : t->sizes.back());
  }
  meta.dtype = result_type(list, {}, args.default_dtype);
  meta.strides = contiguous_strides(meta.sizes);
  results.push_back(std::move(meta));
  return true;
}

// Only without indices: torch's shape function looks at the first slice of the source, but eager's kernel does not.
bool index_reduce_of_nothing(const RuleArgs& args, ShapeEnv& env,
                             Results& results) {  // self, dim, index, source, reduce, include_self
  const TensorMeta* index = args.tensor(2);
  return index != nullptr && index->numel() == SymExpr(0) && dense_self(args, env, results);
}

// self, mask, indices, fill: the selected elements where the mask is true.
bool masked_index(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *mask = args.tensor(1);
  if (self == nullptr || mask == nullptr || self->numel() == SymExpr(0) || args.count() < 3) return false;
  RuleArgs inner = args;
  const std::vector<Arg> selection{args.args[0], args.args[2]};
  inner.args = selection;
  Results selected;
  if (!index_tensor(inner, env, selected)) return false;
  auto sizes = broadcast(env, {mask, &selected[0]});
  if (!sizes) return false;
  results.push_back(dense_like(*self, std::move(*sizes)));
  return true;
}

// data, reduce, lengths, indices, offsets, axis, ...: one result for each segment along the axis.
bool segment_reduce(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta *data = args.tensor(0), *lengths = args.tensor(2), *offsets = args.tensor(4);
  const auto axis = args.integer(5);
  const TensorMeta* segments = offsets != nullptr ? offsets : lengths;
  if (data == nullptr || segments == nullptr || args.given(3) || !axis || *axis < 0 || !is_float(data->dtype))
    return false;
  const auto at = static_cast<size_t>(*axis);
  if (at >= data->ndim() || segments->ndim() != at + 1) return false;
  SymSizes sizes = data->sizes;
  sizes[at] = offsets != nullptr ? segments->sizes[at] - 1 : segments->sizes[at];
  results.push_back(dense_like(*data, std::move(sizes)));
  return true;
}

bool segment_reduce_backward(const RuleArgs& args, ShapeEnv&, Results& results) {  // grad, output, data, ...
  const TensorMeta *grad = args.tensor(0), *data = args.tensor(2);
  if (grad == nullptr || data == nullptr) return false;
  results.push_back(dense_like(*grad, data->sizes));
  return true;
}

bool nonzero_static(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, size, fill_value
  const TensorMeta* self = args.tensor(0);
  const auto size = args.size(1);
  if (self == nullptr || !size || any_negative(env, {*size})) return false;
  results.push_back(dense(DType::kInt64, self->device, {*size, static_cast<int64_t>(self->ndim())}));
  return true;
}

bool repeated_positions(const RuleArgs& args, ShapeEnv& env, Results& results) {  // repeats, output_size
  const TensorMeta* repeats = args.tensor(0);
  const auto size = args.size(1);
  if (repeats == nullptr || repeats->ndim() != 1 || !size || any_negative(env, {*size}) ||
      (repeats->dtype != DType::kInt64 && repeats->dtype != DType::kInt32))
    return false;
  results.push_back(dense_like(*repeats, {*size}));
  return true;
}

// tensors, dim, num_chunks: each tensor is padded to whole chunks along the dimension, and flattened after it.
bool chunk_cat(const RuleArgs& args, ShapeEnv& env, Results& results) {
  std::vector<const TensorMeta*> list;
  const auto dim = args.integer(1), chunks = args.integer(2);
  if (!args.tensors(0, list) || list.empty() || list[0] == nullptr || list[0]->ndim() == 0 || !dim || !chunks ||
      *chunks < 1)
    return false;
  const auto at = wrap_dim(*dim, list[0]->ndim());
  if (!at) return false;
  SymSizes sizes(list[0]->sizes.begin(), list[0]->sizes.begin() + static_cast<std::ptrdiff_t>(*at));
  SymExpr width = 0;
  for (const TensorMeta* t : list) {
    if (t == nullptr || t->ndim() <= *at || t->dtype != list[0]->dtype || t->numel() == SymExpr(0)) return false;
    for (size_t i = 0; i < *at; ++i)
      if (!same_size(env, t->sizes[i], sizes[i])) return false;
    SymExpr of_chunk = SymExpr::floor_div(t->sizes[*at] + (*chunks - 1), *chunks);
    for (size_t i = *at + 1; i < t->ndim(); ++i) of_chunk = of_chunk * t->sizes[i];
    width = width + of_chunk;
  }
  sizes.emplace_back(*chunks);
  sizes.push_back(width);
  results.push_back(dense_like(*list[0], std::move(sizes)));
  return true;
}

}  // namespace

std::vector<OpRow> index_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, embedding, {"embedding"}, kChecksData);
  add_rows(rows, index_select, {"index_select"}, kChecksData);
  add_rows(rows, gather, {"gather"}, kChecksData);
  add_rows(rows, index_tensor, {"index.Tensor", "_unsafe_index.Tensor"}, kChecksData);
  add_rows(rows, cat, {"cat"});
  add_rows(rows, stack, {"stack"});
  add_rows(rows, repeat, {"repeat"});
  add_rows(rows, constant_pad_nd, {"constant_pad_nd"});
  add_rows(rows, edge_pad<1, true>, {"reflection_pad1d"});
  add_rows(rows, edge_pad<2, true>, {"reflection_pad2d"});
  add_rows(rows, edge_pad<3, true>, {"reflection_pad3d"});
  add_rows(rows, edge_pad<1, false>, {"replication_pad1d"});
  add_rows(rows, edge_pad<2, false>, {"replication_pad2d"});
  add_rows(rows, edge_pad<3, false>, {"replication_pad3d"});
  add_rows(rows, diag_embed, {"diag_embed"});
  add_rows_in_place(rows, triangle, {"tril", "triu"});
  add_rows(rows, flip, {"flip"});
  add_rows(rows, roll, {"roll"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return searched(a, e, 0, 1, r); },
           {"searchsorted.Tensor", "searchsorted.Scalar"});
  add_rows(rows, [](const RuleArgs& a, ShapeEnv& e, Results& r) { return searched(a, e, 1, 0, r); },
           {"bucketize.Tensor", "bucketize.Scalar"});
  add_rows(rows, is_in, {"isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor"});
  add_rows(rows, take, {"take"}, kChecksData);
  add_rows(rows, block_diag, {"block_diag"});
  // Functional scatters clone self (or allocate memory with its layout) and write.
  add_rows(rows, preserved_self, {"_unsafe_index_put", "_unsafe_masked_index_put_accumulate"}, kChecksData);
  add_rows(rows, masked_index, {"_unsafe_masked_index"});
  add_rows(rows, segment_reduce, {"segment_reduce"}, kChecksData);
  add_rows(rows, segment_reduce_backward, {"_segment_reduce_backward"}, kChecksData);
  add_rows(rows, nonzero_static, {"nonzero_static"});
  add_rows(rows, repeated_positions, {"repeat_interleave.Tensor"}, kChecksData);
  add_rows(rows, chunk_cat, {"_chunk_cat"});
  add_rows_in_place(rows, preserved_self, {"index_put", "index_fill.int_Scalar", "index_fill.int_Tensor"},
                    kChecksData | kRequiresOperands);
  rows.push_back({"_index_put_impl_", same_as_self, kMutates | kChecksData | kRequiresOperands, "_index_put_impl"});
  rows.push_back({"put_", same_as_self, kMutates | kChecksData | kRequiresOperands, "put"});
  add_rows_in_place(rows, dense_self, {"index_add", "index_copy"}, kChecksData);
  add_rows_in_place(rows, masked_scatter, {"masked_scatter"}, kChecksData);
  add_rows_in_place(rows, index_reduce_of_nothing, {"index_reduce"}, kChecksData);
  add_rows_in_place(
      rows, dense_self,
      {"scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add", "scatter_reduce.two"},
      kChecksData);
  return rows;
}

}  // namespace framejit::graph
