// inductor/cpu/plan/bf16_values.h — which float32 values of a kernel become bfloat16 with less work than arbitrary
// ones.
#pragma once

#include "inductor/kernel/kernel_ir.h"

namespace framejit::inductor {

enum class Bf16Rounding : uint8_t {
  kAny,  // to the nearest even, with NaN handled separately: the bits of some NaN, rounded as a number, would become an
         // infinity or a zero
  kShortNan,  // NaN has only bits that bfloat16 keeps, so rounding it as a number leaves NaN
  kExact,  // bfloat16 can represent the value; NaN has a bit among those that it keeps
};

// Per nest, per instruction. A NaN comes from a buffer, or the CPU makes it with one bit set. Arithmetic passes it on
// unchanged.
using Bf16Values = std::vector<std::vector<Bf16Rounding>>;
Bf16Values bf16_values(const Kernel& kernel);

}  // namespace framejit::inductor
