// inductor/cpu/plan/bf16_values.h — which float32 values of a kernel become bfloat16 with less work than any float32.
#pragma once

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

enum class Bf16Rounding : uint8_t {
  kAny,  // to the nearest even, NaN apart: the bits of some, taken for a number, would round up to an infinity or a
         // zero
  kShortNan,  // NaN has only bits that bfloat16 keeps, so that rounding it as a number leaves NaN
  kExact,  // bfloat16 has the value; NaN has a bit among those that it keeps
};

// Per nest, per instruction. NaN comes from buffers or is made by the CPU, whose own has one bit; arithmetic hands it
// on as it is.
using Bf16Values = std::vector<std::vector<Bf16Rounding>>;
Bf16Values bf16_values(const Kernel& kernel);

}  // namespace framejit::inductor
