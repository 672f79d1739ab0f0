// inductor/compile_kernels.h — the kernels of one plan, compiled on several threads if that is faster.
#pragma once

#include "inductor/kernel/target.h"

namespace framejit::inductor {

// Fills compiled[k] for every kernel that has nests. Kernels of equal text are compiled once. If there are two or more
// different ones, and the target allows it, more threads help; they touch neither Python nor torch. The error is that
// of the first kernel that fails. Channel timing: one line for each compiled kernel.
Result<void> compile_kernels(const std::vector<Kernel>& kernels, KernelTarget& target,
                             std::vector<CompiledKernel>& compiled);

}  // namespace framejit::inductor
