// inductor/lowering/joined_casts.h — casts of inputs that library calls read become one call.
//
// Under autocast each call casts each weight of linear layers and convolutions, with one small kernel each. A single
// kernel moves the same bytes in far less time.
#pragma once

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Changes the graph only if the target says so. A cast that a kernel reads stays: it is part of that kernel. Casts that
// are concatenated, such as the weights of joined products, are written directly to their place in the result. Those
// that are put into channels_last, such as the weights of convolutions, are one call of their own.
graph::Graph join_casts(graph::Graph functional, const TargetInfo& target);

}  // namespace framejit::inductor
