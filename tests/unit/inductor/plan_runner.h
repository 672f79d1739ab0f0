// tests/unit/inductor/plan_runner.h — runs graphs in plain C++: through the interpreter as reference, and through compiled plans.
//
// A handful of extern ops (mm, bmm, addmm, as_strided copies) is emulated, enough to put library calls between kernels.
#pragma once

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "inductor/compile.h"
#include "inductor/kernel/target.h"

namespace framejit::inductor::testing {

struct Data {  // a dense block that a meta's strides index
  std::vector<char> bytes;
};

struct Outputs {
  std::vector<std::vector<double>> values;  // in row-major order of the output's sizes
};

// Values by kind of dtype: floats around zero, integers in [0, int_limit), bools.
std::vector<Data> random_inputs(const graph::Graph& graph, const std::vector<int64_t>& symbols, uint32_t seed, int64_t int_limit);

Result<Outputs> run_interpreted(const graph::Graph& graph, const std::vector<Data>& inputs, const std::vector<int64_t>& symbols);
Result<Outputs> run_compiled(const graph::Graph& graph, const std::vector<Data>& inputs, const std::vector<int64_t>& symbols,
                             InductorOptions options);
// Threads share every kernel, however small. Not for kernels of the interpreter, which run whole.
void share_kernels(runtime::CallPlan& plan);
// Outputs of a plan whose outputs all are buffers.
Result<Outputs> run_plan(const runtime::CallPlan& plan, const std::vector<Data>& inputs, const std::vector<int64_t>& symbols, int threads);

struct CheckOptions {
  double tolerance = 2e-6;       // relative to the largest magnitude of the output, or to 1
  int64_t int_limit = 4;
  std::vector<int64_t> symbols;  // empty: the hints
  uint32_t seed = 1;
  int kernels = -1;              // expected kernel steps when fused; -1: any
  std::string compiled = {};     // planted: this graph is compiled in place of the one that the interpreter runs
  std::function<void(runtime::CallPlan&)> plan = {};  // planted: alters what was compiled
  Choices choices = {};
};
// Parses, runs on the interpreter, compiles for every vector level fused and unfused, compares. Reports through gtest.
void check_graph(const std::string& text, CheckOptions options = {});
// The same, fused, for one target.
void check_graph_with(KernelTarget& target, const std::string& text, CheckOptions options = {});
// The kernels of a graph when everything is fused.
std::vector<Kernel> kernels_of(const std::string& text, int64_t scratch_bytes);

}  // namespace framejit::inductor::testing
