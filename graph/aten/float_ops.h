// graph/aten/float_ops.h — ATen ops whose numbers are values of the graph.
//
// A Scalar that differs from call to call is a 0-dim tensor in the graph, but no op of ATen takes one in its place:
// "pow.Tensor_Scalar" means by its exponent what pow.Tensor_Tensor does not. So the op gets a twin in the namespace
// framejit, "framejit::pow.Tensor_Scalar", with a Tensor wherever it takes a Scalar: the twin reads the numbers and
// calls the op. Passes and emitters know no rule for twins, which makes each an extern call.
#pragma once

#include "graph/aten/op_facts.h"

namespace framejit::graph {

// Made when first asked for. Null where there is none: an op without Scalars, or one that writes and has no functional
// form.
const OpDef* twin_with_values(const OpFacts& facts);

}  // namespace framejit::graph
