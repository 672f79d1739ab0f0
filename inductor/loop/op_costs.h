// inductor/loop/op_costs.h — the costs of a nest's instructions: rows of op_costs.def.
#pragma once

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

inline constexpr int kFunctionCost = 12;

int cost_of(const LoopInst& inst);  // of one element, in additions

}  // namespace framejit::inductor
