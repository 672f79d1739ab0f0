// inductor/cpu/plan/unroll.cpp — how many registers of each value the main loop works on.
//
// Light bodies are unrolled, so that loads overlap; heavy ones are parallel by themselves.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"
#include "inductor/cpu/plan/wide_ops.h"
#include "inductor/loop/index_expr.h"
#include "inductor/loop/op_costs.h"

namespace framejit::inductor {
namespace {

size_t weight_of(const LoopInst& inst) {
  if (inst.op != LoopOp::kScalar) return 0;
  return static_cast<size_t>(cost_of(inst) < kFunctionCost ? 1 : kFunctionCost);
}

// Instructions that only borders need: borders compute with the position of the first lane.
std::vector<bool> only_borders(const Planning& p) {
  std::vector<bool> aside(p.nest.body.size(), false), used(p.nest.body.size(), false);
  for (size_t i = p.nest.body.size(); i-- > 0;) {
    const LoopInst& inst = p.nest.body[i];
    aside[i] = (inst.op == LoopOp::kIndex || inst.op == LoopOp::kConstant) && inst.dtype == DType::kInt64 && !used[i];
    if (p.plan.insts[i].is_border) continue;
    std::vector<InstId> uses;
    collect_uses(inst, p.symbols, uses);
    for (InstId use : uses) used[use] = true;
  }
  return aside;
}

struct Body {
  size_t weight = 0;
  bool is_narrow = false;  // 64-bit lanes, or each lane with its own address: one register of them is enough work
};

bool is_narrow(const Planning& p, const LoopInst& inst) {
  const bool has_position = is_carried(inst) && is_position(inst.reduce);
  if (has_position && !p.plan.has_short_positions) return true;
  if (inst.op == LoopOp::kCheck || (inst.dtype == DType::kInt64 && !has_position) || inst.dtype == DType::kFloat64)
    return true;
  return (inst.op == LoopOp::kLoad || inst.op == LoopOp::kStore) && !steps_one_by_one(p, inst) && !p.is_tiled(inst);
}

// The work of each iteration over the lanes.
Body body_of(const Planning& p) {
  Body body;
  const std::vector<bool> aside = only_borders(p);
  const bool has_rows = !p.plan.loops.empty() && is_ordered(p.nest) &&
                        p.plan.loops.back().dim == p.n.vector_dim;  // the lanes are the innermost loop
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    if (has_rows && !p.is_inside_all_loops(i)) continue;                    // runs once, outside the loop over lanes
    if (p.lanes_are_reduced() && p.plan.insts[i].is_after) continue;        // runs once, after the loop over lanes
    if (aside[i]) continue;
    body.is_narrow |= is_narrow(p, p.nest.body[i]);
    body.weight += weight_of(p.nest.body[i]);
  }
  return body;
}

// The unroll factor of a long chain. Each instruction waits for the previous one, and the CPU does not look far enough
// ahead, so several points are computed side by side. Few values are live at a time, so registers allow it
// (benchmarks/results/decisions.md).
unsigned chain_unroll(const Planning& p) {
  const bool is_wide = std::any_of(p.nest.body.begin(), p.nest.body.end(), [](const LoopInst& inst) {
    return inst.op == LoopOp::kScalar && is_widened(inst.scalar);
  });
  const auto each = static_cast<unsigned>(is_wide ? p.costs.wide_chain_registers : p.costs.chain_registers);
  return std::max(p.target.registers.count / each, 1u);
}

// The weight of the longest chain of instructions, each of which needs the previous one.
size_t chain_weight(const Nest& nest) {
  std::vector<size_t> until(nest.body.size(), 0);
  size_t longest = 0;
  for (size_t i = 0; i < nest.body.size(); ++i) {
    for (InstId operand : nest.body[i].operands)
      if (operand != kNoInst) until[i] = std::max(until[i], until[operand]);
    until[i] += weight_of(nest.body[i]);
    longest = std::max(longest, until[i]);
  }
  return longest;
}

unsigned by_weight(size_t weight, unsigned registers) {
  constexpr unsigned kHeavy = 1, kMiddle = 2, kLight = 4;
  return weight > 2 * registers ? kHeavy : weight > registers ? kMiddle : kLight;
}

}  // namespace

bool steps_one_by_one(const Planning& p, const LoopInst& inst) {
  if (!p.has_lanes()) return true;
  SymExpr coefficient, rest;
  return split_linear(inst.index[0], p.symbols.dim(p.n.vector_dim), coefficient, rest) &&
         (coefficient == SymExpr(0) || coefficient == SymExpr(1));
}

void plan_unroll(Planning& p) {
  const Body body = body_of(p);
  const unsigned registers = p.target.registers.count, width = p.target.registers.lanes;
  p.plan.is_light = body.weight <= static_cast<size_t>(p.costs.light_instructions);
  unsigned unroll = body.is_narrow ? 1 : by_weight(body.weight, registers);
  if (!body.is_narrow && body.weight > 2 * registers && chain_weight(p.nest) * 2 > body.weight)
    unroll = chain_unroll(p);
  if (p.has_at_most(p.costs.unrolled_points)) unroll = 1;
  const int8_t tuned = p.kernel.unroll;
  if (!body.is_narrow) unroll = tuned >= 0 ? unroll << tuned : std::max(unroll >> -tuned, 1u);
  if (p.kernel.in_tiles)
    unroll = std::min(unroll, std::max(static_cast<unsigned>(tile_line(p.kernel, p.target)) / width, 1u));
  LanesPlan& lanes = p.plan.lanes;
  lanes.dim = p.n.vector_dim;
  lanes.width = width;
  lanes.is_reduced = p.lanes_are_reduced();
  if (p.has_lanes()) {
    if (unroll >= 4 && body.weight <= static_cast<size_t>(p.costs.slab_instructions) && may_walk_in_slabs(p))
      lanes.main = MainLoop::kSlabs;
    const auto extent = p.lane_count();
    while (extent && unroll > 1 && *extent < static_cast<int64_t>(width * unroll)) unroll /= 2;
  }
  lanes.unroll = unroll;
}

}  // namespace framejit::inductor
