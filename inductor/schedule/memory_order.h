// inductor/schedule/memory_order.h — the order of steps that needs least memory at a time.
#pragma once

#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// Steps that conflict stay in order, and so do library calls. The order changes only where that lowers peak_bytes().
void order_by_memory(Schedule& schedule, const SizeHints& hints);

// The most bytes of temporaries that are alive during one step, if none shares memory; symbolic sizes count as their
// hints.
int64_t peak_bytes(const Schedule& schedule, const SizeHints& hints);
// The same in another order of its steps, where some temporaries lie in memory that is there anyway.
int64_t peak_bytes(const Schedule& schedule, const SizeHints& hints, const std::vector<size_t>& order,
                   const std::vector<LoopBufferId>& elsewhere);

}  // namespace framejit::inductor
