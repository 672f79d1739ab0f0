// inductor/lowering/formula.h — turns a pointwise formula, written as text, into instructions.
#pragma once

#include <functional>
#include <string_view>

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

// Grammar: comparisons over sums over products over -x, numbers (of dtype `compute`; also inf), argument names, scalar
// ops and parentheses. `argument` gives the value of a name. A formula that does not parse is a bug of ours:
// InternalError.
InstId emit_formula(NestBuilder& builder, std::string_view formula, DType compute,
                    const std::function<InstId(std::string_view)>& argument);
// add, sub and mul as in torch: for bools, add is "or" and mul is "and".
InstId emit_scalar(NestBuilder& builder, ScalarOp op, std::initializer_list<InstId> operands);

}  // namespace framejit::inductor
