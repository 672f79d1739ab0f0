// inductor/gpu/hip_row_shape.h — how many threads and blocks share a row, and what they keep of it in registers.
#pragma once

#include <span>

#include "inductor/gpu/hip_writer.h"

namespace framejit::inductor {

// An index of a buffer, with an element for each point of a row. Nests that access the same index share the place.
struct RowPlace {
  LoopBufferId buffer = 0;
  SymExpr index = 0;
  bool is_stored = false;
  size_t first_load = SIZE_MAX, last_load = 0, first_store = SIZE_MAX;  // nests
  int64_t words = 0;                                                    // of 4 bytes, in a run
};

struct RowWork {
  int64_t rows = 1, runs = 1, width = 1;  // in the call that the kernel is made for; runs of a row, points of a run
  bool is_known = false;                  // the length of rows is the same in all calls
  size_t nests = 1, first_nest = 0;       // the first one with points
  int64_t arrays = 0;                     // scratch with an element per point
  std::span<const RowPlace> places;
};

struct RowShape {
  int64_t threads = 1, chunks = 1;  // threads of a row in a block, runs of a thread
  int64_t rows = 1, blocks = 1;     // rows of a block, blocks of a row: one of them is 1
  bool in_registers = false;
  size_t first_nest = 0;

  int64_t row_threads() const { return threads * blocks; }
  bool keeps(const RowPlace& p) const {
    if (!in_registers || p.first_load == SIZE_MAX) return false;
    return p.is_stored || p.first_load != p.last_load || p.first_load == first_nest || chunks == 1;
  }
  // Before all nests.
  bool loads_first(const RowPlace& p) const { return keeps(p) && chunks == 1 && !p.is_stored; }
};

RowShape choose_row_shape(const RowWork& work, const TargetInfo& target);

}  // namespace framejit::inductor
