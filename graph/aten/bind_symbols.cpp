#include "graph/aten/bind_symbols.h"

namespace framejit::graph {

std::vector<int64_t> bind_symbols(const Graph& graph, const std::vector<at::Tensor>& inputs) {
  std::vector<int64_t> symbols;
  for (SymbolId id = 0; id < graph.shapes.symbol_count(); ++id) symbols.push_back(graph.shapes.symbol(id).hint);
  for (size_t i = 0; i < graph.inputs.size() && i < inputs.size(); ++i) {
    const TensorMeta& meta = graph.meta(graph.inputs[i]);
    SymbolId id = 0;
    for (size_t d = 0; d < meta.ndim() && d < static_cast<size_t>(inputs[i].dim()); ++d)
      if (meta.sizes[d].is_symbol(&id)) symbols[id] = inputs[i].size(static_cast<int64_t>(d));
  }
  return symbols;
}

}  // namespace framejit::graph
