// graph/passes/narrow_masks.cpp — the result of a Bernoulli draw is saved for the backward with one byte per element.
//
// Dropout draws zeros and ones in the dtype of its input. The pass converts them to bool and back, which loses nothing.
// The cut then saves the bool, which is the smallest.
#include <algorithm>

#include "graph/passes/partition.h"
#include "graph/passes/rebuild.h"

namespace framejit::graph {
namespace {

bool draws_mask(const Graph& graph, const Node& node) {
  if ((!node.op->is(KnownOp::bernoulli_p) && !node.op->is(KnownOp::bernoulli)) || node.results.size() != 1)
    return false;
  const ValueId drawn = node.results[0];
  return is_float(graph.meta(drawn).dtype) &&
         std::find(graph.outputs.begin(), graph.outputs.end(), drawn) == graph.outputs.end();
}

}  // namespace

std::optional<Graph> narrow_masks(const Graph& joint) {
  const auto is_mask = [&](const Node& node) { return draws_mask(joint, node); };
  if (std::none_of(joint.nodes.begin(), joint.nodes.end(), is_mask)) return std::nullopt;
  Rebuild rebuild(joint, false);
  for (const Node& node : joint.nodes) {
    rebuild.copy_node(node);
    if (!is_mask(node)) continue;
    rebuild.begin(node);
    const ValueId drawn = rebuild.get(node.results[0]);
    const ValueId mask = rebuild.out().emit("ne.Scalar", {drawn, SymExpr(0)});
    rebuild.set(node.results[0], converted(rebuild.out(), mask, joint.meta(node.results[0]).dtype));
  }
  return rebuild.build();
}

}  // namespace framejit::graph
