// frame_hook/aten/shared_memory.h — whether tensors that a graph writes have memory in common with others.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace framejit::frame_hook {

// Whether two tensors have memory in common, or might after a resize: one storage, or storages over the same bytes.
bool may_share_memory(const at::Tensor& a, const at::Tensor& b);
// Whether one of the first `written` tensors may share memory with any other.
bool may_share_written(std::span<const at::Tensor* const> tensors, size_t written);

}  // namespace framejit::frame_hook
