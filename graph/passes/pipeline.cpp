// graph/passes/pipeline.cpp — runs the rows of passes.def.
#include "graph/passes/pipeline.h"

#include "graph/passes/passes.h"

namespace framejit::graph {
namespace {

template <Result<Graph> (*pass)(Graph)> Result<void> replace(Graph& graph) {
  FJ_TRY(graph, pass(std::move(graph)));
  return {};
}

// The backends of each row.
enum class Backends : uint8_t {
  every,
  core_ops
};
constexpr Backends kBackends[] = {
#define GRAPH_PASS(name, backends, doc) Backends::backends,
#include "graph/passes/passes.def"
#undef GRAPH_PASS
};

}  // namespace

void log_graph(const Graph& graph, const std::string& where, const char* stage) {
  if (!log::enabled(log::Kind::AtenGraph)) return;
  log::emit(log::Kind::AtenGraph, where,
            {{"graph", graph.name}, {"stage", stage}, {"ops", std::to_string(graph.nodes.size())}}, print(graph));
}

void dump_graph(Graph& graph, const char* stage) { log_graph(graph, "", stage); }

const std::vector<Stage<Graph>>& passes() {
  static const std::vector<Stage<Graph>> rows = {
#define GRAPH_PASS(name, backends, doc) {#name, replace<name>, verify, dump_graph},
#include "graph/passes/passes.def"
#undef GRAPH_PASS
  };
  return rows;
}

Result<Graph> run_pipeline(Graph graph, bool decompose) {
  for (size_t k = 0; k < passes().size(); ++k)
    if (decompose || kBackends[k] == Backends::every) FJ_TRY_VOID(run_stage(passes()[k], graph));
  return graph;
}

}  // namespace framejit::graph
