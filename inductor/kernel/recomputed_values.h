// inductor/kernel/recomputed_values.h — values that nests hand each other in memory are computed where they are read.
#pragma once

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

// The kernel without the private buffers whose values cost at most `most_work` (rows of op_costs.def); nothing if it
// has none. A value is a function of what the kernel loads and of what it has per outer point, at the same point.
std::optional<Kernel> with_recomputed_values(const Kernel& kernel, int64_t most_work);

}  // namespace framejit::inductor
