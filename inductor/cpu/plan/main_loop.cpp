// inductor/cpu/plan/main_loop.cpp — the form of the main loop over the lanes, where it ends, and whether there is a
// tail.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"
#include "inductor/kernel/loop_shape.h"

namespace framejit::inductor {
namespace {

// Heavy bodies do not wait for memory; they are faster with wide vectors that each instruction processes as a whole.
bool has_streams(const Planning& p) {
  return p.kernel.is_flat && p.plan.is_light && p.plan.lanes.unroll > 1 && p.plan.loops.size() == 1 &&
         !p.nest.is_reduction() && !is_ordered(p.nest);
}

// A body that can be computed again: it carries only the position.
bool is_search(const Planning& p) {
  if (!p.lanes_are_reduced() || p.nest.reduced.size() != 1 || !p.plan.positions_count_up) return false;
  size_t carried = 0;
  for (size_t i = 0; i < p.nest.body.size(); ++i) {
    const LoopInst& inst = p.nest.body[i];
    const bool is_inside = p.is_inside_all_loops(i) && !p.plan.insts[i].is_after;
    if (is_inside && (inst.op == LoopOp::kStore || inst.op == LoopOp::kCheck || inst.is_masked())) return false;
    carried += is_carried(inst);
    if (is_carried(inst) && (inst.op != LoopOp::kReduce || !is_position(inst.reduce))) return false;
  }
  return carried == 1;
}

// In memory, the lanes of a float32 register fill only half a register if they have half precision.
unsigned stream_lanes(const Planning& p) {
  const bool has_halves = std::any_of(p.nest.body.begin(), p.nest.body.end(), [&](const LoopInst& i) {
    return is_address(i) && row_of(p.kernel.buffers[i.buffer].dtype).bytes < 4;
  });
  return has_halves ? p.plan.lanes.width * 2 : p.plan.lanes.width;
}

// Where streams end in a range of this many points. Each has its own part of a long range; parts begin an odd number of
// cache lines apart: at powers of two, all streams would compete for the same few ways of a cache.
int64_t streams_end(const Planning& p, int64_t points) {
  const int64_t streams = p.plan.lanes.unroll, part = points / streams;
  const int64_t turn = p.plan.lanes.main_lanes * streams;
  if (part < p.plan.lanes.part_points) return points / turn * turn;
  return (((part - kFlatUnit) & ~(2 * kFlatUnit - 1)) + kFlatUnit) * streams;
}

}  // namespace

void plan_main_loop(Planning& p) {
  LanesPlan& lanes = p.plan.lanes;
  if (!p.has_lanes()) return;
  const std::optional<int64_t> size = p.lane_count();
  const int64_t wide = lanes.wide();
  lanes.main_lanes = lanes.wide();
  lanes.is_part = p.kernel.is_flat && !p.kernel.is_whole();
  const bool is_known = size.has_value() && !lanes.is_part;
  const int64_t points = is_known ? *size : 0;
  const bool has_main = !is_known || points >= wide;
  if (has_streams(p)) lanes.main_lanes = stream_lanes(p);
  if (has_main && has_streams(p)) lanes.part_points = p.costs.stream_points;
  if (!has_main) lanes.main = MainLoop::kNone;
  else if (has_streams(p)) lanes.main = MainLoop::kStreams;
  else if (is_search(p)) lanes.main = MainLoop::kSearch;
  else if (lanes.main != MainLoop::kSlabs) lanes.main = MainLoop::kTurns;
  if (lanes.main == MainLoop::kNone) {
    lanes.main_end = 0;
  } else if (lanes.main == MainLoop::kStreams) {
    if (is_known) lanes.main_end = streams_end(p, points);
  } else {
    // If even, there is never a tail, whichever part of the range a call asks for.
    lanes.is_even = size && *size % wide == 0 && (!lanes.is_part || kFlatUnit % wide == 0);
    if (is_known) lanes.main_end = points / wide * wide;
  }
  lanes.has_tail = !lanes.is_even && (!is_known || *lanes.main_end != points);
}

}  // namespace framejit::inductor
