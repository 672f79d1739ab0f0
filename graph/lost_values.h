// graph/lost_values.h — values that the formulas of a backward read, if inputs of the forward are gone.
//
// Eager's formulas hold the values that they read. Here the partition decides which values a forward saves: fewer ones,
// and different ones. So if an input is gone, the values that were computed from it and that a formula reads are lost.
// Often they can be computed from what is left: the saved values, and the inputs and outputs that still exist.
#pragma once

#include <vector>

#include "graph/joint.h"

namespace framejit::graph {

struct WhatIsLeft {
  std::vector<bool> missing;  // per input of the forward: the second run reads it, but it is gone; empty: none
  std::vector<bool> inputs, outputs;  // per input and output of the forward: it still exists, unchanged
  std::vector<bool> given;  // per root: whether its gradient is given. Formulas of other roots do not count
};

// Values of the recorded forward. An error: an op of the forward needs the contents of a missing input.
Result<std::vector<ValueId>> lost_values(const TrainingGraphs& graphs, const WhatIsLeft& left);

struct LostContents {
  Graph graph;              // one output per lost value
  std::vector<Saved> held;  // what each input of `graph` is; the index of a kValue points into TrainingGraphs::saved
};
// values: the functional forward, whose outputs are the lost values.
Result<LostContents> lost_contents(const TrainingGraphs& graphs, const WhatIsLeft& left, Graph values);

}  // namespace framejit::graph
