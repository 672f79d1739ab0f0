// tests/unit/graph_aten/op_by_op.h — runs a graph op by op through the dispatcher, and compares every result with its
// recorded shape.
//
// It defines what a recording means: tests run it and compare with eager. Works on both dialects.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

struct OpByOpInputs {
  const std::vector<at::Tensor>& inputs;
  const std::vector<at::Tensor>& constants;
  const std::vector<c10::IValue>& opaques;
};

struct OpByOpResult {
  std::vector<at::Tensor> outputs;
  std::vector<std::string> wrong_shapes;   // "%4 = mm: sizes [2, 3] real [3, 2]"
  std::vector<std::string> broken_facts;   // size facts that do not hold for these inputs: the recording is for others
};

// symbols: one value each. Shapes are compared on request; if facts are broken, nothing runs.
OpByOpResult run_op_by_op(const Graph& graph, const OpByOpInputs& in, const std::vector<int64_t>& symbols,
                          bool compare);

}  // namespace framejit::graph
