// graph/aten/eager_errors.cpp — see eager_errors.h.
#include "graph/aten/eager_errors.h"

#include "graph/ops/rule_kit.h"

namespace framejit::graph {

bool overlaps_itself(const TensorMeta& meta) {
  for (size_t d = 0; d < meta.ndim(); ++d)
    if (meta.strides[d] == SymExpr(0) && !(meta.sizes[d] == SymExpr(1))) return true;
  return false;
}

namespace {

// x + alpha * y of integers and bools takes no fraction.
bool has_fractional_alpha(const Graph& graph, const Node& node) {
  if (!node.op->has(kTakesAlpha) || node.args.size() < 3 || node.args[2].get<double>() == nullptr || node.args[1].get<double>() != nullptr) return false;
  const ValueId* other = node.args[1].get<ValueId>();
  const auto is_whole = [&](ValueId v) { return !is_float(graph.meta(v).dtype) && row_of(graph.meta(v).dtype).kind != DTypeKind::complex_kind; };
  return is_whole(*node.args[0].get<ValueId>()) && (other == nullptr || is_whole(*other));
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
  if (name != "max.dim" && name != "min.dim" && name != "mode") return false;
  const SymExpr* dim = node.args.size() > 1 ? node.args[1].get<SymExpr>() : nullptr;
  const int64_t given = dim == nullptr ? -1 : dim->as_constant().value_or(-1), count = static_cast<int64_t>(self.ndim());
  return given >= -count && given < count && self.sizes[static_cast<size_t>(given < 0 ? given + count : given)] == SymExpr(0);
}

}  // namespace framejit::graph
