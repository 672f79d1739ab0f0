// graph/weight_values.h — which values of a functional graph are the same in each call.
#pragma once

#include <algorithm>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

// Per value of a graph. A value that depends on inputs that vary from call to call has neither flag.
struct WeightValues {
  std::vector<bool> is_known;      // depends only on weights and constants
  std::vector<bool> has_weight;    // the same, and depends on at least one weight
  bool is_weight(ValueId v) const { return v != kNoValue && has_weight[index_of(v)]; }
  bool makes_known(const Node& node) const {  // each of its results depends only on weights and constants
    return std::all_of(node.results.begin(), node.results.end(),
                       [&](ValueId v) { return v != kNoValue && is_known[index_of(v)]; });
  }
};

// `weights`: per input, whether it stays the same from call to call. An input that the graph writes does not.
WeightValues find_weight_values(const Graph& functional, const std::vector<bool>& weights);

int64_t bytes_of(const TensorMeta& meta);  // of constant sizes

}  // namespace framejit::graph
