// graph/number_range.h — which numbers fit a dtype where eager checks them (c10's checked conversion of a Scalar).
#pragma once

#include <optional>

#include "graph/graph.h"

namespace framejit::graph {

struct NumberRange {
  double low, high;
  bool nonfinite;  // infinities and NaN fit as well
};

double largest(DType float_dtype);  // finite value
// What of dtype `from` fits into `target`; nothing when all of it does.
std::optional<NumberRange> fitting_range(DType from, DType target);
// A constant that fits into `target`; what is no constant number: false.
bool is_fitting_constant(const Arg& number, DType target);

}  // namespace framejit::graph
