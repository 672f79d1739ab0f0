// graph/passes/pipeline.h — the graph passes in order: recorded ATen graph in, functional canonical graph out.
//
// A pass is a function Result<Graph>(const Graph&) and a row of passes.def; its place there is its place in the pipeline. Between
// passes the graph is verified when FRAMEJIT_STRICT is set, timed, and dumped when asked.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace framejit::graph {

using PassFn = Result<Graph> (*)(Graph);
struct PassRow {
  const char* name;
  PassFn run;
};
const std::vector<PassRow>& passes();           // functionalize, decompose, canonicalize (views, no-ops, CSE, folding), dce
Result<Graph> run_pipeline(Graph recorded, bool decompose);  // decompose=false: for op-by-op replay

}  // namespace framejit::graph
