// tests/golden/graph_cases.cpp — folder graph: cases in the graph text form.
//
// Stages: every pass by its name, and "infer" (shape rules infer the types of each node again, which must be torch's
// types in the text). Each case also checks the round trip of its text, the verifier after every stage, and that a pass
// run twice equals the pass run once.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "graph/graph.h"
#include "graph/passes/pipeline.h"
#include "graph/shape_rule.h"
#include "tests/golden/golden.h"
#include "tests/parsers/graph_parser.h"

namespace framejit::graph {
namespace {

Result<Graph> infer(const Graph& graph) {
  Graph result = graph;
  for (const Node& node : result.nodes) {
    std::vector<TensorMeta> metas;
    if (!infer_metas(*node.op, node.args, result.values, result.shapes, metas))
      return Error{Reason::bad_text, "no shape rule covers " + node.op->name};
    if (metas.size() != node.results.size())
      return Error{Reason::bad_text, node.op->name + " has another number of results"};
    for (size_t i = 0; i < metas.size(); ++i)
      if (node.results[i] != kNoValue) result.values[index_of(node.results[i])].meta = metas[i];
  }
  return result;
}

SymSizes at_hints(const ShapeEnv& env, const SymSizes& sizes) {
  SymSizes values;
  for (const SymExpr& e : sizes) values.emplace_back(env.hint(e));
  return values;
}

bool has_symbol(const SymSizes& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const SymExpr& size) { return !size.is_constant(); });
}

// Makes every dimension of every contiguous input a separate symbol. Whatever the rules then assume or compute must
// give the recorded types for the recorded sizes. Returns how many results have a symbol in their type.
size_t check_symbolically(const Graph& graph) {
  Graph symbolic = graph;
  size_t checked = 0;
  for (ValueId v : graph.inputs) {
    TensorMeta& meta = symbolic.values[index_of(v)].meta;
    if (!meta.is_contiguous()) continue;
    for (SymExpr& size : meta.sizes)
      if (size.constant() >= 2) size = SymExpr::symbol(symbolic.shapes.add_symbol(size.constant()));
    meta.strides = contiguous_strides(meta.sizes);
  }
  for (const Node& node : graph.nodes) {
    std::vector<TensorMeta> metas;
    if (!infer_metas(*node.op, node.args, symbolic.values, symbolic.shapes, metas)) {
      ADD_FAILURE() << node.op->name << " is not covered for symbolic sizes";
      return checked;
    }
    for (size_t i = 0; i < metas.size() && i < node.results.size(); ++i) {
      if (node.results[i] == kNoValue) continue;
      const TensorMeta& recorded = graph.meta(node.results[i]);
      EXPECT_EQ(at_hints(symbolic.shapes, metas[i].sizes), recorded.sizes) << node.op->name << " " << text_of(metas[i]);
      EXPECT_EQ(at_hints(symbolic.shapes, metas[i].strides), recorded.strides)
          << node.op->name << " " << text_of(metas[i]);
      EXPECT_EQ(symbolic.shapes.hint(metas[i].offset), recorded.offset.constant()) << node.op->name;
      checked += has_symbol(metas[i].sizes);
      symbolic.values[index_of(node.results[i])].meta = metas[i];
    }
  }
  return checked;
}

Result<Graph> run_stage(const std::string& stage, const Graph& graph) {
  if (stage == "infer") {
    check_symbolically(graph);
    return infer(graph);
  }
  const auto pass =
      std::find_if(passes().begin(), passes().end(), [&](const Stage<Graph>& row) { return row.name == stage; });
  if (pass == passes().end()) return Error{Reason::bad_text, "unknown stage " + stage};
  Graph once = graph;
  FJ_TRY_VOID(pass->run(once));
  Graph twice = once;
  FJ_TRY_VOID(pass->run(twice));
  EXPECT_EQ(print(once), print(twice)) << stage << " changes its own result";
  return once;
}

Result<std::string> run(const golden::Case& c) {
  FJ_TRY(Graph graph, parse_graph(c.in));
  const std::string text = print(graph);
  FJ_TRY(const Graph again, parse_graph(text));
  EXPECT_EQ(print(again), text) << "printing and parsing differ";
  FJ_TRY_VOID(verify(graph));
  for (const std::string& stage : c.stages) {
    FJ_TRY(graph, run_stage(stage, graph));
    FJ_TRY_VOID(verify(graph));
  }
  return print(graph);
}

const golden::Folder kFolder("graph", run);

// Nearly all cases of shape_rules.txt check something with symbols. A file of views and transposed inputs would not.
TEST(GoldenGraph, CasesAreCheckedWithSymbols) {
  std::ifstream file(FRAMEJIT_SOURCE_DIR "/tests/golden/graph/shape_rules.txt");
  std::stringstream text;
  text << file.rdbuf();
  size_t cases = 0, results = 0;
  for (const golden::Case& c : golden::read_cases(text.str())) {
    const Result<Graph> graph = parse_graph(c.in);
    ASSERT_TRUE(graph.ok()) << c.name;
    const size_t checked = check_symbolically(graph.value());
    cases += checked != 0;
    results += checked;
  }
  EXPECT_GE(cases, 49u);
  EXPECT_GE(results, 387u);
}

}  // namespace
}  // namespace framejit::graph
