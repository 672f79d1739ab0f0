// graph/stage.h — one row of the tables that lead from a recorded graph to an executable, and the function that runs a
// row.
//
// Graph passes (passes/passes.def) are rows over a graph; a backend's own rows (inductor/stages.def) are over what it
// makes from the graph. Nothing else changes a graph, a loop program, a schedule or a plan. Each row is timed on the
// log channel `timing`, its result is dumped on the channel of its kind, and it is verified if FRAMEJIT_STRICT is set.
// Ctrl-C ends a compile between two rows.
#pragma once

#include <string>

#include "runtime/base/config.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"

namespace framejit::graph {

template <class State> struct Stage {
  const char* name;
  Result<void> (*run)(State&);
  Result<void> (*verify)(const State&);
  void (*dump)(State&, const char* stage);
};

// If the result of a row does not verify, the row has a defect.
template <class State>
Result<void> run_stage(const Stage<State>& row, State& state) {
  FJ_TRY_VOID(stop_if_interrupted());
  {
    const log::Stopwatch watch("", row.name);
    FJ_TRY_VOID(row.run(state));
  }
  if (config().strict) {
    const Result<void> valid = row.verify(state);
    FJ_ASSERT(valid.ok(), std::string(row.name) + ": " + valid.error().message);
  }
  row.dump(state, row.name);
  return {};
}

}  // namespace framejit::graph
