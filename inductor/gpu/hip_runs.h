// inductor/gpu/hip_runs.h — runs: elements that are adjacent along one dimension, accessed together as a word of up to
// 16 bytes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "inductor/gpu/hip_text.h"

namespace framejit::inductor {

// Whether an access has no mask, and its index does not depend on data and steps by one along the dimension.
bool is_side_by_side(const LoopInst& inst, const NestSymbols& symbols, size_t dim);

// How many adjacent elements a thread takes: 16 bytes of the smallest dtype that is accessed contiguously, at most 8
// elements. 1 if no access is contiguous. If `is_divided`, this number divides a constant extent of the dimension.
int64_t run_width(const Kernel& kernel, const std::vector<const Nest*>& nests, size_t dim, bool is_divided);

inline constexpr int64_t kWordBytes = 16;   // what a thread loads at once
inline constexpr int64_t kWholeWaves = 64;  // threads: whole waves on every GPU

// "Run<float, 4> ": the type of a run in a buffer of the dtype.
std::string run_type_text(DType dtype, int64_t width);

// The condition under which runs are accessed as words. Otherwise their elements are accessed one by one. Runs begin at
// multiples of the width.
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
