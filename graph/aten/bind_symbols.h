// graph/aten/bind_symbols.h — the sizes of given inputs as values of a graph's symbols.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

// The value of every symbol, read from the input sizes. A symbol that is not itself the size of an input keeps its
// hint.
std::vector<int64_t> bind_symbols(const Graph& graph, const std::vector<at::Tensor>& inputs);

}  // namespace framejit::graph
