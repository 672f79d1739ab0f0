// graph/graph_names.h — the names of a graph's values in print().
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

// By value index, without "%"; empty for a value that is no input, constant or result.
std::vector<std::string> value_names(const Graph& graph);

}  // namespace framejit::graph
