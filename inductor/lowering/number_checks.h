// inductor/lowering/number_checks.h — checks numbers against the dtype of the result, as eager does.
#pragma once

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

// Adds a nest for each number of the current node that differs between calls and may not fit. If it does not fit, the
// nest fails the call, before anything is committed. False for a constant that does not fit: the op is left to eager,
// which raises.
bool add_number_checks(LowerContext& ctx);

}  // namespace framejit::inductor
