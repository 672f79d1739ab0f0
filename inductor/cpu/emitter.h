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
  explicit EmitOptions(const TargetInfo& t)
      : target(t), lanes(t.registers.lanes), width_bits(t.registers.width_bits), registers(t.registers.count) {}

  TargetInfo target;
  unsigned lanes;       // float32 lanes of a register; every dtype uses as many
  unsigned width_bits;
  unsigned registers;   // of that width
  bool keep_frame_pointer = false;  // by which debuggers and profilers find the caller

  bool has_avx512() const { return width_bits == 512; }
};

// Adds function `name` of the kernel ABI to the module. What the kernel IR should not contain is an InternalError.
void emit_kernel(llvm::Module& module, const Kernel& kernel, const std::string& name, const EmitOptions& options);

}  // namespace framejit::inductor
