// inductor/cpu/emitter.h — a kernel as one LLVM function: loops rotated, lanes explicit, accumulators in registers.
#pragma once

#include <string>

#include "inductor/kernel/kernel_ir.h"
#include "inductor/target/target_info.h"

namespace llvm {
class Module;
}

namespace framejit::inductor {

struct EmitOptions {
  explicit EmitOptions(const TargetInfo& t) : target(t) {}

  TargetInfo target;  // every dtype uses as many lanes of a register as float32
  bool keep_frame_pointer = false;  // debuggers and profilers find the caller by it

  bool has_avx512() const { return target.registers.width_bits == 512; }
};

// Adds function `name` of the kernel ABI to the module. Invalid kernel IR is an InternalError.
void emit_kernel(llvm::Module& module, const Kernel& kernel, const std::string& name, const EmitOptions& options);

}  // namespace framejit::inductor
