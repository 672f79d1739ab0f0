// runtime/team.h — threads that share one range: parts are handed out, and nobody waits for a thread that took none.
//
// The caller takes parts as the others do, and returns when all are done. A worker that wakes late, because another
// process has its core, finds nothing left and is not missed. Workers are made when first wanted. They look out for
// more work for a moment, then sleep. A forked child begins without any.
#pragma once

#include <cstdint>

namespace framejit::runtime {

class Team {
 public:
  using Body = void (*)(void* state, int64_t begin, int64_t end);  // throws nothing

  static Team& shared();

  // Calls body(state, part_begin, part_end) for disjoint parts of [begin, end), of at least `grain`, on at most
  // `threads` threads, the caller among them. Inside of a body, and where less than two grains are left, the caller
  // does it all.
  void run(int threads, int64_t begin, int64_t end, int64_t grain, Body body, void* state);
  int workers() const;  // made so far
};

}  // namespace framejit::runtime
