// runtime/team.h — threads that share one range: parts are handed out, and nobody waits for a thread that took none.
//
// The caller takes parts like the others, and returns when all are done. A worker that wakes late, because another
// process has its core, finds nothing left, and nobody waits for it. Workers are started when first needed. They spin
// for more work for a moment, then sleep. A forked child begins without any.
#pragma once

#include <cstdint>

namespace framejit::runtime {

class Team {
 public:
  using Body = void (*)(void* state, int64_t begin, int64_t end);  // must not throw

  static Team& shared();

  // Calls body(state, part_begin, part_end) for disjoint parts of [begin, end), of at least `grain`, on at most
  // `threads` threads, including the caller. Inside a body, and if there are fewer than two grains, the caller does all
  // of it.
  void run(int threads, int64_t begin, int64_t end, int64_t grain, Body body, void* state);
  int workers() const;  // started so far; for tests
};

}  // namespace framejit::runtime
