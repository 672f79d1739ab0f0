// inductor/loop/op_costs.h — what the instructions of a nest cost: rows of op_costs.def.
#pragma once

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

inline constexpr int kFunctionCost = 12;

int cost_of(const LoopInst& inst);  // of one element, in additions

}  // namespace framejit::inductor
