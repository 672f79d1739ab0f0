#include "graph/weight_values.h"

#include <algorithm>

#include "graph/node_values.h"

namespace framejit::graph {

namespace {

bool has_constant_shape(const TensorMeta& meta) {
  return all_constant(meta.sizes) && all_constant(meta.strides) && meta.offset.is_constant();
}

// The same arguments give the same results, and nothing else happens.
bool is_pure(const Node& node) {
  constexpr uint32_t kMore = kRunsOnce | kChecksData | kDivides;
  if ((node.op->flags & kMore) != 0) return false;
  return std::all_of(node.args.begin(), node.args.end(), [](const Arg& arg) {
    if (const auto* e = arg.get<SymExpr>()) return e->is_constant();
    if (const auto* list = arg.get<SymSizes>()) return all_constant(*list);
    return arg.get<OpaqueSlot>() == nullptr;
  });
}

}  // namespace

WeightValues find_weight_values(const Graph& functional, const std::vector<bool>& weights) {
  WeightValues found{std::vector<bool>(functional.values.size()), std::vector<bool>(functional.values.size())};
  for (size_t i = 0; i < functional.inputs.size() && i < weights.size(); ++i) {
    const auto is_update = [&](const auto& update) { return update.first == i; };
    const bool is_written = std::any_of(functional.updates.begin(), functional.updates.end(), is_update);
    if (!weights[i] || is_written || !has_constant_shape(functional.meta(functional.inputs[i]))) continue;
    found.is_known[index_of(functional.inputs[i])] = found.has_weight[index_of(functional.inputs[i])] = true;
  }
  for (ValueId v : functional.constants) found.is_known[index_of(v)] = true;
  for (const Node& node : functional.nodes) {
    bool is_known = is_pure(node), has_weight = false;
    for_each_value(node, [&](ValueId v) {
      if (v == kNoValue) return;
      is_known = is_known && found.is_known[index_of(v)];
      has_weight = has_weight || found.has_weight[index_of(v)];
    });
    for (ValueId v : node.results) {
      if (v == kNoValue || !is_known || !has_constant_shape(functional.meta(v))) continue;
      found.is_known[index_of(v)] = true;
      found.has_weight[index_of(v)] = has_weight;
    }
  }
  return found;
}

int64_t bytes_of(const TensorMeta& meta) {
  return meta.numel().constant() * static_cast<int64_t>(row_of(meta.dtype).bytes);
}

}  // namespace framejit::graph
