// What the verifier of schedules finds, on schedules that were right before one thing was broken.
#include <gtest/gtest.h>

#include <functional>

#include "inductor/schedule/schedule.h"
#include "tests/parsers/loop_parser.h"

namespace framejit::inductor {
namespace {

constexpr int64_t kHints[] = {4};

// Two kernels: t = exp(x), then y = t * t together with a sum of x.
constexpr const char* kLoops = R"(loops @f symbols 1 {
  input x: f32[s0, 8]
  temp t: f32[s0, 8]
  output y: f32[s0, 8]
  output z: f32[s0]
  nest n0 (i0: s0, i1: 8) {
    %0 = load x[i0, i1] : f32
    %1 = exp %0 : f32
    store t[i0, i1], %1
  }
  nest n1 (i0: s0, i1: 8) {
    %0 = load t[i0, i1] : f32
    %1 = mul %0, %0 : f32
    store y[i0, i1], %1
  }
  nest n2 (i0: s0 | r0: 8) {
    %0 = load x[i0, r0] : f32
    %1 = reduce_sum %0 : f32
    store z[i0], %1
  }
}
)";

Schedule right() {
  auto program = parse_loops(kLoops);
  EXPECT_TRUE(program.ok()) << program.error().message;
  Schedule schedule = make_plain_schedule(program.take());
  auto& first = std::get<Group>(schedule.steps[1]);
  first.nests.push_back(std::get<Group>(schedule.steps[2]).nests[0]);
  first.outer = 1;
  schedule.steps.pop_back();
  return schedule;
}

struct BrokenSchedule {
  const char* error;
  std::function<void(Schedule&)> spoil;
};

Group& group(Schedule& schedule, size_t step) { return std::get<Group>(schedule.steps[step]); }

TEST(ScheduleVerify, WhatIsRightPasses) {
  const auto valid = verify(right(), kHints);
  EXPECT_TRUE(valid.ok()) << valid.error().message;
}

TEST(ScheduleVerify, FindsWhatIsBroken) {
  const BrokenSchedule table[] = {
      {"step 0: t is read before it is made", [](Schedule& s) { std::swap(s.steps[0], s.steps[1]); }},
      {"step 0: t is read before it is made", [](Schedule& s) { group(s, 0).nests[0].body[0].buffer = 1; }},
      {"step 2: two nests are named n0", [](Schedule& s) { s.steps.push_back(s.steps[0]); }},
      {"step 1: nest n2 does not share the outer dimensions", [](Schedule& s) { group(s, 1).outer = 2; }},
      {"step 1: a product together with other nests", [](Schedule& s) { group(s, 1).is_product = true; }},
      {"step 0: a kernel without nests", [](Schedule& s) { group(s, 0).nests.clear(); }},
      {"output z is never made", [](Schedule& s) { group(s, 1).nests.pop_back(); }},
      {"the commit point is not a step", [](Schedule& s) { s.commit = 3; }},
      {"a new value is not a buffer", [](Schedule& s) { s.new_values.push_back({0, 9, 0}); }},
      {"nest n0, %1: ", [](Schedule& s) { group(s, 0).nests[0].body[1].operands[0] = 2; }},
      {"index 1 of \"%0 = load x[i0, i1 + 1] : f32\" is 8, and the buffer has 8 there",
       [](Schedule& s) {
         SymExpr& index = group(s, 0).nests[0].body[0].index[1];
         index = index + SymExpr(1);
       }},
      {"index 0 of \"store z[-s0 + i0], %1\" is -4, and the buffer has 4 there",
       [](Schedule& s) {
         SymExpr& index = group(s, 1).nests[1].body[2].index[0];
         index = index - SymExpr::symbol(0);
       }},
      {"step 0: no such buffer", [](Schedule& s) { s.steps[0] = ExternCall{0, "sort", {7}, {1}}; }},
  };
  for (const BrokenSchedule& row : table) {
    Schedule schedule = right();
    row.spoil(schedule);
    const auto valid = verify(schedule, kHints);
    ASSERT_FALSE(valid.ok()) << row.error;
    EXPECT_NE(valid.error().message.find(row.error), std::string::npos)
        << row.error << " was reported as " << valid.error().message;
  }
}

}  // namespace
}  // namespace framejit::inductor
