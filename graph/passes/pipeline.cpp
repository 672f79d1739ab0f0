// graph/passes/pipeline.cpp — runs the rows of passes.def, with timing, dumps and verification.
#include "graph/passes/pipeline.h"

#include <chrono>

#include "graph/passes/passes.h"
#include "runtime/base/config.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"

namespace framejit::graph {
namespace {

void report(const char* pass, const Graph& graph, std::chrono::steady_clock::time_point start) {
  if (log::enabled(log::Kind::Stage)) {
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    log::emit(log::Kind::Stage, graph.name, {{"stage", pass}, {"milliseconds", std::to_string(spent.count())}});
  }
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
    const auto start = std::chrono::steady_clock::now();
    FJ_TRY(graph, row.run(std::move(graph)));
    if (config().strict) {
      const Result<void> valid = verify(graph);
      FJ_CHECK(valid.ok(), std::string(row.name) + ": " + valid.error().message);
    }
    report(row.name, graph, start);
  }
  return graph;
}

}  // namespace framejit::graph
