// inductor/lowering/wide_products.h — products of bfloat16 on CPUs whose libraries have no instructions for them.
//
// There the library widens each operand inside the product, many times over: that takes three to five times as long as
// its product of float32. Here mm, addmm, bmm and convolution widen each operand once, compute in float32, and round
// once at the end, as eager does. Products of two bfloat16 numbers are exact in float32, so only the order of the sums
// differs. Widening and rounding become part of the kernels around the product.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Whether they are computed in float32: as FRAMEJIT_BF16_PRODUCTS says, or if it pays on the target.
bool wants_wide_products(const TargetInfo& target);

bool is_widened_product(std::string_view op);

// In and out: a functional graph. Products too small to pay for a pass over their operands stay unchanged.
graph::Graph widen_products(const graph::Graph& functional, const TargetInfo& target);

}  // namespace framejit::inductor
