// inductor/weights/join_products.h — linear layers with one input become one: queries, keys and values, gate and up.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Their weights, concatenated, are one weight, and their results are its columns. Only if weights are packed
// (linear_layers.h), or if the target joins products: otherwise that saves nothing. `weights` may be empty: then the
// weights are casts of inputs, which can be cast to where they lie side by side (inductor/lowering/joined_casts.h).
// Layers stay apart if the library computes something between them, or if their results need their own memory: they are
// outputs, or as_strided looks at them.
Result<graph::Graph> join_products(const graph::Graph& functional, const std::vector<bool>& weights,
                                   const TargetInfo& target);

}  // namespace framejit::inductor
