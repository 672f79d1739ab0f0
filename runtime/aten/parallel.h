// runtime/aten/parallel.h — parts of a range on several threads, for kernels that never throw. How many:
// torch.get_num_threads().
//
// A large range goes to OpenMP's threads, which torch's own ops use too. A smaller one goes to threads of our own
// (runtime/team.h), whose caller waits for nobody that took no part; right after a library call, when OpenMP's threads
// keep the cores for some milliseconds, it stays with the caller.
#pragma once

#include <cstdint>

namespace framejit::runtime {

// Calls body(state, part_begin, part_end) for disjoint parts of [begin, end), of at least `grain`. Serial inside a
// parallel region, with one thread, and with less than two grains.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* state);

// The calling thread is about to enter a library, which may use all cores.
void enter_library();

}  // namespace framejit::runtime
