// inductor/schedule/regions.h — reads what several nests write region by region (cat, stack, pad, an overwritten
// slice), without its buffer.
#pragma once

#include "inductor/loop/nest_builder.h"

namespace framejit::inductor {

struct Region {
  const Nest* nest = nullptr;
  InstId store = 0;
  // Per dimension of the buffer: the nest's dimension that steps through it; SIZE_MAX: fixed.
  std::vector<size_t> dims;
  std::vector<SymExpr> begin;  // per dimension of the buffer: where the region begins
};

// In the order of the writes. Nothing if a writer does anything other than store each of its points once, at its place
// in a region without steps.
std::optional<std::vector<Region>> find_regions(const LoopProgram& program, LoopBufferId buffer,
                                                const std::vector<size_t>& writers);

// The value that `load` would read: that of the last region that contains the position. Bodies are computed with zeros
// outside their regions.
InstId read_regions(NestBuilder& b, const LoopProgram& program, const std::vector<Region>& regions,
                    const LoopInst& load);

}  // namespace framejit::inductor
