// inductor/gpu/gpu_target.h — compiles kernel IR for this machine's GPU with hiprtc or NVRTC, and launches it through
// the GPU's driver.
//
// Kernels run on the stream that runtime::gpu_stream() names when they are called. A call does not wait for its kernel.
#pragma once

#include "inductor/kernel/target.h"

namespace framejit::inductor {

// An Error says what is missing: driver, compiler, device.
Result<std::unique_ptr<KernelTarget>> make_gpu_target(int device);

}  // namespace framejit::inductor
