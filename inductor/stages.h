// inductor/stages.h — the backend's part of the table from a recorded graph to an executable: rows of stages.def.
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

// What one compile works on.
struct Compilation {
  graph::Graph graph;
  const Choices& choices;
  KernelTarget& target;
  bool is_fused = true;
  bool may_write_inputs = true;  // before the plan's end
  std::vector<bool> weights = {};  // per input: it stays from call to call; empty: nothing is derived
  std::vector<Recipe> recipes = {};  // of derived values: the last inputs of the graph, since `hoist_weights`
  bool is_over = false;          // nothing would be derived: the rest of the rows is not run
  std::function<Result<runtime::Executable>(const graph::Graph&)> compile_recipe = {};
  SizeHints hints = {};          // since `lower`
  LoweredGraph lowered = {};     // its program moves on to the schedule
  Schedule schedule = {};
  runtime::Executable executable = {};
  std::string dumped = {};       // the schedule as it was last dumped: rows that leave it alone are silent
};

const std::vector<graph::Stage<Compilation>>& stages();

}  // namespace framejit::inductor
