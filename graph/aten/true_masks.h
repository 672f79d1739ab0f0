// graph/aten/true_masks.h — masks that are true everywhere, for any sizes and on any device.
#pragma once

#include <ATen/core/Tensor.h>

namespace framejit::graph {

// Whether it is proven that every element of a traced mask is true.
bool is_true_everywhere(const at::Tensor& mask);

}  // namespace framejit::graph
