// inductor/kernel/base_offsets.h — where in its buffers a kernel begins, apart from what it computes.
//
// Kernels that differ only in where they begin, as those of the steps of an unrolled recurrence do, become one: equal
// text is equal machine code. Code assumes no more of an address than the alignment of one element, so any offset will
// do.
#pragma once

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

// Takes what all accesses of an argument add to its address out of their indices. Per argument, in elements.
std::vector<int64_t> take_base_offsets(Kernel& kernel);

}  // namespace framejit::inductor
