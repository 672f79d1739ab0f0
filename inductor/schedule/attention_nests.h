// inductor/schedule/attention_nests.h — the four nests that attention of one query is lowered to
// (inductor/lowering/one_query.h), recognized by their structure. Each has the same outer dimensions, a point of which
// is a head, and after them:
//   scores  [keys] x [size]   sum of left * right, and whatever follows, for each key
//   most    [] x [keys]       the largest score
//   total   [] x [keys]       the sum of exp(score - most)
//   result  [size] x [keys]   the sum of exp(score - most) * value, and whatever follows
#pragma once

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

inline constexpr size_t kAttentionNests = 4;

struct ScoresNest {
  InstId left = kNoInst, right = kNoInst;  // right is a load that depends on the key; left does not
  InstId sum = kNoInst, store = kNoInst;
};
struct ResultNest {
  InstId sum = kNoInst, value = kNoInst;  // value is a load
  LoopBufferId scores = 0, most = 0;
};

std::optional<ScoresNest> as_scores(const Nest& nest, const NestSymbols& symbols);
// The buffer that it stores the largest of `scores` to.
std::optional<LoopBufferId> as_most(const Nest& nest, LoopBufferId scores);
std::optional<LoopBufferId> as_total(const Nest& nest, LoopBufferId scores, LoopBufferId most);
std::optional<ResultNest> as_result(const Nest& nest, const NestSymbols& symbols);

// Per item: the number of the attention that it is a part of, from 1 on, or 0. Each has its scores nest first.
std::vector<uint32_t> find_attention(const LoopProgram& program);

// `nests`, each with the dimensions of the heads first, so that they can run before an attention: those of it that are
// in `attention`, perhaps after other such nests, and its result. Nothing if a buffer that they pass on is accessed at
// another head's elements.
std::optional<std::vector<Nest>> heads_first(const std::vector<Nest>& nests, const std::vector<Nest>& attention,
                                             const Nest& result, size_t heads, uint32_t symbol_count);

}  // namespace framejit::inductor
