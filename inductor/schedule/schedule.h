// inductor/schedule/schedule.h — which nests run together as one kernel, and in what order everything runs.
//
// A group is a list of nests that share their first `outer` dimensions: for every outer point all nests of the group
// run one after the other, so that what they hand each other stays in cache. Outer points are independent of each other
// and run in parallel.
#pragma once

#include "inductor/schedule/fusion.h"

namespace framejit::inductor {

struct Group {
  std::vector<Nest> nests;
  size_t outer = 0;
  bool is_product = false;  // one nest, of a matrix product: see products.h
};

// A temporary that an input becomes, laid out as the input.
struct NewValue {
  size_t update = 0;  // of the graph
  LoopBufferId value = 0, input = 0;
};

struct Schedule {
  LoopProgram program;                               // buffers; its items are empty
  std::vector<std::variant<Group, ExternCall>> steps;
  RefusalNotes refused;                              // pairs that ended in different steps, when asked for
  size_t commit = SIZE_MAX;                          // from this step on nothing fails: commit_order.h
  std::vector<NewValue> new_values;                  // made from there on
};

// What the nests of a group, or a call, touch.
ItemAccess access_of_step(const std::variant<Group, ExternCall>& step);

// Runs all fusion passes on a lowered program, then forms groups.
Schedule make_schedule(LoopProgram program, const SizeHints& hints, const TargetInfo& target,
                       bool with_refusals = false);
// Every nest its own group, nothing fused: for tests and as the yardstick of fusion.
Schedule make_plain_schedule(LoopProgram program);

// Temps that one step alone touches: they need not outlive it.
std::vector<bool> private_buffers(const Schedule& schedule);

// What every schedule keeps (schedule_verify.cpp): nests that verify and share the outer dimensions of their group, and
// no value that is read before it is made.
Result<void> verify(const Schedule& schedule);
std::string print(const Schedule& schedule);
// One line per refused pair: "n3, n7: two_passes: the second needs ...".
std::string print_refused(const Schedule& schedule);

}  // namespace framejit::inductor
