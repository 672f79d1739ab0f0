// inductor/loop/empty_nest.h — nests that are known to have no points.
//
// Passes and emitters move code that does not depend on a loop out of it. So a loop that never runs must not contain
// anything: no load of an empty tensor, which has no memory, and no check of an index that nobody uses.
#pragma once

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

// If nothing is ever executed (a range is empty, or a reduced dimension is and everything happens at reduced points),
// only the stores are left: they say who makes a buffer. If a reduction has no values, what only it needs is removed.
// Other nests stay as they are.
Nest without_empty_loops(Nest nest, uint32_t symbol_count);

}  // namespace framejit::inductor
