// inductor/autotune.h — choices decided by time instead of by cost model: mode="max-autotune".
//
// Choices are decided one after the other. Each alternative gets a plan, made with the earlier decisions, and the plans
// take turns on the inputs of the call. An alternative replaces the cost model's only if it is clearly faster. If a
// choice cannot be timed, or not within the budget, the cost model decides. The channel `autotune` has one line for
// each choice.
#pragma once

#include <functional>
#include <vector>

#include "graph/backend.h"
#include "inductor/choices.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

using MakePlan = std::function<Result<runtime::Executable>(const Choices&)>;

// budget: seconds for everything beyond the plan of the cost models, including compiling. A signal ends it with the
// Error "interrupted". Graphs that draw random numbers, call ops of other libraries, or run on a GPU are not timed.
// chosen: the choices made.
Result<runtime::Executable> choose_by_time(const graph::Graph& functional, const std::vector<ChoiceRow>& rows,
                                           const MakePlan& make, const TargetInfo& target, graph::PlanTimer& timer,
                                           double budget, Choices& chosen);

}  // namespace framejit::inductor
