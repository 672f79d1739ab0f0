// inductor/loop/bounds_verify.h — whether a nest reads and writes only inside its buffers.
//
// Kernels do not test their indices: a wrong one reads or writes other memory, in silence.
#pragma once

#include <span>

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

// Every index of a load or store must lie within its buffer's dimension at the corners of the nest, where each
// dimension is 0 or its last value. Checked values count as dimensions with the extent of their check.
// Not tested: other indices from data, and masked loads. `hints`: see verify() of a nest.
Result<void> verify_bounds(const LoopProgram& program, const Nest& nest, std::span<const int64_t> hints);

}  // namespace framejit::inductor
