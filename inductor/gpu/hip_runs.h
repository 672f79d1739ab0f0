// inductor/gpu/hip_runs.h — elements that lie side by side along one dimension, taken together: words of 16 bytes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "inductor/gpu/hip_text.h"

namespace framejit::inductor {

// An access without a mask, at an index free of data, that steps by one along the dimension.
bool is_side_by_side(const LoopInst& inst, const NestSymbols& symbols, size_t dim);

// How many elements a thread takes together, so that the smallest of those that lie side by side fill 16 bytes; a
// divisor of the dimension's extent if that is a number and `is_divided`. 1: none lie so.
int64_t run_width(const Kernel& kernel, const std::vector<const Nest*>& nests, size_t dim, bool is_divided);

// When words may be read and written as such; else elements are, one by one. Runs begin at multiples of the width.
class WideAccess {
 public:
  explicit WideAccess(int64_t width) : width_(width) {}
  // Notes an access and says whether it may ever be wide.
  bool add(const NestText& t, const NestSymbols& symbols, const Nest& nest, const LoopInst& inst, size_t dim);
  // "const bool wide = ...;"; "" where runs are single elements.
  std::string declaration() const;

 private:
  int64_t width_;
  std::set<LoopBufferId> buffers_;
  std::set<std::string> conditions_;
};

}  // namespace framejit::inductor
