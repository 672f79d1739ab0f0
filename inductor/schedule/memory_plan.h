// inductor/schedule/memory_plan.h — offsets in one arena block for buffers that live from one step to another.
#pragma once

#include <vector>

#include "graph/sym_expr.h"

namespace framejit::inductor {

struct ArenaRequest {
  graph::SymExpr bytes;
  size_t first_step = 0, last_step = 0;  // both inclusive
};
struct ArenaPlan {
  std::vector<graph::SymExpr> offsets;   // bytes, 64-aligned, in the order of the requests
  graph::SymExpr total;
};
// Requests whose lifetimes intersect do not overlap.
ArenaPlan plan_arena(const std::vector<ArenaRequest>& requests);

}  // namespace framejit::inductor
