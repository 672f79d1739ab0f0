// graph/passes/pipeline.cpp — runs the rows of passes.def.
#include "graph/passes/pipeline.h"

#include <string_view>

#include "graph/passes/passes.h"

namespace framejit::graph {
namespace {

template <Result<Graph> (*pass)(Graph)> Result<void> replace(Graph& graph) {
  FJ_TRY(graph, pass(std::move(graph)));
  return {};
}

}  // namespace

void dump_graph(Graph& graph, const char* stage) {
  if (!log::enabled(log::Kind::AtenGraph)) return;
  log::emit(log::Kind::AtenGraph, graph.name, {{"graph", graph.name}, {"stage", stage}, {"ops", std::to_string(graph.nodes.size())}}, print(graph));
}

const std::vector<Stage<Graph>>& passes() {
  static const std::vector<Stage<Graph>> rows = {
#define GRAPH_PASS(name, doc) {#name, replace<name>, verify, dump_graph},
#include "graph/passes/passes.def"
#undef GRAPH_PASS
  };
  return rows;
}

Result<Graph> run_pipeline(Graph graph, bool decompose) {
  for (const Stage<Graph>& row : passes())
    if (decompose || std::string_view(row.name) != "decompose") FJ_TRY_VOID(run_stage(row, graph, graph.name));
  return graph;
}

}  // namespace framejit::graph
