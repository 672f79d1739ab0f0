// graph/aten/float_ops.h — ATen ops whose numbers are values of the graph.
//
// A Scalar that differs from call to call is a 0-dim tensor in the graph, but no ATen op takes a tensor in its place:
// pow.Tensor_Scalar and pow.Tensor_Tensor treat the exponent differently. So the op gets a twin in the namespace
// framejit, "framejit::pow.Tensor_Scalar", with a Tensor for every Scalar: the twin reads the numbers and calls the op.
// The lowering of an op is that of its twin too (row_name of inductor/lowering/lower.h).
#pragma once

#include "graph/aten/op_info.h"

namespace framejit::graph {

// Made on first use. Null if there is none: for an op without Scalars, one that refuses some numbers, or
// one that writes and has no functional form.
const OpDef* twin_with_values(const OpInfo& info);

}  // namespace framejit::graph
