// runtime/eager_gelu.h — results of PyTorch's own kernels that depend on the CPU and on the library they use.
//
// The program that embeds us says how to run them; without a reader, nothing is known about them.
#pragma once

#include <optional>

#include "runtime/dtype.h"

namespace framejit::runtime {

// PyTorch's gelu (approximate="none") of an element x of a contiguous CPU tensor of several elements. Float32, bfloat16
// and float16 only.
using GeluReader = double (*)(DType dtype, double x);
void set_gelu_reader(GeluReader reader);
std::optional<double> eager_gelu(DType dtype, double x);

}  // namespace framejit::runtime
