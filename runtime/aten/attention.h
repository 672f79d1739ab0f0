// runtime/aten/attention.h — the op "framejit::attention": attention that was written out, computed by torch's fused
// CPU kernel.
//
// framejit::attention(query, key, value, mask, replaces, scale) is softmax(query @ key^T * scale + mask) @ value over
// [batch, heads, length, size] of float32. `replaces`: where the mask is not zero, it stands in place of the score. The
// result lies in memory as the query does.
//
// The fused kernel differs from the ops that were written in what is not finite: a row of scores that are all -inf is
// zero, not NaN; a score of NaN or +inf shows although it is replaced; values add up before they are divided. Each of
// these shows in its results (one that is not finite, a logarithm of a sum that is zero), and then the ops that were
// written run instead. Rows that a mask excludes altogether are common, and are made NaN without them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace framejit::runtime {

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, bool replaces, double scale);

}  // namespace framejit::runtime
