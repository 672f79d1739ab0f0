// runtime/aten/short_attention.h — the op "framejit::short_attention": attention over few keys, as one kernel of an
// NVIDIA GPU (short_attention.hip).
//
// framejit::short_attention(query, key, value, mask, causal, scale) is softmax(query @ key^T * scale + mask) @ value
// over [batch, heads, length, 64] of half precision. The result is stored as [batch, length, heads, 64]. A row that a
// mask excludes entirely gives zeros. If the kernel cannot run (other sizes, odd addresses, no compiler), torch's own
// attention does.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace framejit::runtime {

at::Tensor short_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& mask, bool causal, double scale);

enum class ShortMask : uint8_t { kNone, kAdded, kCausal };
// The source of the kernel, for tests.
std::string short_attention_source(int64_t keys, bool is_bf16, ShortMask mask);

}  // namespace framejit::runtime
