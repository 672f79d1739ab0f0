// graph/passes/partition.h — cuts a functional joint graph into a forward and a backward.
#pragma once

#include <optional>

#include "graph/joint.h"

namespace framejit::graph {

// `budget`: how much may be saved, in percent of the bytes that eager would keep. 100: no limit; 0: only what
// cannot be computed again is saved.
Result<TrainingGraphs> partition(const Graph& joint, const JointLayout& layout, int64_t budget = 100);

// Random masks become bools before they are read, so that a byte an element is enough to save one. None: nothing is
// drawn.
std::optional<Graph> narrow_masks(const Graph& joint);

// The backward where only some gradients are given (per tangent) and wanted (per gradient). A gradient that depends on
// none that is given is absent from the outputs (kNoValue): eager leaves it undefined. Inputs stay as they are.
Result<Graph> partial_backward(const TrainingGraphs& graphs, const std::vector<bool>& given,
                               const std::vector<bool>& wanted);

}  // namespace framejit::graph
