// inductor/lowering/short_attention.h — attention over few keys is one kernel (runtime/aten/short_attention.h).
#pragma once

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Replaces torch's fused attention in half precision with heads of 64 elements, without dropout, if only its first
// result is read: up to short_attention_keys keys and short_attention_blocks blocks of queries (costs.def), if the
// target says so.
graph::Graph short_attention(graph::Graph functional, const TargetInfo& target);

}  // namespace framejit::inductor
