// inductor/schedule/commit_order.h — new values of whole inputs are computed last, in the inputs' own memory.
//
// A plan must not write to an input while a step may still fail: a library call, a check of data, an allocation. So
// kernels that make the new value of an input, and the steps that need them, go after all such steps, if the order of
// reads and writes allows it. From there on (Schedule::commit) nothing fails, and these results need not be copied when
// the plan ends.
#pragma once

#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// Fills schedule.commit and schedule.new_values; steps move only if that does not raise the peak of memory.
void order_for_commit(const graph::Graph& graph, const std::vector<ValueForm>& forms, const SizeHints& hints,
                      const TargetInfo& target, Schedule& schedule);

}  // namespace framejit::inductor
