// inductor/gpu/hip_emitter.h — a kernel as HIP source that hiprtc and NVRTC both take.
//
// In: kernel IR.  Out: text without headers, which goes after the prelude, and how to launch it. It is an Error if a
// kernel runs over several points in order: that has no GPU form.
#pragma once

#include <string>
#include <string_view>

#include "inductor/kernel/kernel_ir.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

struct HipProgram {
  std::string text;         // one function, "kernel": buffers, sizes, extent
  SymExpr extent = 1;       // its last argument
  int64_t per_block = 1;    // ceil(extent / per_block) blocks
  int64_t threads = 0;      // of a block
  int64_t together = 1;     // adjacent blocks that meet; a divisor of their number
  bool waits = false;       // the text says when it waits for the kernel before it
  int64_t residents = 0;    // blocks that should be resident on a multiprocessor at a time; 0: no request
};

Result<HipProgram> emit_hip(const Kernel& kernel, const TargetInfo& target);
std::string_view hip_prelude();

}  // namespace framejit::inductor
