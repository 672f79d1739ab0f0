// inductor/schedule/commit_order.h — new values of whole inputs are made last, in the inputs' own memory.
//
// A plan writes no input while a step may still fail: a library call, a check of data, memory that is not to be had.
// So kernels that make the new value of an input, and what needs them, go after all such steps where the order of
// reads and writes lets them. From there on (Schedule::commit) nothing fails, and what they compute need not be
// copied when the plan ends.
#pragma once

#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// Fills schedule.commit and schedule.new_values; steps change their places only where that needs no more memory at a
// time.
void order_for_commit(const graph::Graph& graph, const std::vector<ValueForm>& forms, const SizeHints& hints,
                      const TargetInfo& target, Schedule& schedule);

}  // namespace framejit::inductor
