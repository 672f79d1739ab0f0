// inductor/joined_kernels.h — kernels that do not need each other run together, as one parallel region.
//
// An optimizer's step has a kernel for each parameter. Most parameters are small, and a region for each of them costs
// more than its work.
#pragma once

#include <vector>

#include "runtime/call_plan.h"

namespace framejit::inductor {

struct KernelTraits {
  bool may_fail = false;         // it checks data
  std::vector<bool> is_written;  // per buffer of its step
};

// For targets whose steps end in order. `traits`: of the plan's kernel steps, in order. Allocations between kernels
// that are joined move before the first.
void join_kernels(runtime::CallPlan& plan, const std::vector<KernelTraits>& traits);

}  // namespace framejit::inductor
