// inductor/gpu/gpu_target.h — kernel IR becomes code of this machine's GPU, through hiprtc or NVRTC, and is launched by
// its driver.
//
// Kernels run on the stream that runtime::gpu_stream() names when they are called, and are not waited for.
#pragma once

#include "inductor/kernel/target.h"

namespace framejit::inductor {

// An Error says what is missing: driver, compiler, device.
Result<std::unique_ptr<KernelTarget>> make_gpu_target(int device);

}  // namespace framejit::inductor
