// runtime/aten/cast_last.h — dense tensors of float32 as half precision in channels_last, many in one launch
// (cast_last.hip).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace framejit::runtime {

// Fills each result with the tensor of the same number. A tensor is contiguous and its result in channels_last, of the
// same sizes. Torch copies those that the kernel does not take: large windows, other dtypes.
void cast_last(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& results);

// The source of the kernel, for tests.
std::string cast_last_source(bool is_bf16);

}  // namespace framejit::runtime
