// inductor/assemble.h — a schedule and its machine code become an executable.
//
// Buffers live where homes.h says, or in the memory of what they are written over (kernel/in_place.h).
#pragma once

#include "graph/backend.h"
#include "inductor/kernel/target.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

Result<runtime::Executable> assemble(const graph::Graph& graph, const std::vector<ValueForm>& forms,
                                     const Schedule& schedule, const SizeHints& hints, KernelTarget& target,
                                     KernelTuning tuning = {});

}  // namespace framejit::inductor
