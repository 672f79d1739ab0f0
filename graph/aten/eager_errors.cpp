#include "graph/aten/eager_errors.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

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

// A node, and its first operand.
struct AskedCall {
  const Graph& graph;
  const Node& node;
  const TensorMeta& self;
};

bool repeats_elements(const AskedCall& call) { return overlaps_itself(call.self); }
bool has_no_elements(const AskedCall& call) { return call.self.numel() == SymExpr(0); }
bool has_whole_elements(const AskedCall& call) { return !is_float(call.self.dtype) && !has_no_elements(call); }
bool has_odd_layout(const AskedCall& call) { return !call.self.is_contiguous() && !is_channels_last(call.self); }
bool has_bools(const AskedCall& call) { return call.self.dtype == DType::kBool; }

bool fills_with_several(const AskedCall& call) {
  const ValueId* value = call.node.args.size() > 1 ? call.node.args[1].get<ValueId>() : nullptr;
  return value != nullptr && *value != kNoValue && call.graph.meta(*value).ndim() != 0;
}

// Whether the given dimension, or the last one if none is given, has size zero.
bool has_no_rows(const AskedCall& call) {
  const SymExpr* dim = call.node.args.size() > 1 ? call.node.args[1].get<SymExpr>() : nullptr;
  const int64_t given = dim == nullptr ? -1 : dim->as_constant().value_or(-1),
                count = static_cast<int64_t>(call.self.ndim());
  return given >= -count && given < count &&
         call.self.sizes[static_cast<size_t>(given < 0 ? given + count : given)] == SymExpr(0);
}

bool sorts_along_no_dimension(const AskedCall& call) {
  const Node& node = call.node;
  const size_t at = node.op->is(KnownOp::sort) ? 1 : 2;  // sort(self, dim, ..), sort.stable(self, stable, dim, ..)
  const SymExpr* dim = at < node.args.size() ? node.args[at].get<SymExpr>() : nullptr;
  return dim != nullptr && dim->is_constant() && !wrap_dim(dim->constant(), call.self.ndim());
}

// The rows of a transposed convolution's weight are split into groups.
bool has_fewer_rows_than_groups(const AskedCall& call) {
  const ValueId* weight = call.node.args.size() == 9 ? call.node.args[1].get<ValueId>() : nullptr;
  const SymExpr* groups = weight != nullptr ? call.node.args[8].get<SymExpr>() : nullptr;
  if (groups == nullptr || call.graph.meta(*weight).ndim() == 0) return false;
  const auto rows = call.graph.meta(*weight).sizes[0].as_constant(), count = groups->as_constant();
  return rows && count && *rows < *count;
}

// A resize to no elements.
bool has_size_without_elements(const AskedCall& call) {
  const auto* sizes = call.node.args.size() > 1 ? call.node.args[1].get<std::vector<SymExpr>>() : nullptr;
  return sizes != nullptr && std::any_of(sizes->begin(), sizes->end(),
                                         [](const SymExpr& e) { return e.is_constant() && e.constant() <= 0; });
}

using RefusalRule = bool (*)(const AskedCall& call);
RefusalRule refusal_rule(std::string_view op) {
  static const auto* const rows = new std::map<std::string_view, RefusalRule>{
#define EAGER_ERROR(op, rule, why) {op, rule},
#include "graph/aten/eager_errors.def"
#undef EAGER_ERROR
  };
  const auto row = rows->find(op);
  return row == rows->end() ? nullptr : row->second;
}

}  // namespace

bool eager_raises(const Graph& graph, const Node& node) {
  const ValueId* value = node.args.empty() ? nullptr : node.args[0].get<ValueId>();
  if (value == nullptr || *value == kNoValue) return false;
  if (has_fractional_alpha(graph, node)) return true;
  const RefusalRule rule = refusal_rule(node.op->name);
  return rule != nullptr && rule({graph, node, graph.meta(*value)});
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
