// graph/graph_names.h — the names under which print() spells the values of a graph.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

// By value index, "%" left out; empty for a value that no node and no boundary names.
std::vector<std::string> value_names(const Graph& graph);

}  // namespace framejit::graph
