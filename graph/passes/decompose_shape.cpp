// graph/passes/decompose_shape.cpp — the many forms of views become view, permute, slice and select; parts become
// slices.
//
// A row applies only if the simpler op gives exactly the same sizes, strides and offset.
#include "graph/ops/rule_kit.h"
#include "graph/passes/decompose.h"

namespace framejit::graph {
namespace {

// Emits op(args) as the only result, if its meta equals the node's.
bool same_by(Decomposing& d, const char* op, std::vector<Arg> args) {
  std::vector<TensorMeta> metas;
  if (!infer_metas(*find_op(op), args, d.out.peek().values, d.out.shapes(), metas)) return false;
  std::vector<TensorMeta> original;
  const bool inferred = infer_metas(*d.node.op, d.args, d.out.peek().values, d.out.shapes(), original);
  if (!same_layout(metas[0], inferred ? original[0] : d.metas[0])) return false;
  d.results = {d.out.emit(op, std::move(args), metas[0])};
  return true;
}

bool to_view(Decomposing& d) {
  if (d.meta(d.value(0)).sizes == d.metas[0].sizes && d.meta(d.value(0)).strides == d.metas[0].strides) {
    d.results = {d.value(0)};
    return true;
  }
  return same_by(d, "view", {d.args[0], d.metas[0].sizes});
}

bool identity(Decomposing& d) {
  d.results = {d.value(0)};
  return true;
}

bool permuted(Decomposing& d, size_t a, size_t b) {
  const size_t n = d.metas[0].ndim();
  SymSizes order;
  for (size_t i = 0; i < n; ++i) order.emplace_back(static_cast<int64_t>(i == a ? b : i == b ? a : i));
  return same_by(d, "permute", {d.args[0], order});
}

bool transpose(Decomposing& d) {
  const auto a = d.rule().integer(1), b = d.rule().integer(2);
  const size_t n = d.metas[0].ndim();
  return n > 0 && a && b && permuted(d, *wrap_dim(*a, n), *wrap_dim(*b, n));
}

bool t(Decomposing& d) {
  if (d.metas[0].ndim() < 2) return identity(d);
  return permuted(d, 0, 1);
}

// Results that are consecutive parts of dimension `dim`.
bool slices(Decomposing& d, int64_t dim) {
  SymExpr start = 0;
  const size_t n = d.metas.empty() ? 0 : d.metas[0].ndim();
  const auto at = wrap_dim(dim, n);
  if (!at || n == 0) return false;
  for (const TensorMeta& meta : d.metas) {
    const SymExpr end = start + meta.sizes[*at];
    TensorMeta part = d.meta(d.value(0));  // not inferred: that would express the size by that of the whole
    part.sizes[*at] = meta.sizes[*at];
    part.offset = part.offset + start * part.strides[*at];
    d.results.push_back(
        d.out.emit("slice.Tensor", {d.args[0], static_cast<int64_t>(*at), start, end, SymExpr(1)}, std::move(part)));
    start = end;
  }
  return true;
}

bool split(Decomposing& d) { return slices(d, d.rule().integer_or(2, 0)); }

bool unbind(Decomposing& d) {
  const TensorMeta& self = d.meta(d.value(0));
  const auto dim = wrap_dim(d.rule().integer_or(1, 0), self.ndim());
  if (!dim) return false;
  for (size_t i = 0; i < d.metas.size(); ++i)
    d.results.push_back(d.emit("select.int", {d.args[0], static_cast<int64_t>(*dim), static_cast<int64_t>(i)}));
  return true;
}

bool stack(Decomposing& d) {
  const auto* list = d.args[0].get<std::vector<ValueId>>();
  if (list == nullptr || list->empty()) return false;
  const auto dim = wrap_dim(d.rule().integer_or(1, 0), d.metas[0].ndim());
  if (!dim) return false;
  SymSizes sizes = d.metas[0].sizes;
  sizes[*dim] = 1;
  std::vector<ValueId> parts;
  for (ValueId v : *list) parts.push_back(reshaped(d.out, v, sizes));
  d.results = {d.emit("cat", {parts, static_cast<int64_t>(*dim)})};
  return true;
}

// x_copy: the view x, copied into its own memory.
bool view_of_copy(Decomposing& d) {
  if (d.node.op->is(KnownOp::view_copy)) {
    d.results = {reshaped(d.out, d.value(0), d.metas[0].sizes)};
    return true;
  }
  std::string name = d.node.op->name;
  name.erase(name.find("_copy"), 5);
  std::vector<TensorMeta> metas;
  const OpDef* op = find_op(name);
  if (op == nullptr || !infer_metas(*op, d.args, d.out.peek().values, d.out.shapes(), metas) || metas.size() != 1)
    return false;
  d.results = {d.out.emit(name, d.args, metas[0])};
  return true;
}

template <Decomposition view>
bool copied(Decomposing& d) {
  if (!view(d)) return false;
  for (ValueId& v : d.results) v = contiguous_clone(d.out, v);
  return true;
}

// roll without dimensions rolls all elements as one row.
bool roll(Decomposing& d) {  // self, shifts, dims
  const auto* dims = d.args.size() > 2 ? d.args[2].get<SymSizes>() : nullptr;
  if ((dims != nullptr && !dims->empty())) return false;
  const ValueId row = reshaped(d.out, d.value(0), {d.metas[0].numel()});
  d.results = {reshaped(d.out, d.emit("roll", {row, d.args[1], SymSizes{SymExpr(0)}}), d.metas[0].sizes)};
  return true;
}

// Ops along a dimension treat a 0-dim tensor as a row of one element. `tensors` says which arguments are tensors.
template <size_t... tensors>
bool along_a_row(Decomposing& d) {
  if (d.meta(d.value(0)).ndim() != 0) return false;
  const auto make_row = [&](size_t i) {
    if (d.meta(d.value(i)).ndim() == 0) d.args[i] = reshaped(d.out, d.value(i), {SymExpr(1)});
  };
  (make_row(tensors), ...);
  d.results = {reshaped(d.out, d.emit(d.node.op->name, d.args), d.metas[0].sizes)};
  return true;
}

bool rot90(Decomposing& d) {  // self, k, dims
  const size_t ndim = d.meta(d.value(0)).ndim();
  std::vector<int64_t> dims;
  if (!d.rule().integers(2, dims) || dims.size() != 2) return false;
  const auto a = wrap_dim(dims[0], ndim), b = wrap_dim(dims[1], ndim);
  const int64_t turns = ((d.rule().integer_or(1, 1) % 4) + 4) % 4;
  if (!a || !b) return false;
  SymSizes flipped;
  if (turns != 3) flipped.emplace_back(static_cast<int64_t>(turns == 2 ? *a : *b));
  if (turns != 1) flipped.emplace_back(static_cast<int64_t>(turns == 2 ? *b : *a));
  ValueId value = turns == 0 ? contiguous_clone(d.out, d.value(0)) : d.emit("flip", {d.args[0], flipped});
  SymSizes order;
  for (size_t i = 0; i < ndim; ++i) order.emplace_back(static_cast<int64_t>(i == *a ? *b : i == *b ? *a : i));
  d.results = {turns % 2 == 0 ? value : d.emit("permute", {value, order})};
  return true;
}

// Splits sizes into [outer.., parts..], permutes them, and joins them again.
bool regrouped(Decomposing& d, const SymSizes& split, const SymSizes& order) {
  const ValueId parts = d.emit("permute", {reshaped(d.out, d.value(0), split), order});
  d.results = {reshaped(d.out, contiguous_clone(d.out, parts), d.metas[0].sizes)};
  return true;
}

SymSizes order_after(size_t outer, std::initializer_list<size_t> rest) {
  SymSizes order;
  for (size_t i = 0; i < outer; ++i) order.emplace_back(static_cast<int64_t>(i));
  for (size_t i : rest) order.emplace_back(static_cast<int64_t>(outer + i));
  return order;
}

template <bool shuffles>
bool pixel_shuffle(Decomposing& d) {  // self, factor
  const TensorMeta& self = d.meta(d.value(0));
  const auto factor = d.rule().integer(1);
  if (!factor || self.ndim() < 3 || d.metas[0].numel() == SymExpr(0)) return false;
  const size_t outer = self.ndim() - 3;
  const TensorMeta& low = shuffles ? self : d.metas[0];     // many channels
  const TensorMeta& high = shuffles ? d.metas[0] : self;    // many pixels
  SymSizes split(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(outer));
  const SymExpr channels = high.sizes[outer], height = low.sizes[outer + 1], width = low.sizes[outer + 2];
  if (shuffles) split.insert(split.end(), {channels, *factor, *factor, height, width});
  else split.insert(split.end(), {channels, height, *factor, width, *factor});
  return regrouped(d, split, shuffles ? order_after(outer, {0, 3, 1, 4, 2}) : order_after(outer, {0, 2, 4, 1, 3}));
}

bool channel_shuffle(Decomposing& d) {  // self, groups
  const TensorMeta& self = d.meta(d.value(0));
  const auto groups = d.rule().integer(1);
  if (!groups || self.ndim() < 2 || d.metas[0].numel() == SymExpr(0)) return false;
  SymSizes split{self.sizes[0], *groups, SymExpr::floor_div(self.sizes[1], *groups)}, order{0, 2, 1};
  for (size_t i = 2; i < self.ndim(); ++i) {
    split.push_back(self.sizes[i]);
    order.emplace_back(static_cast<int64_t>(i + 1));
  }
  return regrouped(d, split, order);
}

// A lazily negated view of real numbers: kernels read memory, which has the other sign.
bool neg_view(Decomposing& d) {
  const DType dtype = d.metas[0].dtype;
  if (!is_float(dtype) && !is_integral(dtype)) return false;
  d.results = {d.emit("neg", {d.value(0)})};
  return true;
}

}  // namespace

void add_shape_decompositions(Decompositions& table) {
  table.insert({{"_unsafe_view", to_view},
                {"_reshape_alias", to_view},
                {"reshape", to_view},
                {"unsqueeze", to_view},
                {"squeeze", to_view},
                {"squeeze.dim", to_view},
                {"squeeze.dims", to_view},
                {"alias", identity},
                {"detach", identity},
                {"_neg_view", neg_view},
                {"lift_fresh", identity},
                {"transpose.int", transpose},
                {"t", t},
                {"split.Tensor", split},
                {"split_with_sizes", split},
                {"unbind.int", unbind},
                {"stack", stack},
                {"split_copy.Tensor", copied<split>},
                {"split_with_sizes_copy", copied<split>},
                {"unbind_copy.int", copied<unbind>},
                {"roll", roll},
                {"rot90", rot90},
                {"gather", along_a_row<0, 2>},
                {"index_fill.int_Scalar", along_a_row<0, 2>},
                {"index_fill.int_Tensor", along_a_row<0, 2>},
                {"index_copy", along_a_row<0, 2, 3>},
                {"pixel_shuffle", pixel_shuffle<true>},
                {"pixel_unshuffle", pixel_shuffle<false>},
                {"channel_shuffle", channel_shuffle},
                {"native_channel_shuffle", channel_shuffle},
                {"alias_copy", copied<view_of_copy>},
                {"detach_copy", copied<view_of_copy>},
                {"expand_copy", copied<view_of_copy>},
                {"permute_copy", copied<view_of_copy>},
                {"diagonal_copy", copied<view_of_copy>},
                {"squeeze_copy", copied<view_of_copy>},
                {"squeeze_copy.dim", copied<view_of_copy>},
                {"squeeze_copy.dims", copied<view_of_copy>},
                {"t_copy", copied<view_of_copy>},
                {"transpose_copy.int", copied<view_of_copy>},
                {"unsqueeze_copy", copied<view_of_copy>},
                {"view_copy", copied<view_of_copy>},
                {"slice_copy.Tensor", copied<view_of_copy>},
                {"select_copy.int", copied<view_of_copy>},
                {"unfold_copy", copied<view_of_copy>}});
}

}  // namespace framejit::graph
