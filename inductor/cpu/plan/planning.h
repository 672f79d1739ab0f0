// inductor/cpu/plan/planning.h — one nest and its growing plan: shared by the parts of planning.
//
// The functions are declared in the order in which plan_kernel() calls them: each reads the decisions of the ones
// before it.
#pragma once

#include "inductor/cpu/plan/nest_plan.h"

namespace framejit::inductor {

struct Planning {
  Planning(const Kernel& k, const KernelNest& nest_of_kernel, const TargetInfo& t)
      : kernel(k), n(nest_of_kernel), nest(n.nest), target(t), costs(t.costs), symbols(k.symbol_count) {}

  bool has_lanes() const { return n.vector_dim != SIZE_MAX; }
  bool lanes_are_reduced() const { return has_lanes() && n.vector_dim >= nest.ranges.size(); }
  bool is_inside_all_loops(size_t i) const { return plan.insts[i].level == plan.loops.size(); }
  // Over the dimensions from `first_dim` on. An unknown size may be anything.
  bool has_at_most(int64_t points, size_t first_dim = 0) const;
  bool is_tiled(const LoopInst& inst) const;
  std::optional<int64_t> lane_count() const { return nest.extent(n.vector_dim).as_constant(); }

  const Kernel& kernel;
  const KernelNest& n;
  const Nest& nest;
  const TargetInfo& target;
  const Costs& costs;
  const NestSymbols symbols;
  NestPlan plan;
};

void plan_levels(Planning& p);    // levels.cpp
void plan_borders(Planning& p);   // lanes.cpp
void plan_carried(Planning& p);   // carried.cpp: what accumulators are
void plan_unroll(Planning& p);    // unroll.cpp
void plan_blocks(Planning& p);    // carried.cpp: where sums start anew
void plan_lanes(Planning& p);  // lanes.cpp: which values have lanes, how memory is accessed, what is known about masks
void plan_main_loop(Planning& p);  // main_loop.cpp
void plan_slabs(Planning& p);  // slabs.cpp
void plan_tiles(Planning& p);  // tiles.cpp
void plan_prefetches(Planning& p);  // prefetches.cpp

bool may_walk_in_slabs(const Planning& p);  // slabs.cpp
bool steps_one_by_one(const Planning& p, const LoopInst& inst);  // unroll.cpp: along the lanes, or stays in place
TilePlan plan_tile(const Kernel& kernel, const TargetInfo& target);  // tiles.cpp
int64_t tile_line(const Kernel& kernel, const TargetInfo& target);

ProductPlan plan_product(const Kernel& kernel, const TargetInfo& target);  // product.cpp

// After all nests are planned: which of them, and which scratch, hold their lanes split (lane_order.cpp).
void plan_lane_order(const Kernel& kernel, KernelPlan& plan);

}  // namespace framejit::inductor
