// graph/passes/decompose_shape.cpp — many spellings of a view become view, permute, slice and select; parts become slices.
//
// A row applies only where the simpler op gives the very same sizes, strides and offset.
#include "graph/ops/rule_kit.h"
#include "graph/passes/decompose.h"

namespace framejit::graph {
namespace {

// Emits op(args) as the only result, if it looks exactly like the node's.
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
    d.results.push_back(d.emit("slice.Tensor", {d.args[0], static_cast<int64_t>(*at), start, end, SymExpr(1)}));
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
                {"lift_fresh", identity},
                {"transpose.int", transpose},
                {"t", t},
                {"split.Tensor", split},
                {"split_with_sizes", split},
                {"unbind.int", unbind},
                {"stack", stack}});
}

}  // namespace framejit::graph
