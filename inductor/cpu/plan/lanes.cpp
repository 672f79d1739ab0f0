// inductor/cpu/plan/lanes.cpp — which values differ from lane to lane, how memory is accessed, what is known about
// masks.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"
#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/index_expr.h"

namespace framejit::inductor {
namespace {

// Whether it is a position that the lanes step through one by one.
bool steps_by_lane(const Planning& p, const LoopInst& inst) {
  SymExpr step, rest;
  return inst.op == LoopOp::kIndex && !mentions_values(inst.index[0], p.symbols) &&
         split_linear(inst.index[0], p.symbols.dim(p.n.vector_dim), step, rest) && step == SymExpr(1);
}

// Whether it is a number that all lanes share, whatever else is planned.
bool is_shared(const Planning& p, const LoopInst& inst) {
  if (inst.op == LoopOp::kConstant) return true;
  if (inst.op != LoopOp::kIndex && inst.op != LoopOp::kLoad) return false;
  const bool is_load = inst.op == LoopOp::kLoad;
  if (is_load && (inst.is_masked() || p.kernel.buffers[inst.buffer].is_local || p.is_tiled(inst))) return false;
  SymExpr step, rest;
  return inst.dtype == DType::kInt64 && !mentions_values(inst.index[0], p.symbols) &&
         split_linear(inst.index[0], p.symbols.dim(p.n.vector_dim), step, rest) && step == SymExpr(0);
}

bool is_equality(const LoopInst& inst) { return inst.scalar == ScalarOp::k_eq || inst.scalar == ScalarOp::k_ne; }

// Whether it compares a position that the lanes step through one by one with a number that they share.
bool is_border(const Planning& p, const LoopInst& inst) {
  const bool compares = inst.scalar == ScalarOp::k_lt || inst.scalar == ScalarOp::k_ge || is_equality(inst);
  if (!p.has_lanes() || inst.op != LoopOp::kScalar || !compares) return false;
  const LoopInst &first = p.nest.body[inst.operands[0]], &second = p.nest.body[inst.operands[1]];
  return (steps_by_lane(p, first) && is_shared(p, second)) ||
         (is_equality(inst) && steps_by_lane(p, second) && is_shared(p, first));
}

// The part of the index that differs from lane to lane.
struct Steps {
  bool values = false, lane = false;
};
Steps steps_of(const Planning& p, const SymExpr& e, size_t level) {
  Steps steps;
  std::vector<graph::SymbolId> ids;
  e.collect_symbols(ids);
  for (graph::SymbolId id : ids) {
    if (p.symbols.is_value(id)) steps.values |= p.plan.insts[p.symbols.inst_of(id)].has_lanes;
    else steps.lane |= p.symbols.is_dim(id) && p.symbols.dim_of(id) == p.n.vector_dim && p.plan.is_inside_lanes(level);
  }
  return steps;
}

Access access_of(const Planning& p, const LoopInst& inst, size_t level) {
  if (p.is_tiled(inst)) return Access::kTile;
  if (p.kernel.lanes_outer && p.kernel.buffers[inst.buffer].is_local) return Access::kOfLane;
  const Steps steps = steps_of(p, inst.index[0], level);
  if (!steps.values && !steps.lane) return Access::kOne;
  SymExpr coefficient, rest;
  const bool is_contiguous = !steps.values &&
                             split_linear(inst.index[0], p.symbols.dim(p.n.vector_dim), coefficient, rest) &&
                             coefficient == SymExpr(1);
  return is_contiguous ? Access::kContiguous : Access::kScattered;
}

// Whether it is known, before the mask is computed, that none or all of its lanes are on.
bool is_known(const Planning& p, InstId i) {
  const LoopInst& inst = p.nest.body[i];
  if (!p.plan.insts[i].has_lanes || p.plan.insts[i].is_border) return true;
  return inst.op == LoopOp::kScalar && inst.scalar == ScalarOp::k_bit_and && is_known(p, inst.operands[0]) &&
         is_known(p, inst.operands[1]);
}

bool has_lanes(const Planning& p, const LoopInst& inst, const InstPlan& of) {
  const auto any_operand = [&] {
    for (size_t k = 0; k < static_cast<size_t>(inst.operand_count()); ++k)
      if (p.plan.insts[inst.operands[k]].has_lanes) return true;
    return false;
  };
  switch (inst.op) {
    case LoopOp::kConstant:
    case LoopOp::kStore: return false;
    case LoopOp::kIndex: {
      const Steps steps = steps_of(p, inst.index[0], of.level);
      return steps.values || steps.lane;
    }
    case LoopOp::kLoad: return of.access != Access::kOne || any_operand();
    case LoopOp::kCheck:
    case LoopOp::kCast: return any_operand();
    case LoopOp::kScalar: return of.is_border || any_operand();
    case LoopOp::kReduce:
    case LoopOp::kScan: return !p.lanes_are_reduced() && p.plan.is_inside_lanes(p.plan.range_levels);
  }
  return false;
}

}  // namespace

void plan_borders(Planning& p) {
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    const LoopInst& inst = p.nest.body[i];
    p.plan.insts[i].is_border = is_border(p, inst);
    p.plan.insts[i].is_place = p.plan.insts[i].is_border && is_equality(inst);
  }
}

void plan_lanes(Planning& p) {
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    const LoopInst& inst = p.nest.body[i];
    InstPlan& of = p.plan.insts[i];
    if (is_address(inst)) of.access = access_of(p, inst, of.level);
    of.has_lanes = has_lanes(p, inst, of);
    if (!inst.is_masked()) continue;
    const InstId mask = inst.operands[0];
    of.mask = !p.plan.insts[mask].has_lanes ? MaskKind::kShared
              : is_known(p, mask)           ? MaskKind::kBorder
                                            : MaskKind::kLanes;
  }
}

}  // namespace framejit::inductor
