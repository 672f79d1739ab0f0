// runtime/aten/parallel.h — parts of a range on several threads, for kernels that never throw. How many:
// torch.get_num_threads().
//
// A large range goes to OpenMP's threads, which torch's own ops use too; a smaller one runs on the caller's thread.
// Without OpenMP, and in a forked child, where it does not work, the threads are our own (runtime/team.h), and the
// caller never waits for an idle one.
#pragma once

#include <cstdint>

namespace framejit::runtime {

// Calls body(state, part_begin, part_end) for disjoint parts of [begin, end), of at least `grain`. Runs serially inside
// a parallel region, with one thread, and with few grains.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* state);

}  // namespace framejit::runtime
