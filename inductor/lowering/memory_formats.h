// inductor/lowering/memory_formats.h — the memory format of each convolution and pooling, and of what lies between
// them.
//
// Library ops differ in the format that they are fast in (format_costs.def), kernels do not care, and going over from
// one format to the other costs a pass over the elements. The formats that cost least in all are a minimum cut of the
// graph: one side of the cut runs in channels_last, the other contiguously, and a copy stands on each edge that is cut.
// Copies are mostly part of the kernels around them. What leaves the graph has the strides that it had.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

enum class FormatRule : uint8_t {
  kLeastCost,     // of format_costs.def and the conversions
  kChannelsLast,  // every convolution that can run in channels_last does; the rest as it costs least beside them
};

// In and out: a functional graph. Nothing is assumed about symbolic sizes that is not known.
// `weights`: per input, whether it stays from call to call; what is made of such inputs alone is laid out once.
graph::Graph choose_memory_formats(const graph::Graph& functional, const TargetInfo& target,
                                   FormatRule rule = FormatRule::kLeastCost, const std::vector<bool>& weights = {});

}  // namespace framejit::inductor
