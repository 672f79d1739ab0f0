// frame_hook/trace/machine/nested.h — the depth of recursion in the tracer's own code, for values that hold themselves
// or are very deep.
#pragma once

#include "frame_hook/trace/machine/graph_break.h"

namespace framejit::frame_hook {

struct Nested {  // one level
  explicit Nested(const char* what) {
    if (depth >= 200) graph_break(Reason::recursion_limit, what);
    ++depth;
  }
  ~Nested() { --depth; }
  Nested(const Nested&) = delete;
  static inline int depth = 0;
};

}  // namespace framejit::frame_hook
