// inductor/cpu/plan/slabs.cpp — columns that are summed in slabs of rows (inductor/cpu/nest_columns.cpp).
#include <algorithm>

#include "inductor/cpu/plan/planning.h"

namespace framejit::inductor {
namespace {

int64_t bytes_of(DType dtype, int64_t lanes) {
  const int64_t bits = dtype == DType::kBool ? 1 : 8 * row_of(dtype).bytes;
  return (bits * lanes + 7) / 8;
}

}  // namespace

// One loop over rows inside the loop over columns, with nothing in between.
bool may_walk_in_slabs(const Planning& p) {
  const NestPlan& plan = p.plan;
  if (!p.nest.is_reduction() || is_ordered(p.nest) || !p.has_lanes() || p.lanes_are_reduced() || p.kernel.lanes_outer ||
      p.kernel.in_tiles)
    return false;
  if (plan.loops.size() != plan.range_levels + 1 || plan.loops[plan.range_levels - 1].dim != p.n.vector_dim)
    return false;
  const auto rows = p.nest.extent(plan.loops.back().dim).as_constant();
  if (rows && *rows < p.costs.slabs * p.costs.slab_rows) return false;
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    if (plan.insts[i].level == plan.range_levels && !plan.insts[i].is_after) return false;
    if (p.nest.body[i].op == LoopOp::kReduce && plan.insts[i].accumulator == DType::kFloat64) return false;
  }
  return true;
}

// Takes as many columns as fit on the stack, in a multiple of the lanes. Each accumulator begins at a cache line. If
// slabs have a middle total, accumulators exist twice, except for what rounding lost.
void plan_slabs(Planning& p) {
  if (p.plan.lanes.main != MainLoop::kSlabs) return;
  const int64_t lanes = p.plan.lanes.wide();
  const int sets = p.plan.loops.back().blocks.depth == 2 ? 2 : 1;
  int64_t bytes = 0, room = kStackBytes;
  const auto take = [&](DType dtype) {
    bytes += bytes_of(dtype, lanes);
    room -= p.target.caches.line;
  };
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    const LoopInst& inst = p.nest.body[i];
    if (!is_carried(inst)) continue;
    const DType dtype = p.plan.insts[i].accumulator;
    for (int set = 0; set < sets; ++set) {
      take(dtype);
      if (is_position(inst.reduce)) take(p.plan.has_short_positions ? DType::kInt32 : DType::kInt64);
    }
    if (p.plan.is_compensated && is_float_sum(inst)) take(dtype);
  }
  const int64_t most = std::max<int64_t>(room / bytes, 1) * lanes;
  const auto columns = p.lane_count();
  p.plan.slabs = {p.costs.slab_rows, columns ? std::min(most, *columns / lanes * lanes) : most};
}

}  // namespace framejit::inductor
