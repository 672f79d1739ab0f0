// graph/passes/passes.h — one function per row of passes.def; each file says what it needs and what it produces.
#pragma once

#include "graph/graph.h"

namespace framejit::graph {

#define GRAPH_PASS(name, backends, doc) Result<Graph> name(Graph graph);
#include "graph/passes/passes.def"
#undef GRAPH_PASS

// As functionalize, for a graph that runs under autograd: a written view is computed from its base, as in eager's
// history. (functionalize takes the value that was written.)
Result<Graph> functionalize_histories(Graph recorded);

// As dce, for a backward: its inputs are the saved values, then the tangents. A node that depends on no tangent has
// already run in the forward, so it cannot raise.
Result<Graph> dce_of_backward(Graph backward, size_t first_tangent);

}  // namespace framejit::graph
