// inductor/schedule/arena_blocks.h — the arena as one block for the whole call, or as two that come and go.
//
// Some tensors lie outside the arena: outputs, results of library calls, and what those calls allocate while they run.
// At a step where they are large (a model's logits, the reordered weight of a convolution), little of the arena is in
// use, but a single block would be held in full. Such steps are made heavy, the worst first, and of all these divisions
// the one with the lowest peak is used. Buffers that live at a heavy step go to a block that is held from its first to
// its last use; all others go to a block that is not held at heavy steps. Block 0, which is held throughout, is then
// empty.
#pragma once

#include "inductor/schedule/memory_plan.h"

namespace framejit::inductor {

// Steps during which a block is held; both inclusive.
struct BlockSpan {
  uint32_t block = 0;
  size_t first_step = 0, last_step = 0;
};

struct ArenaBlocks {
  struct Place {
    uint32_t block = 0;
    graph::SymExpr offset;
  };
  std::vector<Place> places;             // in the order of the requests
  std::vector<graph::SymExpr> bytes;     // per block
  std::vector<BlockSpan> spans;  // of the blocks after block 0, which is held for the whole call; by first step
};

// `beside`: per step, the bytes held outside the arena; empty if not known. Symbolic sizes cannot be compared, so
// they mean one block.
// `saving`: bytes that a second block must save.
ArenaBlocks plan_blocks(const std::vector<ArenaRequest>& requests, const std::vector<int64_t>& beside, int64_t saving);

}  // namespace framejit::inductor
