// inductor/schedule/fusion.h — rewrites loop programs so that less goes through memory. No pass changes what the
// program computes.
#pragma once

#include "inductor/loop/nest_builder.h"
#include "inductor/schedule/kept_nests.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Largest values of sizes, which decide profitability; symbolic sizes count as their hints.
struct SizeHints {
  std::vector<int64_t> symbols;
  int64_t numel(const SymSizes& sizes) const;
};

// Pointwise producers are computed where they are read.
LoopProgram inline_producers(LoopProgram program, const SizeHints& hints, const Costs& costs,
                             KeptNestPairs* notes = nullptr);
// Nests over the same points become one nest: producer and consumer, or siblings that read the same data.
LoopProgram merge_nests(LoopProgram program, const Costs& costs, KeptNestPairs* notes = nullptr);
// Long reductions with few results, or over columns, become partial results of a fixed number of parts, and a short
// reduction of those. This gives all threads work, in an order that does not depend on their number.
LoopProgram split_reductions(LoopProgram program, const SizeHints& hints, const Costs& costs);
// Removes stores that nobody reads, what only fed these stores, and empty nests. Bounds checks stay.
LoopProgram prune(LoopProgram program);

struct ItemAccess {
  std::vector<LoopBufferId> reads, writes;  // sorted
};
ItemAccess access_of(const std::variant<Nest, ExternCall>& item);

}  // namespace framejit::inductor
