// inductor/schedule/nest_cost.h — what the body of a nest costs, as far as fusion asks.
#pragma once

#include "inductor/loop/loop_program.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

struct NestCost {
  size_t instructions = 0, loads = 0;
  int work = 0;        // of one point, as in op_costs.def
  bool heavy = false;  // not to be computed twice
};
NestCost cost_of(const Nest& nest);
// Whether both together are more work than a kernel should be. What calls no function may join whatever there is.
bool is_too_much_work(const Costs& costs, int one, int other);
// Whether one nest of both would be larger than fusion makes them.
bool are_too_large(const Costs& costs, const Nest& first, const Nest& second);
// Whether the body may be computed on zeros in place of what it would have loaded: it checks nothing and divides no
// integers.
bool takes_zeros(const Nest& nest);

}  // namespace framejit::inductor
