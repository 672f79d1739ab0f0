// inductor/cpu/plan/sum_blocks.cpp — goes from the innermost reduced loop outwards, until a loop adds with
// compensation.
#include "inductor/cpu/plan/sum_blocks.h"

#include <algorithm>

namespace framejit::inductor {
namespace {

constexpr int64_t kShortChain = 32;

bool has_float_sum(const Nest& nest) {
  return std::any_of(nest.body.begin(), nest.body.end(), [](const LoopInst& i) {
    return i.op == LoopOp::kReduce && i.reduce == ReduceOp::kSum && is_float(i.dtype);
  });
}

}  // namespace

std::vector<SumBlocks> plan_sum_blocks(const KernelNest& n, int64_t lane_step) {
  std::vector<SumBlocks> blocks(n.order.size());
  if (!has_float_sum(n.nest)) return blocks;
  int64_t chain = 1;  // additions to one accumulator during one step of the current loop
  for (size_t level = n.order.size(); level-- > 0 && n.order[level] >= n.nest.ranges.size();) {
    auto steps = n.nest.extent(n.order[level]).as_constant();
    if (steps && n.order[level] == n.vector_dim) steps = (*steps + lane_step - 1) / lane_step;
    if (steps && *steps * chain <= kShortChain) {
      chain *= std::max<int64_t>(*steps, 1);
      continue;
    }
    SumBlocks& b = blocks[level];
    b.steps = std::max<int64_t>(kFanOut / chain, 1);
    b.depth = steps && *steps <= b.steps * kShortChain ? 1 : 2;
    if (b.depth == 2) break;
    chain = (*steps + b.steps - 1) / b.steps;
  }
  return blocks;
}

}  // namespace framejit::inductor
