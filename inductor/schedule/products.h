// inductor/schedule/products.h — matrix products that a kernel computes faster than the library.
//
// x [m, k] times the transpose of a weight [n, k], as linear layers hold it: both are read along k as they lie, where
// libraries first copy what they read into panels. That copy is what a kernel saves; it weighs little where there are
// many rows.
#pragma once

#include "graph/graph.h"
#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

enum class ProductRule : uint8_t {
  kWhereTheyPay,  // as the target's costs say
  kWherever,      // every product that has this form
};

// After scheduling, since nothing is fused into a product: library calls become steps of their own.
void take_products(const graph::Graph& graph, const std::vector<ValueForm>& forms, const SizeHints& hints,
                   const TargetInfo& target, ProductRule rule, Schedule& schedule);

}  // namespace framejit::inductor
