// inductor/lowering/bare_products.h — addmm as mm and an addition, where the library's copies first.
//
// PyTorch's addmm first copies what is added over the whole result and then lets the product add to it. Here the
// addition is part of the kernel behind the product where there is one, and else a pass that costs no more than that
// copy.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// The product in an op of added, left, right and two factors; "" for every other op.
std::string_view without_addition(std::string_view op);

// In and out: a functional graph. Products that scale stay, and those of half precision, which are rounded once.
graph::Graph bare_products(const graph::Graph& functional, const TargetInfo& target);

}  // namespace framejit::inductor
