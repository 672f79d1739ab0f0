// inductor/weights/join_products.h — linear layers over one input become one: queries, keys and values, gate and up.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Their weights, one after the other, are one weight, and their results are its columns. Only where weights are packed
// (linear_layers.h): elsewhere that saves nothing. Layers between which the library computes something else stay apart,
// and so do those whose results have memory of their own: they leave the graph, or as_strided looks at it.
Result<graph::Graph> join_products(const graph::Graph& functional, const std::vector<bool>& weights,
                                   const TargetInfo& target);

}  // namespace framejit::inductor
