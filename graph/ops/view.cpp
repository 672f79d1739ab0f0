// graph/ops/view.cpp — ops whose result lies in the storage of their argument. Its sizes, strides and offset follow
// from those of the argument.
#include "graph/op_lists.h"
#include "graph/ops/families.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {
namespace {

using Results = std::vector<TensorMeta>;

TensorMeta restrided(const TensorMeta& base, SymSizes sizes, SymSizes strides, SymExpr offset) {
  TensorMeta meta = base;
  meta.sizes = std::move(sizes);
  meta.strides = std::move(strides);
  meta.offset = std::move(offset);
  return meta;
}

bool alias(const RuleArgs& args, ShapeEnv&, Results& results) {
  if (args.tensor(0) == nullptr) return false;
  results.push_back(*args.tensor(0));
  return true;
}

bool detach(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!alias(args, env, results)) return false;
  results[0].requires_grad = false;
  return true;
}

bool view(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes sizes;
  if (self == nullptr || !args.sizes(1, sizes) || !infer_size(env, sizes, self->numel())) return false;
  auto strides = view_strides(env, *self, sizes);
  if (!strides) return false;
  results.push_back(restrided(*self, std::move(sizes), std::move(*strides), self->offset));
  return true;
}

// A view where one is possible, otherwise a contiguous copy.
bool reshape(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes sizes;
  if (self == nullptr || !args.sizes(1, sizes) || !infer_size(env, sizes, self->numel())) return false;
  if (auto strides = view_strides(env, *self, sizes))
    results.push_back(restrided(*self, std::move(sizes), std::move(*strides), self->offset));
  else results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

bool reshape_alias(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes sizes, strides;
  if (self == nullptr || !args.sizes(1, sizes) || !args.sizes(2, strides)) return false;
  results.push_back(restrided(*self, std::move(sizes), std::move(strides), self->offset));
  return true;
}

bool as_strided(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes sizes, strides;
  if (self == nullptr || !args.sizes(1, sizes) || !args.sizes(2, strides) || sizes.size() != strides.size())
    return false;
  results.push_back(restrided(*self, std::move(sizes), std::move(strides), args.size(3).value_or(self->offset)));
  return true;
}

bool expand(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes sizes;
  if (self == nullptr || !args.sizes(1, sizes) || sizes.size() < self->ndim()) return false;
  const size_t added = sizes.size() - self->ndim();
  SymSizes strides(sizes.size(), SymExpr(0));
  for (size_t i = sizes.size(); i-- > 0;) {
    if (i < added) {  // as at::inferExpandGeometry: a new dimension takes size * stride of the next one, or 0 if it
                      // repeats
      if (sizes[i] == SymExpr(-1)) return false;
      const bool is_single = is_one(env, sizes[i]);
      if (is_single) strides[i] = i + 1 < sizes.size() ? sizes[i + 1] * strides[i + 1] : SymExpr(1);
      continue;
    }
    const SymExpr& size = self->sizes[i - added];
    strides[i] = self->strides[i - added];
    if (sizes[i] == SymExpr(-1) || sizes[i] == size) sizes[i] = size;
    else if (is_one(env, size)) strides[i] = 0;
    else if (!same_size(env, size, sizes[i])) return false;
  }
  results.push_back(restrided(*self, std::move(sizes), std::move(strides), self->offset));
  return true;
}

bool permute_by(const TensorMeta& self, const std::vector<int64_t>& order, Results& results) {
  SymSizes sizes, strides;
  std::vector<bool> seen(self.ndim(), false);
  if (order.size() != self.ndim()) return false;
  for (const int64_t dim : order) {
    const auto d = wrap_dim(dim, self.ndim());
    if (!d || seen[*d]) return false;
    seen[*d] = true;
    sizes.push_back(self.sizes[*d]);
    strides.push_back(self.strides[*d]);
  }
  results.push_back(restrided(self, std::move(sizes), std::move(strides), self.offset));
  return true;
}

bool permute(const RuleArgs& args, ShapeEnv&, Results& results) {
  std::vector<int64_t> order;
  return args.tensor(0) != nullptr && args.integers(1, order) && permute_by(*args.tensor(0), order, results);
}

bool swap_dims(const TensorMeta& self, int64_t a, int64_t b, Results& results) {
  const auto x = wrap_dim(a, self.ndim()), y = wrap_dim(b, self.ndim());
  if (!x || !y) return false;
  TensorMeta meta = self;
  if (self.ndim() > 0) {
    std::swap(meta.sizes[*x], meta.sizes[*y]);
    std::swap(meta.strides[*x], meta.strides[*y]);
  }
  results.push_back(std::move(meta));
  return true;
}

bool transpose(const RuleArgs& args, ShapeEnv&, Results& results) {
  const auto a = args.integer(1), b = args.integer(2);
  return args.tensor(0) != nullptr && a && b && swap_dims(*args.tensor(0), *a, *b, results);
}

bool t(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  return self != nullptr && self->ndim() <= 2 && swap_dims(*self, 0, self->ndim() == 2 ? 1 : 0, results);
}

bool unsqueeze(const RuleArgs& args, ShapeEnv&, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1);
  if (self == nullptr || !dim) return false;
  const auto at = wrap_dim(*dim, self->ndim() + 1);
  if (!at) return false;
  TensorMeta meta = *self;
  const auto d = static_cast<std::ptrdiff_t>(*at);
  const SymExpr stride = *at < self->ndim() ? self->sizes[*at] * self->strides[*at] : SymExpr(1);
  meta.sizes.insert(meta.sizes.begin() + d, SymExpr(1));
  meta.strides.insert(meta.strides.begin() + d, stride);
  results.push_back(std::move(meta));
  return true;
}

