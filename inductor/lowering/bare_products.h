// inductor/lowering/bare_products.h — addmm as mm and an addition, where the library would copy first.
//
// PyTorch's addmm first copies the addend over the whole result, and then lets the product add to it. Here the addition
// is part of the kernel after the product, if there is one; otherwise it is a pass that costs no more than that copy.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// The product of an op with added, left, right and two factors; "" for every other op.
std::string_view without_addition(std::string_view op);

// In and out: a functional graph. Products with factors stay, and so do those in half precision, which round only once.
graph::Graph bare_products(const graph::Graph& functional, const TargetInfo& target);

}  // namespace framejit::inductor
