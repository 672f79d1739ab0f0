// inductor/stages.h — the backend's rows in the table from a recorded graph to an executable: stages.def.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/stage.h"
#include "inductor/choices.h"
#include "inductor/kernel/target.h"
#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"
#include "inductor/weights/hoist.h"
#include "runtime/executable.h"

namespace framejit::inductor {

// The state of one compile.
struct Compilation {
  graph::Graph graph;
  const Choices& choices;
  KernelTarget& target;
  bool is_fused = true;
  bool may_write_inputs = true;  // before the plan ends
  std::vector<bool> weights = {};  // per input: it stays the same from call to call; empty: nothing is derived
  std::vector<bool> spent = {};    // per input: the plan may write over it after its last use; empty: none
  std::vector<Derivation> derivations = {};  // of derived values: the last inputs of the graph, since `hoist_weights`
  bool is_over = false;  // deriving values would not pay: the remaining rows do not run
  std::function<Result<runtime::Executable>(const graph::Graph&)> compile_derivation = {};
  SizeHints hints = {};          // since `lower`
  LoweredGraph lowered = {};     // its program moves into the schedule
  Schedule schedule = {};
  runtime::Executable executable = {};
  std::string dumped = {};       // the schedule as last dumped: rows that do not change it print nothing
};

const std::vector<graph::Stage<Compilation>>& stages();

}  // namespace framejit::inductor
