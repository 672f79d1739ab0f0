// inductor/weights/hoist.h — what depends on weights alone leaves the graph and becomes derived values.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace framejit::inductor {

// A graph of one output: how a derived value is made. Sources: inputs of the graph that it left, and its constants,
// numbered from the count of inputs on.
struct Recipe {
  graph::Graph graph;
  std::vector<uint32_t> sources;
};

struct Hoisted {
  graph::Graph graph;           // its last inputs are the derived values, in the order of `recipes`
  std::vector<Recipe> recipes;
};

// A value is hoisted if what it takes is no more than what its weights take, or if the library packed it. Views of it
// stay, and so do values that leave the graph: their memory is the caller's.
Result<Hoisted> hoist_weights(const graph::Graph& functional, const std::vector<bool>& weights);

}  // namespace framejit::inductor
