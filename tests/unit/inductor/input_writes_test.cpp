// Which schedules write an input too early: something that may fail comes before the write in the program but after it
// in the plan.
#include "inductor/schedule/input_writes.h"

#include <gtest/gtest.h>

#include "tests/parsers/graph_parser.h"
#include "tests/parsers/loop_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

const char* const kHeader =
    "loops @f symbols 0 {\n  input c: f32[64, 8]\n  input n: i64[4]\n  input v: f32[4, 8]\n  temp t: i64[4]\n  output "
    "y: f32[8]\n";
const char* const kWrite =
    "  nest w (i0: 8 | r0: 4) {\n    %0 = load v[r0, i0] : f32\n    %1 = load t[r0] : i64\n    %2 = check %1, 64 : "
    "i64\n    store_last c[$2, i0], %0\n  }\n";
const char* const kGate =
    "  nest g (i0: 4) {\n    %0 = load n[i0] : i64\n    %1 = check %0, 64 : i64\n    store t[i0], %1\n  }\n";
const char* const kLookUp =
    "  nest l (i0: 8) {\n    %0 = load n[0] : i64\n    %1 = check %0, 4 : i64\n    %2 = load v[$1, i0] : f32\n    "
    "store y[i0], %2\n  }\n";

// Whether a schedule writes in order. Each item is a separate step, in order, and computes the node of that number in
// `nodes`. `together`: all nests are in one kernel with this many outer dimensions.
bool is_right(const std::string& items, const std::vector<uint32_t>& nodes, std::optional<size_t> together = {}) {
  auto parsed = parse_loops(kHeader + items + "}\n");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  Schedule schedule;
  size_t next = 0;
  for (auto& item : parsed.value().items) {
    Nest nest = std::get<Nest>(item);
    nest.origins = {nodes[next++]};
    if (together && !schedule.steps.empty()) {
      std::get<Group>(schedule.steps[0]).nests.push_back(std::move(nest));
    } else {
      schedule.steps.emplace_back(Group{{std::move(nest)}, together.value_or(1)});
    }
  }
  schedule.program = std::move(parsed.value());
  schedule.program.items.clear();
  return writes_in_order(schedule, reference_target());
}

TEST(InputWrites, WhatMayFailStandsOnItsSideOfTheWrite) {
  const std::string gate = kGate, write = kWrite, look_up = kLookUp;
  EXPECT_TRUE(is_right(gate + write, {3, 3}));
  EXPECT_TRUE(is_right(gate + write + look_up, {3, 3, 4})) << "eager has written too when this fails";
  EXPECT_TRUE(is_right(look_up + gate + write, {2, 3, 3}));
  EXPECT_FALSE(is_right(gate + write + look_up, {3, 3, 2})) << "eager fails before it writes";
  EXPECT_TRUE(is_right(gate + write, {3, 3}, 0)) << "in order, at one point";
  EXPECT_FALSE(is_right(gate + write, {3, 3}, 1)) << "a point writes before another one is checked";
}

TEST(InputWrites, LibraryCallsStandOnTheirSideToo) {
  auto parsed = parse_loops(std::string(kHeader) + kGate + kWrite + "}\n");
  ASSERT_TRUE(parsed.ok());
  Schedule schedule;
  for (auto& item : parsed.value().items) {
    std::get<Nest>(item).origins = {3};
    schedule.steps.emplace_back(Group{{std::get<Nest>(item)}, 0});
  }
  schedule.program = std::move(parsed.value());
  schedule.steps.emplace_back(ExternCall{5, "mm", {}, {}});
  EXPECT_TRUE(writes_in_order(schedule, reference_target()));
  std::get<ExternCall>(schedule.steps[2]).node = 1;
  EXPECT_FALSE(writes_in_order(schedule, reference_target()));
}

// Which of a graph's updates become writes in place.
std::vector<bool> taken(const std::string& body,
                        const std::string& inputs = "%c : f32[64, 8], %n : i64[4], %v : f32[4, 8]") {
  declare_ops();
  const auto graph = graph::parse_graph("graph @f(" + inputs + ") {\n" + body + "}");
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().message);
  LoweredGraph lowered = lower(graph.value(), reference_target());
  return write_inputs_in_place(graph.value(), reference_target(), lowered);
}

TEST(InputWrites, WhichUpdatesAreInPlace) {
  const std::vector<bool> yes{true}, no{false};
  const std::string copied = "  %0 = index_copy %c, 0, %n, %v : f32[64, 8]\n";
  EXPECT_EQ(taken(copied + "  update %c = %0\n  return %v\n"), yes);
  EXPECT_EQ(taken(copied + "  update %c = %0\n  return %0 as input 0\n"), yes) << "the input itself is returned";
  EXPECT_EQ(taken(copied + "  update %c = %0\n  return %0\n"), no)
      << "the caller must get memory that the input does not share";
  EXPECT_EQ(taken(copied + "  %1 = sum %0, none : f32[]\n  update %c = %0\n  return %1\n"), yes)
      << "the new content may be read";
  EXPECT_EQ(taken(copied + "  %1 = exp %c : f32[64, 8]\n  update %c = %0\n  return %1\n"), no)
      << "the old content is read";
  EXPECT_EQ(taken("  %0 = index_add %c, 0, %n, %v, 1 : f32[64, 8]\n  update %c = %0\n  return %0\n"), no)
      << "what is added depends on the old content";
  EXPECT_EQ(taken("  %0 = mul.Tensor %c, 2 : f32[64, 8]\n  update %c = %0\n  return %0\n"), no) << "no copy";
  EXPECT_EQ(taken(copied + "  return %0\n"), std::vector<bool>{}) << "a copy that leaves";
  const std::string both = "%c : f32[64, 8], %n : i64[4], %v : f32[4, 8], %d : f32[64, 8]";
  EXPECT_EQ(taken(copied + "  update %c = %0\n  update %d = %0\n  return %v\n", both),
            (std::vector<bool>{false, false}))
      << "two inputs get it";
  EXPECT_EQ(taken(copied + "  update %c = %0\n  update %d = %c\n  return %v\n", both),
            (std::vector<bool>{false, false}))
      << "another input gets the old content";
  EXPECT_EQ(taken(copied + "  update %d = %0\n  return %v\n", both), no) << "the copy is of another input";
  EXPECT_EQ(taken(copied + "  update %c = %0\n  return %v\n", "%c : f32[64, 8; 1, 64], %n : i64[4], %v : f32[4, 8]"),
            no)
      << "in other strides";
}

}  // namespace
}  // namespace framejit::inductor::testing
