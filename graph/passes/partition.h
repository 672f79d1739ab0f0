// graph/passes/partition.h — cuts a functional joint graph into a forward and a backward.
#pragma once

#include <optional>

#include "graph/joint.h"

namespace framejit::graph {

// `budget`: how much may be saved, in percent of the bytes that eager would keep. 100: no limit; 0: only what
// cannot be computed again is saved.
Result<TrainingGraphs> partition(const Graph& joint, const JointLayout& layout, int64_t budget = 100);

// Random masks become bools before they are read, so that saving one takes a byte per element. nullopt if no mask is
// drawn.
std::optional<Graph> narrow_masks(const Graph& joint);

// The backward if only some gradients are given (per tangent) and wanted (per gradient). A gradient that depends on no
// given one is absent from the outputs (kNoValue), as eager leaves it undefined. The inputs stay the same.
Result<Graph> partial_backward(const TrainingGraphs& graphs, const std::vector<bool>& given,
                               const std::vector<bool>& wanted);

}  // namespace framejit::graph
