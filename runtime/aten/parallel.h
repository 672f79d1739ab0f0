// runtime/aten/parallel.h — parts of a range on torch's own threads, for kernels that never throw.
//
// torch's OpenMP runtime is looked up in the process instead of linked, so that there is never a second one: its file name
// differs between wheels.
#pragma once

#include <cstdint>

namespace framejit::runtime {

// Calls body(state, part_begin, part_end) for disjoint parts of [begin, end) of at least `grain`. Serial inside a parallel
// region, with one thread, and where torch was built without OpenMP. Threads: torch.get_num_threads().
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* state);

}  // namespace framejit::runtime
