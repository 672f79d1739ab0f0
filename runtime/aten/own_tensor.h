// runtime/aten/own_tensor.h — a tensor over the memory of another one that is not a view of it and has no history.
#pragma once

#include <ATen/core/Tensor.h>

namespace framejit::runtime {

// A tensor of its own, made in or outside of inference mode: no view, a version counter and a history of its own.
at::Tensor own_tensor(const at::Tensor& tensor, bool inference);

}  // namespace framejit::runtime
