// inductor/schedule/schedule.h — which nests run together as one kernel, and in what order everything runs.
//
// A group is a list of nests that share their first `outer` dimensions: for every outer point all nests of the group run one after
// the other, so that what they hand each other stays in cache. Outer points are independent of each other and run in parallel.
#pragma once

#include "inductor/schedule/fusion.h"

namespace framejit::inductor {

struct Group {
  std::vector<Nest> nests;
  size_t outer = 0;
};

struct Schedule {
  LoopProgram program;                               // buffers; its items are empty
  std::vector<std::variant<Group, ExternCall>> steps;
};

// Runs all fusion passes on a lowered program, then forms groups.
Schedule make_schedule(LoopProgram program, const SizeHints& hints);
// Every nest its own group, nothing fused: for tests and as the yardstick of fusion.
Schedule make_plain_schedule(LoopProgram program);

std::string print(const Schedule& schedule);

}  // namespace framejit::inductor
