// graph/forward_again.h — the forward of a joint graph, to be run again op by op under autograd.
//
// A backward that is differentiated itself needs formulas that can be differentiated. PyTorch uses some of them only if
// its engine runs in grad mode. The joint graph was recorded without it and lacks them.
// What a program detaches, or computes without grad mode, is a constant to every derivative. A second run would
// differentiate it, so it runs in two parts: one makes these values, the other takes them.
#pragma once

#include <optional>
#include <vector>

#include "graph/joint.h"
#include "graph/lost_values.h"

namespace framejit::graph {

struct ForwardAgainGraphs {
  std::optional<Graph> constants;  // from the forward's inputs; nullopt: all values have the history of their ops
  // Inputs: the forward's, then the constants. Outputs: each root; then, for each root with a gradient of its own (in
  // order), the alias that later ops read; then the memory of each lost value. If WhatIsLeft says which gradients are
  // given, a root that they do not reach is a zero without a history.
  Graph roots;
  std::vector<bool> reads;  // per input of the forward: whether one of the two needs it
  // The contents of the lost values, if inputs are missing. The forward runs again with arbitrary tensors in place of
  // the missing inputs. Afterwards these contents are written to its lost values.
  std::optional<LostContents> lost;
};

// The graphs are functional and write nothing but fresh memory. It is an error if
//   - the memory of a value without a history is written;
//   - the forward writes an input whose old value is needed;
//   - a root is the same value as another;
//   - a value that formulas read is lost and cannot be computed again.
Result<ForwardAgainGraphs> forward_again(const TrainingGraphs& graphs, const WhatIsLeft& left);

}  // namespace framejit::graph
