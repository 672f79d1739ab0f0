// inductor/lowering/memory_formats.h — the memory format of each convolution and pooling, and of the values between
// them.
//
// Library ops differ in which format is fast for them (format_costs.def), kernels do not care, and a change of format
// costs a pass over the elements. The formats with the lowest total cost are a minimum cut of the graph: one side of
// the cut runs in channels_last, the other contiguously, and each edge that is cut gets a copy. Most copies are part of
// the kernels around them. Outputs keep their strides.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

enum class FormatRule : uint8_t {
  kLeastCost,  // of format_costs.def and the conversions
  kChannelsLast,  // every convolution that can runs in channels_last; all else as it costs least with that
};

// In and out: a functional graph. Only known facts about symbolic sizes are used.
// `weights`: per input, whether it stays the same from call to call; values made only from such inputs are laid out
// once.
graph::Graph choose_memory_formats(const graph::Graph& functional, const TargetInfo& target,
                                   FormatRule rule = FormatRule::kLeastCost, const std::vector<bool>& weights = {});

}  // namespace framejit::inductor
