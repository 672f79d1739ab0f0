// inductor/lowering/few_rows.h — matrix products of a few rows, computed as ordinary sums.
//
// The time of a product with few rows is the time to read its weights. As a nest, it reads each weight once. What
// comes before and after it is fused as with any reduction: a norm's scale, a bias, an activation, a residual, the
// product of two such products. It is a nest if the target's emitters have a form for it.
#pragma once

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

// mm and addmm of a few rows of x [m, k] and the transpose of a weight [n, k] whose rows are whole words of 16 bytes.
bool is_few_row_product(const graph::Graph& graph, const graph::Node& node, const TargetInfo& target);
bool lower_few_row_product(LowerContext& ctx);

}  // namespace framejit::inductor
