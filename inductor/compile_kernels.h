// inductor/compile_kernels.h — the kernels of one plan, compiled on two threads where that wins.
#pragma once

#include "inductor/kernel/target.h"

namespace framejit::inductor {

// Fills compiled[k] for every kernel that has nests. Kernels of equal text are compiled once. With two or more
// different ones, and a target that allows it, a second thread takes its share; it touches neither Python nor torch.
// The error is that of the first kernel that has one. Channel timing: one line for each kernel that was compiled.
Result<void> compile_kernels(const std::vector<Kernel>& kernels, KernelTarget& target, const std::string& graph,
                             std::vector<CompiledKernel>& compiled);

}  // namespace framejit::inductor
