// inductor/lowering/one_query.h — attention of one query to the keys of a cache, computed as ordinary sums.
//
// Its time is the time to read the cache. It becomes four nests: the scores, their maximum, the sum of their powers,
// and the weighted sum of the values. The schedule makes one kernel of them, for which the emitters have a form
// (inductor/schedule/attention_nests.h). What computes the query, and what writes rows of the cache before they are
// read, becomes part of that kernel too.
#pragma once

#include "inductor/lowering/lower.h"

namespace framejit::inductor {

// torch's fused attention with one query for each head, without dropout, if only its first result is read.
bool is_one_query_attention(const graph::Graph& graph, const graph::Node& node, const TargetInfo& target);
bool lower_one_query_attention(LowerContext& ctx);

}  // namespace framejit::inductor
