// inductor/cpu/plan/lane_order.cpp — lanes of the main loop that are not side by side in memory.
//
// A register of bfloat16 holds two lanes in every 32 bits. A left shift gives the even lanes as float32; clearing the
// lower halves gives the odd ones. That takes two instructions, while widening in order takes four, and a store saves
// as many. So a main loop whose memory is all bfloat16, or scratch of such loops, holds its even lanes first and then
// the odd ones. Anything else that goes to memory, or asks for the number of a lane, is put in order. Nests that need
// this in their innermost loop stay in order.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"
#include "inductor/kernel/loop_shape.h"
#include "inductor/loop/index_expr.h"

namespace framejit::inductor {
namespace {

bool mentions_lanes(const Kernel& kernel, const KernelNest& n, const SymExpr& e) {
  return mentions(e, static_cast<graph::SymbolId>(kernel.symbol_count + n.vector_dim));
}

bool wants_split_lanes(const Kernel& kernel, const KernelNest& n, const NestPlan& plan,
                       const std::vector<bool>& split_scratch) {
  const LanesPlan& lanes = plan.lanes;
  if (!lanes.has_lanes() || kernel.lanes_outer || kernel.in_tiles || is_ordered(n.nest) ||
      lanes.main_lanes % (2 * lanes.width) != 0)
    return false;
  bool has_split = false;
  for (size_t i = 0; i < n.nest.body.size(); ++i) {
    const LoopInst& inst = n.nest.body[i];
    if (inst.op == LoopOp::kCheck || inst.is_masked()) return false;
    if (inst.index.empty()) continue;
    if (mentions_values(inst.index[0], NestSymbols(kernel.symbol_count))) return false;
    if (!mentions_lanes(kernel, n, inst.index[0])) continue;
    if (plan.insts[i].access != Access::kContiguous || (inst.op == LoopOp::kStore && inst.mode != StoreMode::kPlain))
      return false;
    const bool is_half = kernel.buffers[inst.buffer].dtype == DType::kBFloat16;
    if (!is_half && plan.insts[i].level == plan.loops.size() && !split_scratch[inst.buffer]) return false;
    has_split |= is_half;
  }
  return has_split;
}

// A main loop over all of a buffer.
struct Walk {
  unsigned lanes = 0;
  int64_t end = 0;
  bool operator==(const Walk&) const = default;
};

// The walk of an instruction whose nest splits its lanes.
std::optional<Walk> split_walk(const Kernel& kernel, const KernelNest& n, const LanesPlan& lanes,
                               const LoopInst& inst) {
  const auto extent = lanes.is_split ? n.nest.extent(lanes.dim).as_constant() : std::nullopt;
  if (!extent || inst.is_masked() || inst.mode != StoreMode::kPlain ||
      !(inst.index[0] == NestSymbols(kernel.symbol_count).dim(lanes.dim)))
    return std::nullopt;
  return Walk{lanes.main_lanes, *extent / lanes.wide() * lanes.wide()};
}

}  // namespace

// Scratch is split if every nest that touches it walks all of it, with main loops that end at the same place.
void plan_lane_order(const Kernel& kernel, KernelPlan& plan) {
  std::vector<bool>& split = plan.split_scratch;
  for (const KernelBuffer& b : kernel.buffers)
    split.push_back(!kernel.lanes_outer && b.is_local && b.local_elements > 1 && b.dtype != DType::kBFloat16);
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    std::vector<std::optional<Walk>> walks(kernel.buffers.size());
    for (size_t k = 0; k < kernel.nests.size(); ++k) {
      const KernelNest& n = kernel.nests[k];
      LanesPlan& lanes = plan.nests[k].lanes;
      lanes.is_split = wants_split_lanes(kernel, n, plan.nests[k], split);
      for (const LoopInst& inst : n.nest.body) {
        if (!is_address(inst) || !split[inst.buffer]) continue;
        const auto walk = split_walk(kernel, n, lanes, inst);
        auto& known = walks[inst.buffer];
        if (walk && (!known || *known == *walk)) {
          known = walk;
        } else {
          split[inst.buffer] = false;
          has_changed = true;
        }
      }
    }
  }
}

}  // namespace framejit::inductor
