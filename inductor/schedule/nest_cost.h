// inductor/schedule/nest_cost.h — what the body of a nest costs, for fusion.
#pragma once

#include "inductor/loop/loop_program.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

struct NestCost {
  size_t instructions = 0, loads = 0;
  int work = 0;        // per point, as in op_costs.def
  bool heavy = false;  // must not be computed twice
};
NestCost cost_of(const Nest& nest);
// What differs from point to point along the last dimension. The rest is computed once for each row.
NestCost cost_in_row(const Nest& nest, const NestSymbols& symbols);
// Whether both together are more work than a kernel should be. A nest that calls no function may join anything.
bool is_too_much_work(const Costs& costs, int one, int other);
// Whether one nest of both would be too large for fusion.
bool are_too_large(const Costs& costs, const Nest& first, const Nest& second);
// Whether the body may be computed with zeros in place of its loads: it checks nothing and divides no integers.
bool takes_zeros(const Nest& nest);

}  // namespace framejit::inductor
