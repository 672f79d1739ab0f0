// inductor/schedule/products.h — matrix products that a kernel computes faster than the library.
//
// x [m, k] times the transpose of a weight [n, k], as linear layers store it: both are read along k in their own
// layout, while libraries first copy their operands into panels. A kernel saves that copy, which hardly matters if
// there are many rows.
#pragma once

#include "graph/graph.h"
#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

enum class ProductRule : uint8_t {
  kWhereTheyPay,  // according to the target's costs
  kWherever,      // every product that has this form
};

// After scheduling, because nothing is fused into a product: library calls become separate steps.
void take_products(const graph::Graph& graph, const std::vector<ValueForm>& forms, const SizeHints& hints,
                   const TargetInfo& target, ProductRule rule, Schedule& schedule);

}  // namespace framejit::inductor
