// inductor/lowering/number_checks.h — numbers are checked against the result's dtype, as eager checks them.
#pragma once

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

// Adds a nest for each number of the current node that differs between calls and may not fit: it fails the call, before
// anything is committed, when it does not. False for a constant that does not: the op is left to eager, which raises.
bool add_number_checks(LowerContext& ctx);

}  // namespace framejit::inductor
