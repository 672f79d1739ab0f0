// inductor/schedule/arena_blocks.h — the arena as one block for the whole call, or as two that come and go.
//
// Tensors stand beside the arena: what leaves the plan, results of library calls, and what those calls allocate while
// they run. At a step where they are large (a model's logits, the reordered weight of a convolution) little of the
// arena is in use, and one block would be held in full. Such a step is made heavy, the worst first, and of all these
// divisions the one with the lowest peak is taken: what lives at a heavy step goes to a block that is held from its
// first to its last use, all else to a block that no heavy step finds taken. Block 0, held throughout, is empty then.
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
  std::vector<Place> places;             // same order as the requests
  std::vector<graph::SymExpr> bytes;     // per block
  std::vector<BlockSpan> spans;  // of the blocks behind block 0, which is held for the whole call; by first step
};

// `beside`: per step, the bytes that are held beside the arena; none where that is not known. Symbolic sizes cannot be
// compared: one block.
// `saving`: bytes that a second block has to save.
ArenaBlocks plan_blocks(const std::vector<ArenaRequest>& requests, const std::vector<int64_t>& beside, int64_t saving);

}  // namespace framejit::inductor
