// inductor/schedule/input_writes.h — a few elements of an input are written where they are, not by way of a copy of all
// of it.
//
// A cache that gets a row becomes, as a functional graph, a copy of the cache in which the row is replaced, and the
// copy's content goes back to the input when the plan ends. Here such a value becomes the input's own memory. It is
// then written before the plan ends: a step behind may still fail, and plain Python runs from the segment's first
// instruction. That leaves what eager leaves, as plain Python writes the same elements again with the same values:
// nothing else in the graph reads what the input held before, and what does not only replace is not taken. Indices are
// checked in front of the writes, by nests that hand them over; what else may fail and stands before the write in the
// program must stand before it in the plan: writes_in_order().
#pragma once

#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// Per update of the graph: whether its value is the input's own memory now.
std::vector<bool> write_inputs_in_place(const graph::Graph& graph, const TargetInfo& target, LoweredGraph& lowered);

// Whether all that may fail and comes before a write of an input in the program has run when it begins.
bool writes_in_order(const Schedule& schedule);

}  // namespace framejit::inductor
