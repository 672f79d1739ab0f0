// runtime/aten/gelu_of_aten.h — results of PyTorch's own kernels: the reader that runtime/eager_gelu.h asks for.
#pragma once

#include "runtime/dtype.h"

namespace framejit::runtime {

double gelu_of_aten(DType dtype, double x);

}  // namespace framejit::runtime
