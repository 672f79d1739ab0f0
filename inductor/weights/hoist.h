// inductor/weights/hoist.h — values that depend only on weights leave the graph and become derived values.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace framejit::inductor {

// How a derived value is made: a graph with one output. Operands: inputs of the original graph, and its constants,
// numbered from the count of inputs on.
struct Derivation {
  graph::Graph graph;
  std::vector<uint32_t> operands;
};

struct Hoisted {
  graph::Graph graph;           // its last inputs are the derived values, in the order of `derivations`
  std::vector<Derivation> derivations;
};

// A value is hoisted if it takes no more memory than its weights, or if the library packed it. Views of it stay, and so
// do outputs, because the caller owns their memory.
Result<Hoisted> hoist_weights(const graph::Graph& functional, const std::vector<bool>& weights);

}  // namespace framejit::inductor
