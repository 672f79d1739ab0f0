// graph/lost_values.h — what the formulas of a backward read, where inputs of the forward are gone.
//
// Eager's formulas hold the values that they read. Here the partition decides which values a forward saves: fewer, and
// other ones. So if an input is gone, values that were computed from it, and that a formula reads, are lost. Often they
// can be computed from what is left: the saved values, and the inputs and outputs that are still there.
#pragma once

#include <vector>

#include "graph/joint.h"

namespace framejit::graph {

struct WhatIsLeft {
  std::vector<bool> missing;  // per input of the forward: the second run reads it, and it is not there; empty: none is
  std::vector<bool> inputs, outputs;  // per input and output of the forward: it is there, as the forward saw it
  std::vector<bool> given;  // per root: whether its gradient is given. Formulas of the others do not count
};

// Values of the recorded forward. An error: an op of the forward looks at the contents of what is missing.
Result<std::vector<ValueId>> lost_values(const TrainingGraphs& graphs, const WhatIsLeft& left);

struct LostContents {
  Graph graph;              // one output per lost value
  std::vector<Saved> held;  // what its inputs are; kValue: by the place in TrainingGraphs::saved
};
// values: the functional forward, whose outputs are the lost values.
Result<LostContents> lost_contents(const TrainingGraphs& graphs, const WhatIsLeft& left, Graph values);

}  // namespace framejit::graph