bool squeeze(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  std::vector<bool> wanted;
  if (self == nullptr) return false;
  if (args.count() < 2) wanted.assign(self->ndim(), true);
  else {
    std::vector<int64_t> dims;
    if (!args.integers(1, dims)) return false;
    wanted.assign(self->ndim(), false);
    for (const int64_t dim : dims) {
      const auto d = wrap_dim(dim, self->ndim());
      if (!d) return false;
      if (*d < self->ndim()) wanted[*d] = true;
    }
  }
  TensorMeta meta = restrided(*self, {}, {}, self->offset);
  for (size_t i = 0; i < self->ndim(); ++i) {
    if (wanted[i] && is_one(env, self->sizes[i])) continue;
    meta.sizes.push_back(self->sizes[i]);
    meta.strides.push_back(self->strides[i]);
  }
  results.push_back(std::move(meta));
  return true;
}

// An index counted from the end, brought into [0, size].
SymExpr clamp_index(ShapeEnv& env, SymExpr index, const SymExpr& size) {
  if (env.decide(index, Relation::kLt, 0, "slice counts from the end")) {
    index = index + size;
    if (env.decide(index, Relation::kLt, 0, "slice starts before the front")) return 0;
  }
  return env.decide(size, Relation::kLe, index, "slice reaches the end") ? size : index;
}

bool slice(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, dim=0, start=None, end=None, step=1
  const TensorMeta* self = args.tensor(0);
  const int64_t step = args.integer_or(4, 1);
  if (self == nullptr || self->ndim() == 0 || step <= 0 || (args.given(4) && !args.integer(4))) return false;
  const auto dim = wrap_dim(args.integer_or(1, 0), self->ndim());
  if (!dim) return false;
  const SymExpr& size = self->sizes[*dim];
  const SymExpr start = clamp_index(env, args.size(2).value_or(0), size);
  const auto end_given = args.size(3);
  const bool to_end = !end_given || *end_given == SymExpr(INT64_MAX);
  SymExpr end = to_end ? size : clamp_index(env, *end_given, size);
  if (env.decide(end, Relation::kLt, start, "slice is empty")) end = start;
  TensorMeta meta = *self;
  meta.offset = self->offset + start * self->strides[*dim];
  meta.sizes[*dim] = SymExpr::floor_div(end - start + (step - 1), step);
  meta.strides[*dim] = self->strides[*dim] * SymExpr(step);
  results.push_back(std::move(meta));
  return true;
}

