// inductor/stages.h — the backend's part of the table from a recorded graph to an executable: rows of stages.def.
#pragma once

#include <string>
#include <vector>

#include "graph/stage.h"
#include "inductor/choices.h"
#include "inductor/kernel/target.h"
#include "inductor/lowering/lower.h"
#include "inductor/schedule/schedule.h"
#include "runtime/executable.h"

namespace framejit::inductor {

// What one compile works on.
struct Compilation {
  graph::Graph graph;
  const Choices& choices;
  KernelTarget& target;
  bool is_fused = true;
  bool may_write_inputs = true;  // before the plan's end
  SizeHints hints = {};          // since `lower`
  LoweredGraph lowered = {};     // its program moves on to the schedule
  Schedule schedule = {};
  runtime::Executable executable = {};
  std::string dumped = {};       // the schedule as it was last dumped: rows that leave it alone are silent
};

const std::vector<graph::Stage<Compilation>>& stages();

}  // namespace framejit::inductor
