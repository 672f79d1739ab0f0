// inductor/loop/empty_nest.h — nests that are known to have no points.
//
// Passes and emitters move what does not depend on a loop out of it. So nothing may stand in a loop that never runs: a
// load of an empty tensor, which has no memory, or the check of an index that nobody uses.
#pragma once

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

// Where nothing is ever executed (a range is empty, or a reduced dimension is and all is done at reduced points), only
// the stores are left: they say who makes a buffer. Where a reduction is that of no values, what only it needs is gone.
// Other nests stay as they are.
Nest without_empty_loops(Nest nest, uint32_t symbol_count);

}  // namespace framejit::inductor
