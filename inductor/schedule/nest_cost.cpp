// inductor/schedule/nest_cost.cpp — counts over bodies.
#include "inductor/schedule/nest_cost.h"

#include <algorithm>

#include "inductor/loop/index_expr.h"
#include "inductor/loop/op_costs.h"

namespace framejit::inductor {
namespace {

void count(const LoopInst& inst, NestCost& cost) {
  cost.instructions += inst.op == LoopOp::kScalar || inst.op == LoopOp::kCast;
  cost.loads += inst.op == LoopOp::kLoad;
  if (inst.op == LoopOp::kScalar) cost.work += cost_of(inst);
  cost.heavy |= inst.op == LoopOp::kCheck || cost_of(inst) > 1;
}

}  // namespace

NestCost cost_of(const Nest& nest) {
  NestCost cost;
  for (const LoopInst& inst : nest.body) count(inst, cost);
  return cost;
}

NestCost cost_in_row(const Nest& nest, const NestSymbols& symbols) {
  NestCost cost;
  const std::optional<graph::SymbolId> last = symbols.id_of_last_dim(nest);
  if (!last) return cost;
  std::vector<bool> differs(nest.body.size(), false);
  for (size_t i = 0; i < nest.body.size(); ++i) {
    const LoopInst& inst = nest.body[i];
    std::vector<InstId> uses;
    collect_uses(inst, symbols, uses);
    differs[i] =
        std::any_of(uses.begin(), uses.end(), [&](InstId use) { return differs[use]; }) ||
        std::any_of(inst.index.begin(), inst.index.end(), [&](const SymExpr& e) { return mentions(e, *last); });
    if (differs[i]) count(inst, cost);
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
