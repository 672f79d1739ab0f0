// inductor/kernel/base_offsets.h — where a kernel begins in its buffers, separate from what it computes.
//
// Kernels that differ only in where they begin, such as those of the steps of an unrolled recurrence, become one: equal
// text is equal machine code. Code assumes only that an address is aligned to one element, so any offset is fine.
#pragma once

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

// Removes from the indices of each argument what all of its accesses add to the address. Per argument, in elements.
std::vector<int64_t> take_base_offsets(Kernel& kernel);

}  // namespace framejit::inductor
