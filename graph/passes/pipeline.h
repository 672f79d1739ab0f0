// graph/passes/pipeline.h — the graph passes in order: recorded ATen graph in, functional canonical graph out.
//
// A pass is a function Result<Graph>(Graph) and a row of passes.def; its place there is its place in the pipeline.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/stage.h"

namespace framejit::graph {

const std::vector<Stage<Graph>>& passes();
Result<Graph> run_pipeline(Graph recorded, bool decompose);  // decompose=false: to run op by op

// Logs the result of `stage` on the channel `aten_graph`.
void log_graph(const Graph& graph, const std::string& where, const char* stage);
// For rows that produce a graph.
void dump_graph(Graph& graph, const char* stage);

}  // namespace framejit::graph
