// runtime/aten/attention.h — the op "framejit::attention": written-out attention, computed by torch's fused CPU kernel.
//
// framejit::attention(query, key, value, mask, replaces, scale) is softmax(query @ key^T * scale + mask) @ value over
// [batch, heads, length, size] of float32. `replaces`: where the mask is not zero, it replaces the score. The result
// has the memory layout of the query.
//
// The fused kernel differs from the original ops for non-finite values: a row of scores that are all -inf gives zero,
// not NaN; a score of NaN or +inf affects the result although it is replaced; values are summed before they are
// divided. Each of these can be seen in the kernel's results (a value that is not finite, a logarithm of a sum that is
// zero). Then the original ops run instead. Rows that a mask excludes entirely are common; they are set to NaN without
// running those ops.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace framejit::runtime {

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, bool replaces, double scale);

}  // namespace framejit::runtime
