// runtime/eager_kernels.h — what PyTorch's own kernels answer where that depends on the CPU and on the library they
// use.
//
// Whoever embeds us says how they are asked; without a reader nothing is known of them.
#pragma once

#include <optional>

#include "runtime/dtype.h"

namespace framejit::runtime {

// Its gelu (approximate="none") of an element x of a contiguous CPU tensor of several elements. Float32, bfloat16 and
// float16 only.
using GeluReader = double (*)(DType dtype, double x);
void set_gelu_reader(GeluReader reader);
std::optional<double> eager_gelu(DType dtype, double x);

}  // namespace framejit::runtime
