// inductor/schedule/input_writes.h — writes a few elements of an input in place, without a copy of the whole input.
//
// In a functional graph, a cache that gets a row becomes a copy of the cache with the row replaced. When the plan ends,
// the copy goes back to the input. Here such a value becomes the input's own memory. It is written before the plan
// ends, and a later step may still fail; then plain Python runs from the segment's first instruction. The result is
// eager's, because plain Python writes the same elements again with the same values: nothing else in the graph reads
// the old contents of the input, and only writes that merely replace elements qualify.
// If a check can stop the call, separate nests check the indices before the writes and pass them on. Anything else that
// may fail and comes before the write in the program must come before it in the plan: writes_in_order().
#pragma once

#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// Per update of the graph: whether its value is now the input's own memory.
std::vector<bool> write_inputs_in_place(const graph::Graph& graph, const TargetInfo& target, LoweredGraph& lowered);

// Whether everything that may fail and comes before a write of an input in the program has run when the write begins.
bool writes_in_order(const Schedule& schedule, const TargetInfo& target);

}  // namespace framejit::inductor
