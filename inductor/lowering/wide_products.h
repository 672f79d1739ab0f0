// inductor/lowering/wide_products.h — products of bfloat16 on CPUs without instructions for them.
//
// Such a CPU widens each operand inside the library's product, many times over: three to five times slower than its product of
// float32. Here mm, addmm, bmm and convolution take operands widened once, compute in float32 and round once at the end, as eager
// does: products of two bfloat16 numbers are exact in float32, so only the order of the sums differs. Widening and rounding are
// then part of the kernels around the product.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace framejit::inductor {

// Whether this process computes them wide: as FRAMEJIT_BF16_PRODUCTS says, or what pays on this CPU.
bool wants_wide_products();

bool is_widened_product(std::string_view op);

// In and out: a functional graph. Products too small to pay for a pass over their operands stay.
graph::Graph widen_products(const graph::Graph& functional);

}  // namespace framejit::inductor
