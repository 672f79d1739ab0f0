// tests/golden/graph_cases.cpp — folder graph: cases in the graph text form.
//
// Stages: every pass by its name, and "infer" (each node's types are made anew by its shape rule: the text must say what torch
// answered). Each case also checks the round trip of its text, the verifier after every stage, and that a pass run twice equals
// the pass run once.
#include <gtest/gtest.h>

#include "graph/graph.h"
#include "graph/passes/pipeline.h"
#include "graph/shape_rule.h"
#include "tests/golden/golden.h"

namespace framejit::graph {
namespace {

Result<Graph> infer(const Graph& graph) {
  Graph result = graph;
  for (const Node& node : result.nodes) {
    std::vector<TensorMeta> metas;
    if (!infer_metas(*node.op, node.args, result.values, result.shapes, metas)) return Error{"infer", "no shape rule covers " + node.op->name};
    if (metas.size() != node.results.size()) return Error{"infer", node.op->name + " has another number of results"};
    for (size_t i = 0; i < metas.size(); ++i)
      if (node.results[i] != kNoValue) result.values[index_of(node.results[i])].meta = metas[i];
  }
  return result;
}

Result<Graph> run_stage(const std::string& stage, const Graph& graph) {
  if (stage == "infer") return infer(graph);
  const PassRow* pass = find_pass(stage);
  if (pass == nullptr) return Error{"golden", "unknown stage " + stage};
  FJ_TRY(Graph once, pass->run(graph));
  FJ_TRY(const Graph twice, pass->run(once));
  EXPECT_EQ(print(once), print(twice)) << stage << " changes its own result";
  return once;
}

Result<std::string> run(const golden::Case& c) {
  FJ_TRY(Graph graph, parse_graph(c.in));
  const std::string text = print(graph);
  FJ_TRY(const Graph again, parse_graph(text));
  EXPECT_EQ(print(again), text) << "printing and parsing differ";
  EXPECT_EQ(structural_hash(again), structural_hash(graph));
  FJ_TRY_VOID(verify(graph));
  for (const std::string& stage : c.stages) {
    FJ_TRY(graph, run_stage(stage, graph));
    FJ_TRY_VOID(verify(graph));
  }
  return print(graph);
}

const golden::Folder kFolder("graph", run);

}  // namespace
}  // namespace framejit::graph
