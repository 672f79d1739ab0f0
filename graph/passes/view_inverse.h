// graph/passes/view_inverse.h — how a write through a view reaches the tensor that it is a view of.
#pragma once

#include "graph/graph_builder.h"

namespace framejit::graph {

// `view` made result number `result` from a tensor whose current value is `base`; `written` is the new content of that
// result. Returns the new content of the base, or an error if the view has no inverse.
Result<ValueId> inverse_of_view(GraphBuilder& out, const Node& view, size_t result, ValueId base, ValueId written);

// alias, detach, lift_fresh: the view is the tensor.
bool is_identity_view(const OpDef& op);

}  // namespace framejit::graph
