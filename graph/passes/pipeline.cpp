// graph/passes/pipeline.cpp — runs the rows of passes.def, with timing, dumps and verification.
#include "graph/passes/pipeline.h"

#include "graph/passes/passes.h"
#include "runtime/base/config.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

Result<Graph> run_pass(const PassRow& row, Graph graph) {
  const log::Stopwatch watch(graph.name, row.name);
  FJ_TRY(graph, row.run(std::move(graph)));
  if (config().strict) {
    const Result<void> valid = verify(graph);
    FJ_CHECK(valid.ok(), std::string(row.name) + ": " + valid.error().message);
  }
  return graph;
}

void dump(const char* pass, const Graph& graph) {
  if (log::enabled(log::Kind::AtenGraph))
    log::emit(log::Kind::AtenGraph, graph.name, {{"graph", graph.name}, {"stage", pass}, {"ops", std::to_string(graph.nodes.size())}}, print(graph));
}

}  // namespace

const std::vector<PassRow>& passes() {
  static const std::vector<PassRow> rows = {
#define GRAPH_PASS(name, doc) {#name, name},
#include "graph/passes/passes.def"
#undef GRAPH_PASS
  };
  return rows;
}

Result<Graph> run_pipeline(Graph graph, bool decompose) {
  for (const PassRow& row : passes()) {
    if (!decompose && row.run == &framejit::graph::decompose) continue;
    FJ_TRY_VOID(go_on());
    FJ_TRY(graph, run_pass(row, std::move(graph)));
    dump(row.name, graph);
  }
  return graph;
}

}  // namespace framejit::graph
