// inductor/weights/fold_norms.h — a factor and a term for each channel after a convolution become part of its weights.
//
// Batch norm in eval is such a factor and such a term, made only from weights. The convolution then computes both.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace framejit::inductor {

// In and out: a functional graph. `weights` as in find_weight_values.
Result<graph::Graph> fold_norms(const graph::Graph& functional, const std::vector<bool>& weights);

}  // namespace framejit::inductor
