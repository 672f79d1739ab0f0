// graph/passes/dce.cpp — dead code elimination: one walk backwards marks what is needed, one walk forwards copies it.
//
// Random nodes stay (a dead draw advances the generator), so do nodes with side effects and nodes that raise for some index data.
// Needs a functional graph.
#include <algorithm>
#include <array>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"

namespace framejit::graph {
namespace {

template <class Visit>
void for_each_value(const Node& node, Visit visit) {
  for (const Arg& arg : node.args) {
    if (const ValueId* v = arg.get<ValueId>()) visit(*v);
    if (const auto* list = arg.get<std::vector<ValueId>>())
      for (ValueId v : *list) visit(v);
  }
}

// Eager raises when an index is out of range, used or not.
bool checks_indices(const Node& node) {
  static constexpr std::array kNames = {"index", "index_put", "index_select", "index_fill", "index_add", "index_copy", "index_reduce", "gather", "scatter", "scatter_add",
                                        "scatter_reduce", "embedding", "take", "put", "nll_loss_forward", "nll_loss2d_forward", "one_hot"};
  const std::string_view name = std::string_view(node.op->name).substr(0, node.op->name.find('.'));
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace

Result<Graph> dce(Graph graph) {
  for (const Node& node : graph.nodes)
    if (node.op->has(kMutates)) return Error{"dce", "needs a functional graph, but " + node.op->name + " writes"};
  std::vector<bool> needed(graph.values.size(), false);
  auto need = [&](ValueId v) {
    if (v != kNoValue) needed[index_of(v)] = true;
  };
  for (ValueId v : graph.outputs) need(v);
  for (const auto& [input, value] : graph.updates) need(value);
  std::vector<bool> live(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    live[i] = (node.op->flags & (kRandom | kSideEffect)) != 0 || checks_indices(node);
    for (ValueId v : node.results) live[i] = live[i] || (v != kNoValue && needed[index_of(v)]);
    if (live[i]) for_each_value(node, need);
  }
  Rebuild r(graph, false);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (live[i]) r.copy_node(graph.nodes[i]);
  return r.finish();
}

}  // namespace framejit::graph