bool select(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1);
  auto index = args.size(2);
  if (self == nullptr || self->ndim() == 0 || !dim || !index) return false;
  const auto d = wrap_dim(*dim, self->ndim());
  if (!d) return false;
  if (env.decide(*index, Relation::kLt, 0, "index counts from the end")) index = *index + self->sizes[*d];
  if (env.decide(*index, Relation::kLt, 0, "index in range") ||
      !env.decide(*index, Relation::kLt, self->sizes[*d], "index in range"))
    return false;
  TensorMeta meta = *self;
  meta.offset = self->offset + *index * self->strides[*d];
  meta.sizes.erase(meta.sizes.begin() + static_cast<std::ptrdiff_t>(*d));
  meta.strides.erase(meta.strides.begin() + static_cast<std::ptrdiff_t>(*d));
  results.push_back(std::move(meta));
  return true;
}

// Consecutive parts of dimension `dim`.
bool parts(const TensorMeta& self, size_t dim, const SymSizes& lengths, Results& results) {
  SymExpr start = 0;
  for (const SymExpr& length : lengths) {
    TensorMeta meta = self;
    meta.sizes[dim] = length;
    meta.offset = self.offset + start * self.strides[dim];
    start = start + length;
    results.push_back(std::move(meta));
  }
  return true;
}

bool split_with_sizes(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes lengths;
  if (self == nullptr || self->ndim() == 0 || !args.sizes(1, lengths)) return false;
  const auto dim = wrap_dim(args.integer_or(2, 0), self->ndim());
  SymExpr total = 0;
  for (const SymExpr& length : lengths) total = total + length;
  if (!dim || any_negative(env, lengths) || !same_size(env, total, self->sizes[*dim])) return false;
  return parts(*self, *dim, lengths, results);
}

bool split(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  const auto length = args.size(1);
  if (self == nullptr || self->ndim() == 0 || !length || env.decide(*length, Relation::kLe, 0, "length of a split"))
    return false;
  const auto dim = wrap_dim(args.integer_or(2, 0), self->ndim());
  if (!dim) return false;
  // The number of parts is part of the graph's structure: it must be a constant.
  const SymExpr& size = self->sizes[*dim];
  const int64_t count = std::max<int64_t>(
      1, env.specialise(SymExpr::floor_div(size + *length - 1, *length), "number of parts of a split"));
  SymSizes lengths(static_cast<size_t>(count) - 1, *length);
  lengths.push_back(size - *length * SymExpr(count - 1));
  return parts(*self, *dim, lengths, results);
}

bool unbind(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || self->ndim() == 0) return false;
  const auto dim = wrap_dim(args.integer_or(1, 0), self->ndim());
  if (!dim) return false;
  const int64_t count = env.specialise(self->sizes[*dim], "number of parts of an unbind");
  for (int64_t i = 0; i < count; ++i) {
    TensorMeta meta = *self;
    meta.offset = self->offset + self->strides[*dim] * SymExpr(i);
    meta.sizes.erase(meta.sizes.begin() + static_cast<std::ptrdiff_t>(*dim));
    meta.strides.erase(meta.strides.begin() + static_cast<std::ptrdiff_t>(*dim));
    results.push_back(std::move(meta));
  }
  return true;
}

bool diagonal(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, offset=0, dim1=0, dim2=1
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr || self->ndim() < 2) return false;
  const int64_t shift = args.integer_or(1, 0);
  const auto a = wrap_dim(args.integer_or(2, 0), self->ndim()), b = wrap_dim(args.integer_or(3, 1), self->ndim());
  if (!a || !b || *a == *b) return false;
  const SymExpr rows = shift < 0 ? self->sizes[*a] + shift : self->sizes[*a];
  const SymExpr columns = shift < 0 ? self->sizes[*b] : self->sizes[*b] - shift;
  SymExpr length = env.decide(rows, Relation::kLe, columns, "shorter side of a diagonal") ? rows : columns;
  if (env.decide(length, Relation::kLt, 0, "diagonal is empty")) length = 0;
  TensorMeta meta = restrided(*self, {}, {}, self->offset);
  if (length != SymExpr(0))
    meta.offset = self->offset + (shift < 0 ? self->strides[*a] * SymExpr(-shift) : self->strides[*b] * SymExpr(shift));
  for (size_t i = 0; i < self->ndim(); ++i) {
    if (i == *a || i == *b) continue;
    meta.sizes.push_back(self->sizes[i]);
    meta.strides.push_back(self->strides[i]);
  }
  meta.sizes.push_back(length);
  meta.strides.push_back(self->strides[*a] + self->strides[*b]);
  results.push_back(std::move(meta));
  return true;
}

