// inductor/cpu/plan/carried.cpp — the accumulators of reductions and scans, and where sums start anew.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"

namespace framejit::inductor {
namespace {

// Short sums are accumulated in float64: their terms may be much larger than the sum, and no later term hides what was
// lost.
DType accumulator_of(const Planning& p, const LoopInst& inst) {
  constexpr int64_t kShort = 64;
  const DType dtype = p.nest.body[inst.operands[0]].dtype;
  if (!is_float_sum(inst) || dtype != DType::kFloat32) return dtype;
  return p.has_at_most(kShort, p.nest.ranges.size()) ? DType::kFloat64 : DType::kFloat32;
}

// If `inst` is a running position, the running maximum (minimum) of the same values; and the other way round.
InstId twin_of(const Nest& nest, const LoopInst& inst) {
  const auto kind = [](ReduceOp op) {
    return op == ReduceOp::kArgmax ? ReduceOp::kMax : op == ReduceOp::kArgmin ? ReduceOp::kMin : op;
  };
  const auto is_twin = [&](const LoopInst& other) {
    return other.op == LoopOp::kScan && other.operands[0] == inst.operands[0] &&
           kind(other.reduce) == kind(inst.reduce) && is_position(other.reduce) != is_position(inst.reduce);
  };
  const auto found = std::find_if(nest.body.begin(), nest.body.end(), is_twin);
  return found == nest.body.end() ? kNoInst : static_cast<InstId>(found - nest.body.begin());
}

// How positions among the reduced points are carried. If they count up in each lane, the position of lane 0 stands for
// all lanes, in 32 bits if it fits.
void plan_positions(Planning& p) {
  constexpr int64_t kMost32 = INT32_MAX;
  p.plan.positions_count_up = !p.lanes_are_reduced() || p.n.vector_dim + 1 == p.nest.dim_count();
  int64_t points = 1;
  for (size_t d = p.nest.ranges.size(); d < p.nest.dim_count(); ++d) {
    const auto extent = p.nest.extent(d).as_constant();
    points = extent && *extent <= kMost32 / std::max<int64_t>(points, 1) ? points * *extent : kMost32;
  }
  p.plan.has_short_positions = p.plan.positions_count_up && points < kMost32;
}

// Blocks that are slabs. The columns that the main loop leaves to the tail are cut in the same way, because it depends
// on the threads which columns those are.
SumBlocks slab_blocks(const Planning& p, const SumBlocks& blocks) {
  if (blocks.depth == 0) return blocks;
  const auto rows = p.nest.extent(p.plan.loops.back().dim).as_constant();
  return {rows && *rows <= p.costs.slab_rows * kFanOut ? 1 : 2, p.costs.slab_rows};
}

}  // namespace

bool is_float_sum(const LoopInst& inst) {
  return inst.op == LoopOp::kReduce && inst.reduce == ReduceOp::kSum && is_float(inst.dtype);
}

void plan_carried(Planning& p) {
  plan_positions(p);
  size_t place = 0;
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    const LoopInst& inst = p.nest.body[i];
    if (!is_carried(inst)) continue;
    p.plan.insts[i].place = place++;
    p.plan.insts[i].accumulator = accumulator_of(p, inst);
    if (inst.op == LoopOp::kScan) p.plan.insts[i].twin = twin_of(p.nest, inst);
  }
}

void plan_blocks(Planning& p) {
  const std::vector<SumBlocks> blocks = plan_sum_blocks(p.n, p.plan.lanes.wide());
  for (size_t k = 0; k < blocks.size(); ++k) p.plan.loops[k].blocks = blocks[k];
  if (p.plan.lanes.main == MainLoop::kSlabs) p.plan.loops.back().blocks = slab_blocks(p, p.plan.loops.back().blocks);
  for (size_t k = 0; k < p.plan.loops.size(); ++k) {
    LoopPlan& loop = p.plan.loops[k];
    p.plan.is_compensated |= loop.blocks.depth == 2;
    // Several points per iteration, so that counting and addresses do not delay the carried values: in the innermost
    // loop of an ordered nest or over the points of a tile, with few instructions per point.
    if (loop.dim != p.n.vector_dim && k + 1 == p.plan.loops.size() && (is_ordered(p.nest) || p.kernel.in_tiles) &&
        p.nest.body.size() <= static_cast<size_t>(p.costs.walked_instructions) && loop.blocks.depth == 0)
      loop.points = p.costs.walked_points;
  }
}

}  // namespace framejit::inductor
