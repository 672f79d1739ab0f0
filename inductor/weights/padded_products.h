// inductor/weights/padded_products.h — products whose rows are not whole words get columns of zeros.
//
// In half precision, the library's fast products write rows of whole words of 16 bytes. Otherwise a vocabulary of 50257
// takes ten times as long. To add columns to the weights, and to copy the result without these columns, costs less.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// For products on the kernels' device, if the target says so. weights: per input, as in find_weight_values().
graph::Graph pad_products(graph::Graph functional, const std::vector<bool>& weights, const TargetInfo& target);

}  // namespace framejit::inductor
