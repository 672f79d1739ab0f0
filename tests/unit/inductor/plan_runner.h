// tests/unit/inductor/plan_runner.h — runs graphs in plain C++: through the interpreter as reference, and through
// compiled plans.
//
// A few extern ops (mm, bmm, addmm, as_strided copies) are emulated, enough to put library calls between kernels.
#pragma once

#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "inductor/compile.h"
#include "inductor/kernel/target.h"
#include "runtime/dtype.h"

namespace framejit::inductor::testing {

void declare_ops();  // as torch's schemas do in the product: parsed graphs may name every op that is lowered

struct Data {  // a dense block that a meta's strides index
  std::vector<char> bytes;
};

struct Outputs {
  std::vector<std::vector<double>> values;  // in row-major order of the output's sizes
  std::vector<std::string> bytes;           // the same elements as they are in memory
  std::vector<DType> dtypes;
};
// The first place where results differ by more than they may, in words; empty: nowhere. Values that are not floats, and
// everything if the tolerance is 0, must be equal. Otherwise an element may be off by two units in the last place of
// its dtype, by `tolerance` times itself, and by an eighth of `tolerance` times the output's largest magnitude, which
// allows for cancellation.
std::string difference(const Outputs& got, const Outputs& expected, double tolerance);

// Values by kind of dtype: floats around zero, integers in [0, int_limit), bools.
std::vector<Data> random_inputs(const graph::Graph& graph, const std::vector<int64_t>& symbols, uint32_t seed,
                                int64_t int_limit);

Result<Outputs> run_interpreted(const graph::Graph& graph, const std::vector<Data>& inputs,
                                const std::vector<int64_t>& symbols);
Result<Outputs> run_compiled(const graph::Graph& graph, const std::vector<Data>& inputs,
                             const std::vector<int64_t>& symbols, InductorOptions options);
// Makes threads share every kernel, however small. Not for kernels of the interpreter, which run as a whole.
void share_kernels(runtime::Executable& executable);
// Outputs of a plan; all of them must be buffers.
Result<Outputs> run_plan(const runtime::Executable& executable, runtime::KernelLoader& loader,
                         const std::vector<Data>& inputs, const std::vector<int64_t>& symbols, int threads);

struct CheckOptions {
  double tolerance = 2e-6;       // of difference()
  int64_t int_limit = 4;
  std::vector<int64_t> symbols;  // empty: the hints
  uint32_t seed = 1;
  int kernels = -1;              // expected kernel steps when fused; -1: any
  std::string compiled = {};  // compiles this graph, not the one that the interpreter runs: a planted defect, or the
                              // same program with an op that the interpreter does not know
  std::function<void(runtime::Executable&)> plan = {};  // a planted defect: changes what was compiled
  Choices choices = {};
  bool passes = true;  // run the graph passes first, as in production; false: the text is lowered unchanged
};
// Runs the graph on the interpreter, compiles it for every vector level, fused and unfused, and compares; with 1, 2 and
// 3 threads the results must be the same bytes. Reports through gtest.
void check_graph(const std::string& text, CheckOptions options = {});
void check_graph(const graph::Graph& graph, const CheckOptions& options);
// The library ops of a lowered graph that are not emulated here.
std::vector<std::string> unknown_calls(const LoopProgram& program);
// The same, fused, for one target.
void check_graph_with(KernelTarget& target, const std::string& text, CheckOptions options = {});
// The kernels of a graph, after the passes, when everything is fused.
std::vector<Kernel> kernels_of(const std::string& text, const TargetInfo& target = reference_target());

}  // namespace framejit::inductor::testing
