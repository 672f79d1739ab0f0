// inductor/lowering/joined_casts.h — casts of inputs that library calls read become one call.
//
// Under autocast each weight of a linear layer or a convolution is cast in each call: a small kernel for each of them,
// where what they move would take one kernel far less.
#pragma once

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Where the target says so. A cast that a kernel reads stays: it is part of that kernel.
graph::Graph join_casts(graph::Graph functional, const TargetInfo& target);

}  // namespace framejit::inductor
