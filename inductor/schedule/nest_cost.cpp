// inductor/schedule/nest_cost.cpp — counts over bodies.
#include "inductor/schedule/nest_cost.h"

#include <algorithm>

#include "inductor/loop/op_costs.h"

namespace framejit::inductor {

NestCost cost_of(const Nest& nest) {
  NestCost cost;
  for (const LoopInst& inst : nest.body) {
    cost.instructions += inst.op == LoopOp::kScalar || inst.op == LoopOp::kCast;
    cost.loads += inst.op == LoopOp::kLoad;
    if (inst.op == LoopOp::kScalar) cost.work += cost_of(inst);
    cost.heavy |= inst.op == LoopOp::kCheck || cost_of(inst) > 1;
  }
  return cost;
}

bool is_too_much_work(const Costs& costs, int one, int other) {
  return one + other > costs.most_work && std::min(one, other) >= kFunctionCost;
}

bool are_too_large(const Costs& costs, const Nest& first, const Nest& second) {
  if (first.body.size() + second.body.size() > static_cast<size_t>(costs.most_instructions)) return true;
  return is_too_much_work(costs, cost_of(first).work, cost_of(second).work);
}

bool takes_zeros(const Nest& nest) {
  return std::none_of(nest.body.begin(), nest.body.end(), [](const LoopInst& inst) {
    const bool divides = inst.scalar == ScalarOp::k_floor_div || inst.scalar == ScalarOp::k_trunc_div ||
                         inst.scalar == ScalarOp::k_rem || inst.scalar == ScalarOp::k_fmod;
    return inst.op == LoopOp::kCheck || (inst.op == LoopOp::kScalar && divides && !is_float(inst.dtype));
  });
}

}  // namespace framejit::inductor
