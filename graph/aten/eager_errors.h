// graph/aten/eager_errors.h — calls that eager refuses, although neither a shape rule of ours nor torch's shape
// functions do.
#pragma once

#include "graph/graph.h"

namespace framejit::graph {

// Plain Python raises at this instruction.
bool eager_raises(const Graph& graph, const Node& node);
// The kernel warns in each call that it divides by zero: a variance of as many elements as its correction says, or
// fewer.
bool eager_warns(const Graph& graph, const Node& node);
// Writing to such a tensor is an error; torch has the text.
bool overlaps_itself(const TensorMeta& meta);
// Whether two indices name the same element. What is asked about symbols becomes a fact.
bool shows_element_twice(const TensorMeta& meta, ShapeEnv& env);

}  // namespace framejit::graph
