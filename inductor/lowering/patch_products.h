// inductor/lowering/patch_products.h — convolutions whose windows lie side by side become products.
//
// The first layer of a vision transformer cuts an image into patches; other layers halve both sides of an image. A copy
// that puts each patch into a row, and a product, cost a fraction of the library's convolution.
#pragma once

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// For half precision on the kernels' device, if the target says so.
graph::Graph patch_products(graph::Graph functional, const TargetInfo& target);

}  // namespace framejit::inductor
