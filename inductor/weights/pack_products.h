// inductor/weights/pack_products.h — products and convolutions with weights that the library has packed.
//
// The library lays a weight out anew in each call, for the product that uses it. Where the weight stays, that is done
// once: the packed weight is a value of its own (hoist.h makes it a derived one), and the product takes it.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// mm and addmm of linear layers in bfloat16. Before bare_products: the library adds the bias as it goes.
Result<graph::Graph> pack_linear(const graph::Graph& functional, const std::vector<bool>& weights,
                                 const TargetInfo& target);

// mm in float32 with a known number of rows, which MKL packs for. After bare_products: MKL copies a bias first.
Result<graph::Graph> pack_float32(const graph::Graph& functional, const std::vector<bool>& weights,
                                  const TargetInfo& target);

// Convolutions in channels_last, and the addition that follows one. Activations stay kernels: those of the library
// lose NaN.
Result<graph::Graph> pack_convolutions(const graph::Graph& functional, const std::vector<bool>& weights,
                                       const TargetInfo& target);

}  // namespace framejit::inductor
