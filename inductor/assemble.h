// inductor/assemble.h — a schedule and its machine code become an executable.
//
// Buffers live where buffer_placement.h says, or in memory that another one no longer needs (buffer_reuse.h).
#pragma once

#include "graph/backend.h"
#include "inductor/kernel/target.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

// The last `derived` inputs of the graph are derived values. spent: per input, whether the plan may write over it after
// its last use; empty: none.
Result<runtime::Executable> assemble(const graph::Graph& graph, const std::vector<ValueForm>& forms,
                                     const Schedule& schedule, const SizeHints& hints, KernelTarget& target,
                                     KernelTuning tuning = {}, size_t derived = 0, const std::vector<bool>& spent = {});

}  // namespace framejit::inductor
