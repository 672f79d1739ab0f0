// inductor/schedule/memory_order.h — the order of steps with the lowest peak of memory.
#pragma once

#include "inductor/schedule/schedule.h"

namespace framejit::inductor {

// Steps that conflict stay in order, and so do library calls. The order changes only if that lowers peak_bytes().
void order_by_memory(Schedule& schedule, const SizeHints& hints);

// The most bytes of temporaries alive during one step, if none share memory; symbolic sizes count as their hints.
int64_t peak_bytes(const Schedule& schedule, const SizeHints& hints);
// The same for another order of the steps, if some temporaries lie in memory that exists anyway.
int64_t peak_bytes(const Schedule& schedule, const SizeHints& hints, const std::vector<size_t>& order,
                   const std::vector<LoopBufferId>& elsewhere);

}  // namespace framejit::inductor