bool unfold(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, dimension, size, step
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1), size = args.integer(2), step = args.integer(3);
  if (self == nullptr || self->ndim() == 0 || !dim || !size || !step || *step <= 0 || *size < 0) return false;
  const auto d = wrap_dim(*dim, self->ndim());
  if (!d || env.decide(self->sizes[*d], Relation::kLt, *size, "window fits")) return false;
  TensorMeta meta = *self;
  meta.sizes[*d] = SymExpr::floor_div(self->sizes[*d] - *size, *step) + 1;
  meta.strides[*d] = self->strides[*d] * SymExpr(*step);
  meta.sizes.push_back(*size);
  meta.strides.push_back(self->strides[*d]);
  results.push_back(std::move(meta));
  return true;
}

// x_scatter(self, src, ...): at::clone_preserve_strides keeps strides and offset unless elements of self share memory.
bool scattered(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  if (self == nullptr) return false;
  bool repeats = false;
  for (size_t i = 0; i < self->ndim(); ++i)
    repeats = repeats || (self->strides[i] == SymExpr(0) && self->sizes[i] != SymExpr(1));
  results.push_back(repeats ? preserved(*self, env) : *self);
  return true;
}

// view_copy copies whatever the strides are.
bool view_copied(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta* self = args.tensor(0);
  SymSizes sizes;
  if (self == nullptr || !args.sizes(1, sizes) || !infer_size(env, sizes, self->numel())) return false;
  results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

// The views of a rule, each copied.
template <ShapeRule view>
bool copied(const RuleArgs& args, ShapeEnv& env, Results& results) {
  if (!view(args, env, results)) return false;
  for (TensorMeta& meta : results) meta = dense_like(meta, meta.sizes);
  return true;
}

bool narrow_copy(const RuleArgs& args, ShapeEnv& env, Results& results) {  // self, dim, start, length
  const TensorMeta* self = args.tensor(0);
  const auto dim = args.integer(1);
  const auto start = args.size(2), length = args.size(3);
  if (self == nullptr || self->ndim() == 0 || !dim || !start || !length) return false;
  const auto d = wrap_dim(*dim, self->ndim());
  if (!d || any_negative(env, {*start, *length}) ||
      !env.decide(*start + *length, Relation::kLe, self->sizes[*d], "narrow stays inside"))
    return false;
  SymSizes sizes = self->sizes;
  sizes[*d] = *length;
  results.push_back(dense_like(*self, std::move(sizes)));
  return true;
}

bool view_copied_as_dtype(const RuleArgs& args, ShapeEnv&, Results& results) {  // of the same width
  const TensorMeta* self = args.tensor(0);
  const auto dtype = args.dtype(1);
  if (self == nullptr || !dtype || row_of(*dtype).bytes != row_of(self->dtype).bytes) return false;
  results.push_back(dense(*dtype, self->device, self->sizes));
  return true;
}

// As scattered(), but the source must have the sizes of a view of self: view(self, arguments after the source).
template <ShapeRule view>
bool scattered_over(const RuleArgs& args, ShapeEnv& env, Results& results) {
  const TensorMeta *self = args.tensor(0), *source = args.tensor(1);
  if (self == nullptr || source == nullptr) return false;
  std::vector<Arg> rest(args.args.begin(), args.args.end());
  rest.erase(rest.begin() + 1);
  RuleArgs inner = args;
  inner.args = rest;
  Results region;
  if (!view(inner, env, region) || region[0].ndim() != source->ndim()) return false;
  for (size_t i = 0; i < source->ndim(); ++i)
    if (!same_size(env, source->sizes[i], region[0].sizes[i])) return false;
  return scattered(args, env, results);
}

}  // namespace

