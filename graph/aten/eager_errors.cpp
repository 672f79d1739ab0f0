// graph/aten/eager_errors.cpp — see eager_errors.h.
#include "graph/aten/eager_errors.h"

#include <algorithm>

#include "graph/op_lists.h"
#include "graph/ops/rule_kit.h"

namespace framejit::graph {

bool overlaps_itself(const TensorMeta& meta) {
  for (size_t d = 0; d < meta.ndim(); ++d)
    if (meta.strides[d] == SymExpr(0) && !(meta.sizes[d] == SymExpr(1))) return true;
  return false;
}

bool shows_element_twice(const TensorMeta& meta, ShapeEnv& env) {
  if (meta.is_contiguous()) return false;
  std::vector<size_t> order;
  for (size_t d = 0; d < meta.ndim(); ++d) {
    if (meta.sizes[d] == SymExpr(0)) return false;
    if (!(meta.sizes[d] == SymExpr(1))) order.push_back(d);
  }
  std::ranges::stable_sort(order, {}, [&](size_t d) { return env.hint(meta.strides[d]); });
  SymExpr reach = 1;  // of the faster dimensions
  for (size_t d : order) {
    if (!env.decide(reach, Relation::kLe, meta.strides[d], "elements of a written input are distinct")) return true;
    reach = reach + (meta.sizes[d] - 1) * meta.strides[d];
  }
  return false;
}

namespace {

// x + alpha * y of integers and bools does not allow a fractional alpha.
bool has_fractional_alpha(const Graph& graph, const Node& node) {
  if (!node.op->has(kTakesAlpha) || node.args.size() < 3 || node.args[2].get<double>() == nullptr ||
      node.args[1].get<double>() != nullptr)
    return false;
  const ValueId* other = node.args[1].get<ValueId>();
  const auto is_whole = [&](ValueId v) { return !is_float(graph.meta(v).dtype) && !is_complex(graph.meta(v).dtype); };
  return is_whole(*node.args[0].get<ValueId>()) && (other == nullptr || is_whole(*other));
}

bool sorts_along_no_dimension(const Node& node, const TensorMeta& self) {
  const size_t at = node.op->name == "sort" ? 1 : 2;  // sort(self, dim, ..), sort.stable(self, stable, dim, ..)
  const SymExpr* dim = at < node.args.size() ? node.args[at].get<SymExpr>() : nullptr;
  return dim != nullptr && dim->is_constant() && !wrap_dim(dim->constant(), self.ndim());
}

// The rows of a transposed convolution's weight are split into groups.
bool has_fewer_rows_than_groups(const Graph& graph, const Node& node) {
  const ValueId* weight = node.args.size() == 9 ? node.args[1].get<ValueId>() : nullptr;
  const SymExpr* groups = weight != nullptr ? node.args[8].get<SymExpr>() : nullptr;
  if (groups == nullptr || graph.meta(*weight).ndim() == 0) return false;
  const auto rows = graph.meta(*weight).sizes[0].as_constant(), count = groups->as_constant();
  return rows && count && *rows < *count;
}

// A resize to no elements.
bool has_size_without_elements(const Node& node) {
  const auto* sizes = node.args.size() > 1 ? node.args[1].get<std::vector<SymExpr>>() : nullptr;
  return sizes != nullptr && std::any_of(sizes->begin(), sizes->end(),
                                         [](const SymExpr& e) { return e.is_constant() && e.constant() <= 0; });
}

}  // namespace

bool eager_raises(const Graph& graph, const Node& node) {
  const ValueId* value = node.args.empty() ? nullptr : node.args[0].get<ValueId>();
  if (value == nullptr || *value == kNoValue) return false;
  const TensorMeta& self = graph.meta(*value);
  const std::string& name = node.op->name;
  if (name == "copy_") return overlaps_itself(self);
  if (has_fractional_alpha(graph, node)) return true;
  if (name == "max" || name == "min") return self.numel() == SymExpr(0);
  if (name == "_softmax" || name == "_log_softmax") return !is_float(self.dtype) && !(self.numel() == SymExpr(0));
  if (name == "native_group_norm") return !self.is_contiguous() && !is_channels_last(self);
  if (name == "sort" || name == "sort.stable") return sorts_along_no_dimension(node, self);
  if (name == "cumsum_" || name == "cumprod_") return self.dtype == DType::kBool;
  if (name == "convolution") return has_fewer_rows_than_groups(graph, node);
  if (name == "_upsample_bilinear2d_aa" || name == "_upsample_bicubic2d_aa") return has_size_without_elements(node);
  if (name != "max.dim" && name != "min.dim" && name != "mode") return false;
  const SymExpr* dim = node.args.size() > 1 ? node.args[1].get<SymExpr>() : nullptr;
  const int64_t given = dim == nullptr ? -1 : dim->as_constant().value_or(-1),
                count = static_cast<int64_t>(self.ndim());
  return given >= -count && given < count &&
         self.sizes[static_cast<size_t>(given < 0 ? given + count : given)] == SymExpr(0);
}

bool eager_warns(const Graph& graph, const Node& node) {
  if (!is_in(OpList::divides_by_degrees, node.op->name)) return false;
  const TensorMeta& self = graph.meta(*node.args[0].get<ValueId>());
  const auto* dims = node.args[1].get<std::vector<SymExpr>>();
  SymExpr count(1);
  for (size_t d = 0; d < self.ndim(); ++d) {
    const auto is_this = [&](const SymExpr& e) { return wrap_dim(e.constant(), self.ndim()) == d; };
    if (dims == nullptr || dims->empty() || std::any_of(dims->begin(), dims->end(), is_this))
      count = count * self.sizes[d];
  }
  const SymExpr* whole = node.args[2].get<SymExpr>();
  const double* part = node.args[2].get<double>();
  const double correction = whole != nullptr  ? static_cast<double>(whole->as_constant().value_or(0))
                            : part != nullptr ? *part
                                              : 1;
  return count.is_constant() && static_cast<double>(count.constant()) <= correction;
}

}  // namespace framejit::graph
