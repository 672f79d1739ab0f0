// inductor/cpu/emitter.h — a kernel as one LLVM function: loops rotated, lanes explicit, accumulators in registers.
#pragma once

#include <string>

#include "inductor/kernel/kernel_ir.h"

namespace llvm {
class Module;
}

namespace framejit::inductor {

struct EmitOptions {
  unsigned lanes = 16;       // float32 lanes of a register; every dtype uses as many
  unsigned width_bits = 512;
  unsigned registers = 32;   // of that width
  bool keep_frame_pointer = false;  // by which debuggers and profilers find the caller

  bool has_avx512() const { return width_bits == 512; }
};

// Adds function `name` of the kernel ABI to the module. What the kernel IR should not contain is an InternalError.
void emit_kernel(llvm::Module& module, const Kernel& kernel, const std::string& name, const EmitOptions& options);

}  // namespace framejit::inductor
