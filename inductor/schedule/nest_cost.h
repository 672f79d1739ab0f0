// inductor/schedule/nest_cost.h — what the body of a nest costs, as far as fusion asks.
#pragma once

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

constexpr size_t kMaxBody = 96;  // instructions of a nest that fusion makes

struct NestCost {
  size_t instructions = 0, loads = 0;
  bool heavy = false;  // not to be computed twice
};
NestCost cost_of(const Nest& nest);
// Whether the body may be computed on zeros in place of what it would have loaded: it checks nothing and divides no integers.
bool takes_zeros(const Nest& nest);

}  // namespace framejit::inductor
