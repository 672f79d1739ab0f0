// graph/aten/eager_errors.h — calls that eager refuses, although neither a shape rule of ours nor torch's shape
// functions do.
#pragma once

#include "graph/graph.h"

namespace framejit::graph {

// Whether eager refuses the call. Then plain Python raises at this instruction.
bool eager_raises(const Graph& graph, const Node& node);
// Whether the kernel warns in each call, because a variance over at most as many elements as its correction has no
// degrees of freedom.
bool eager_warns(const Graph& graph, const Node& node);
// Whether a write to the tensor is an error. If so, torch raises it.
bool overlaps_itself(const TensorMeta& meta);
// Whether two indices name the same element. Answers about symbols become facts.
bool shows_element_twice(const TensorMeta& meta, ShapeEnv& env);

}  // namespace framejit::graph
