// inductor/cpu/plan/plan_kernel.cpp — runs the parts of planning in order.
#include <algorithm>

#include "inductor/cpu/plan/planning.h"

namespace framejit::inductor {
namespace {

NestPlan plan_nest(const Kernel& kernel, const KernelNest& n, const TargetInfo& target) {
  Planning p(kernel, n, target);
  plan_levels(p);
  plan_borders(p);
  plan_carried(p);
  plan_unroll(p);
  plan_blocks(p);
  plan_lanes(p);
  plan_main_loop(p);
  plan_slabs(p);
  plan_tiles(p);
  plan_prefetches(p);
  return std::move(p.plan);
}

// Points side by side in the main loop of a kernel of outer lanes: as many as the heaviest nest wants, limited by the
// scratch.
unsigned outer_lanes(const Kernel& kernel, const std::vector<NestPlan>& nests, const TargetInfo& target) {
  unsigned unroll = 4;
  for (const NestPlan& plan : nests) unroll = std::min(unroll, plan.lanes.unroll);
  int64_t scratch = 0;
  for (const KernelBuffer& b : kernel.buffers) scratch += b.local_elements * row_of(b.dtype).bytes;
  while (unroll > 1 && scratch * target.registers.lanes * unroll > target.costs.scratch_bytes) unroll /= 2;
  return target.registers.lanes * unroll;
}

}  // namespace

KernelPlan plan_kernel(const Kernel& kernel, const TargetInfo& target) {
  KernelPlan plan;
  if (kernel.is_product) {
    plan.product = plan_product(kernel, target);
    return plan;
  }
  for (const KernelNest& n : kernel.nests) plan.nests.push_back(plan_nest(kernel, n, target));
  const Bf16Values bf16 = bf16_values(kernel);
  for (size_t k = 0; k < plan.nests.size(); ++k)
    for (size_t i = 0; i < bf16[k].size(); ++i) plan.nests[k].insts[i].bf16 = bf16[k][i];
  plan_lane_order(kernel, plan);
  if (kernel.lanes_outer) plan.outer_lanes = outer_lanes(kernel, plan.nests, target);
  plan.tiles = plan_tile(kernel, target);
  return plan;
}

}  // namespace framejit::inductor
