// inductor/schedule/schedule.h — which nests run together as one kernel, and in what order everything runs.
//
// A group is a list of nests that share their first `outer` dimensions: for every outer point all nests of the group
// run one after the other, so that the data that they pass on stays in cache. Outer points are independent of each
// other and run in parallel.
#pragma once

#include "inductor/schedule/fusion.h"

namespace framejit::inductor {

struct Group {
  std::vector<Nest> nests;
  size_t outer = 0;
  bool is_product = false;    // one nest, of a matrix product: see products.h
  bool is_attention = false;  // the last four nests are attention of one query: see attention_nests.h
};

// A temporary that becomes an input's new value, with the layout of the input.
struct NewValue {
  size_t update = 0;  // of the graph
  LoopBufferId value = 0, input = 0;
};

struct Schedule {
  LoopProgram program;                               // buffers; its items are empty
  std::vector<std::variant<Group, ExternCall>> steps;
  KeptNestPairs refused;                              // pairs that ended in different steps, if asked for
  size_t commit = SIZE_MAX;                          // from this step on nothing fails: commit_order.h
  std::vector<NewValue> new_values;                  // made from that step on
};

// What the nests of a group, or a call, touch.
ItemAccess access_of_step(const std::variant<Group, ExternCall>& step);

// Runs all fusion passes on a lowered program, then forms groups.
Schedule make_schedule(LoopProgram program, const SizeHints& hints, const TargetInfo& target,
                       bool with_kept_nests = false);
// Every nest is its own group, nothing is fused: for tests, and to compare fusion with.
Schedule make_plain_schedule(LoopProgram program);

// Temporaries that only one step touches: they need not outlive it.
std::vector<bool> private_buffers(const Schedule& schedule);

// The invariants of every schedule (schedule_verify.cpp): nests verify and share the outer dimensions of their group,
// and no value is read before it is made. `hints`: see verify() of a loop program.
Result<void> verify(const Schedule& schedule, std::span<const int64_t> hints);
std::string print(const Schedule& schedule);
// One line per refused pair: "n3, n7: two_passes: the second needs ...".
std::string print_refused(const Schedule& schedule);

}  // namespace framejit::inductor
