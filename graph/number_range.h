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
// Which numbers of dtype `from` fit into `target`; nullopt if all do.
std::optional<NumberRange> fitting_range(DType from, DType target);
// Whether it is a constant that fits into `target`; false if it is not a constant number.
bool is_fitting_constant(const Arg& number, DType target);

}  // namespace framejit::graph
