// graph/passes/dce.cpp — dead code elimination: one walk backwards marks what is needed, one walk forwards copies it.
//
// In: a functional graph. Random nodes stay (even an unused draw advances the generator), and so do nodes with side
// effects and nodes that raise for some data. In a backward, what the forward has run before raises nothing any more.
#include <vector>

#include "graph/node_values.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"

namespace framejit::graph {
namespace {

// Integer division raises for zeros, whether it is used or not.
bool may_divide_by_zero(const Graph& graph, const Node& node) {
  if (!node.op->has(kDivides) || node.args.size() < 2) return false;
  if (is_float(graph.values[index_of(node.results[0])].meta.dtype)) return false;
  const SymExpr* divisor = node.args[1].get<SymExpr>();
  return !divisor || divisor->as_constant().value_or(0) == 0;
}

// If nothing but its schema is known of an op, it may raise.
bool may_raise(const Graph& graph, const Node& node) {
  return node.op->shape_rule == nullptr || node.op->has(kChecksData) || may_divide_by_zero(graph, node);
}

Result<Graph> without_dead_nodes(Graph graph, const std::vector<bool>& has_run) {
  for (const Node& node : graph.nodes)
    if (node.op->has(kMutates))
      return Error{Reason::not_functional, "needs a functional graph, but " + node.op->name + " writes"};
  std::vector<bool> needed(graph.values.size(), false);
  auto need = [&](ValueId v) {
    if (v != kNoValue) needed[index_of(v)] = true;
  };
  for (ValueId v : graph.outputs) need(v);
  for (const auto& [input, value] : graph.updates) need(value);
  std::vector<bool> live(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    live[i] = (node.op->flags & (kRandom | kSideEffect)) != 0 || (!has_run[i] && may_raise(graph, node));
    for (ValueId v : node.results) live[i] = live[i] || (v != kNoValue && needed[index_of(v)]);
    if (live[i]) for_each_value(node, need);
  }
  Rebuild r(graph, false);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (live[i]) r.copy_node(graph.nodes[i]);
  return r.build();
}

}  // namespace

Result<Graph> dce(Graph graph) {
  const std::vector<bool> has_run(graph.nodes.size());
  return without_dead_nodes(std::move(graph), has_run);
}

Result<Graph> dce_of_backward(Graph graph, size_t first_tangent) {
  std::vector<bool> on_tangents(graph.values.size()), has_run;
  for (size_t i = first_tangent; i < graph.inputs.size(); ++i) on_tangents[index_of(graph.inputs[i])] = true;
  for (const Node& node : graph.nodes) {
    bool depends = false;
    for_each_value(node, [&](ValueId v) { depends = depends || (v != kNoValue && on_tangents[index_of(v)]); });
    for (ValueId v : node.results)
      if (v != kNoValue) on_tangents[index_of(v)] = depends;
    has_run.push_back(!depends);
  }
  return without_dead_nodes(std::move(graph), has_run);
}

}  // namespace framejit::graph
