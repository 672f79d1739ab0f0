// inductor/cpu/plan/sum_blocks.h — how long sums of floats are cut, so that errors do not grow with their length.
//
// A chain of n additions loses about sqrt(n) roundings of the total, n at worst. So a reduced loop of many steps
// becomes blocks of a few steps, each with its own accumulators that start at zero. The results of kFanOut blocks are
// added to a middle total, and the middle totals to the last one, which also keeps what each addition rounds away.
// Blocks are counted from the loop's start: their places depend only on the extents, never on threads.
#pragma once

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

struct SumBlocks {
  // Loops around the loop itself: 0 (one chain), 1 (blocks, added plainly), 2 (middle totals, added with compensation).
  int depth = 0;
  int64_t steps = 0;  // of the innermost block
};

constexpr int64_t kFanOut = 16;

// One per dimension of `n.order`; all zero for a nest without sums of floats. `lane_step`: elements per step over the
// vector dimension.
std::vector<SumBlocks> plan_sum_blocks(const KernelNest& n, int64_t lane_step);

}  // namespace framejit::inductor
