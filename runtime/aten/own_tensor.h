// runtime/aten/own_tensor.h — the same memory as another tensor.
#pragma once

#include <ATen/core/Tensor.h>

namespace framejit::runtime {

// A tensor of its own, made in or outside of inference mode: no view, a version counter and a history of its own.
at::Tensor own_tensor(const at::Tensor& tensor, bool inference);

}  // namespace framejit::runtime
