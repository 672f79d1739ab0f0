// graph/passes/passes.h — one function per row of passes.def; each file says what it needs and what it produces.
#pragma once

#include "graph/graph.h"

namespace framejit::graph {

#define GRAPH_PASS(name, backends, doc) Result<Graph> name(Graph graph);
#include "graph/passes/passes.def"
#undef GRAPH_PASS

// As functionalize, for a graph that runs under autograd: a written view is computed from its base, as eager's history
// has it. (functionalize takes what was written.)
Result<Graph> functionalize_histories(Graph recorded);

// As dce, for a backward: its inputs are what is saved, then the tangents. What depends on no tangent has run in the
// forward, so it raises nothing.
Result<Graph> dce_of_backward(Graph backward, size_t first_tangent);

}  // namespace framejit::graph