std::vector<OpRow> view_ops() {
  std::vector<OpRow> rows;
  add_rows(rows, alias, {"alias", "lift_fresh", "lift", "_conj"}, kView);
  add_rows(rows, detach, {"detach"}, kView);
  add_rows(rows, view, {"view"}, kView);
  add_rows(rows, reshape_alias, {"_reshape_alias"}, kView);
  add_rows(rows, reshape, {"reshape"}, kView);
  add_rows(rows, as_strided, {"as_strided"}, kView);
  add_rows(rows, expand, {"expand"}, kView);
  add_rows(rows, permute, {"permute"}, kView);
  add_rows(rows, transpose, {"transpose.int"}, kView);
  add_rows(rows, t, {"t"}, kView);
  add_rows(rows, unsqueeze, {"unsqueeze"}, kView);
  add_rows(rows, squeeze, {"squeeze", "squeeze.dim", "squeeze.dims"}, kView);
  add_rows(rows, slice, {"slice.Tensor"}, kView);
  add_rows(rows, select, {"select.int"}, kView);
  add_rows(rows, split, {"split.Tensor"}, kView);
  add_rows(rows, split_with_sizes, {"split_with_sizes"}, kView);
  add_rows(rows, unbind, {"unbind.int"}, kView);
  add_rows(rows, diagonal, {"diagonal"}, kView);
  add_rows(rows, unfold, {"unfold"}, kView);
  add_rows(rows, scattered, {"as_strided_scatter"}, kKeepsPlace);
  add_rows(rows, scattered_over<slice>, {"slice_scatter"}, kKeepsPlace | kRuleIsComplete);
  add_rows(rows, view_copied, {"view_copy"});
  add_rows(rows, view_copied_as_dtype, {"view_copy.dtype"});
  add_rows(rows, narrow_copy, {"narrow_copy"});
  add_rows(rows, copied<alias>, {"alias_copy"});
  add_rows(rows, copied<as_strided>, {"as_strided_copy"});
  add_rows(rows, copied<diagonal>, {"diagonal_copy"});
  add_rows(rows, copied<expand>, {"expand_copy"});
  add_rows(rows, copied<permute>, {"permute_copy"});
  add_rows(rows, copied<squeeze>, {"squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims"});
  add_rows(rows, copied<t>, {"t_copy"});
  add_rows(rows, copied<transpose>, {"transpose_copy.int"});
  add_rows(rows, copied<unsqueeze>, {"unsqueeze_copy"});
  add_rows(rows, copied<unfold>, {"unfold_copy"});
  add_rows(rows, copied<split_with_sizes>, {"split_with_sizes_copy"});
  add_rows(rows, copied<unbind>, {"unbind_copy.int"});
  add_rows(rows, scattered_over<select>, {"select_scatter"}, kKeepsPlace | kRuleIsComplete);
  add_rows(rows, scattered_over<diagonal>, {"diagonal_scatter"}, kKeepsPlace | kRuleIsComplete);
  // Views that their schema, and so autograd, treats as fresh tensors.
  rows.push_back({"_unsafe_view", view, kView, "view"});
  rows.push_back({"unsafe_split.Tensor", split, kView, "split.Tensor"});
  rows.push_back({"unsafe_split_with_sizes", split_with_sizes, kView, "split_with_sizes"});
  // In-place changes of a tensor's own sizes: a new value on the same storage (not writes of data).
  for (const auto& [name, rule, plain] : std::initializer_list<std::tuple<const char*, ShapeRule, const char*>>{
           {"t_", t, "t"},
           {"transpose_", transpose, "transpose.int"},
           {"unsqueeze_", unsqueeze, "unsqueeze"},
           {"squeeze_", squeeze, "squeeze"},
           {"squeeze_.dim", squeeze, "squeeze.dim"},
           {"as_strided_", as_strided, "as_strided"}})
    rows.push_back({name, rule, kMutates | kView, plain});
  return rows;
}

bool is_as_strided(const OpDef& op) { return is_in(OpList::addresses_storage, base_name(op.name)); }

bool has_own_offset(const Node& node) {
  const size_t offset = node.op->is(KnownOp::as_strided_scatter) ? 4 : 3;
  return is_as_strided(*node.op) && node.args.size() > offset && !node.args[offset].is_none();
}

}  // namespace framejit::graph
