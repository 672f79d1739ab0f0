// runtime/aten/result_memory.h — memory of tensors that plans make: saved values, gradients, outputs.
//
// The system takes longer to hand out a new page than a kernel to fill it. So large results lie in blocks of the pool
// of runtime/arena.h. The pool gets a block back when the last tensor over it dies, wherever that happens.
#pragma once

#include <ATen/core/Tensor.h>

namespace framejit::runtime {

// Not initialised, on the CPU. If there is no memory, the error is torch's own.
at::Tensor new_result(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
// Torch's memory profilers see memory of the pool as they see torch's own allocations. bytes: negative if given back.
void report_to_profilers(void* data, int64_t bytes) noexcept;

}  // namespace framejit::runtime
