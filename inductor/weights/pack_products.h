// inductor/weights/pack_products.h — products and convolutions with weights that the library has packed.
//
// In each call, the library rearranges a weight for the product that uses it. If the weight stays the same, that is
// done once: the packed weight is a separate value (hoist.h makes it a derived one), and the product takes it.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// mm and addmm of linear layers in bfloat16. Before bare_products: the library adds the bias within the product.
Result<graph::Graph> pack_linear(const graph::Graph& functional, const std::vector<bool>& weights,
                                 const TargetInfo& target);

// mm in float32 with a known number of rows, for which MKL packs. After bare_products: MKL copies a bias first.
Result<graph::Graph> pack_float32(const graph::Graph& functional, const std::vector<bool>& weights,
                                  const TargetInfo& target);

// Convolutions in channels_last, each with the addition that follows. Activations stay kernels: the library's lose NaN.
Result<graph::Graph> pack_convolutions(const graph::Graph& functional, const std::vector<bool>& weights,
                                       const TargetInfo& target);

}  // namespace framejit::inductor
