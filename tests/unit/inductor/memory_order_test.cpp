// The order of steps: it needs less memory where it differs from the program's, breaks no dependency, and is the same
// each time.
#include "inductor/schedule/memory_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/accesses.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

const SizeHints kNoHints{};

LoopProgram empty_program(size_t buffers) {
  LoopProgram program;
  for (size_t b = 0; b < buffers; ++b)
    program.buffers.push_back({"v" + std::to_string(b),
                               BufferRole::kTemp,
                               DType::kFloat32,
                               {SymExpr(1000)},
                               {SymExpr(1)},
                               UINT32_MAX,
                               false});
  return program;
}

Group kernel(const std::vector<LoopBufferId>& reads, const std::vector<LoopBufferId>& writes) {
  Nest nest = nest_of(reads, writes);
  for (const LoopInst& inst : nest.body) nest.origins.push_back(inst.buffer);
  return {{nest}, 0};
}

// A step is named by what it writes.
std::string order_of(const Schedule& schedule) {
  std::string text;
  for (const auto& step : schedule.steps) {
    const auto* group = std::get_if<Group>(&step);
    text += group != nullptr ? "k" + std::to_string(group->nests[0].body.back().buffer) + " "
                             : "c" + std::to_string(std::get<ExternCall>(step).writes[0]) + " ";
  }
  return text;
}

TEST(MemoryOrder, CopiesOfWeightsStandInFrontOfTheirProducts) {
  Schedule schedule{empty_program(8), {}, {}};
  schedule.program.buffers[0].role = BufferRole::kInput;
  schedule.program.buffers[7].is_output = true;
  for (LoopBufferId b : {1, 2, 3}) schedule.steps.emplace_back(kernel({0}, {b}));
  schedule.steps.emplace_back(call_of(0, {0, 1}, {4}));
  schedule.steps.emplace_back(call_of(1, {4, 2}, {5}));
  schedule.steps.emplace_back(call_of(2, {5, 3}, {7}));
  EXPECT_EQ(peak_bytes(schedule, kNoHints), 5 * 4000 - 4000);
  order_by_memory(schedule, kNoHints);
  EXPECT_EQ(order_of(schedule), "k1 c4 k2 c5 k3 c7 ");
  EXPECT_EQ(peak_bytes(schedule, kNoHints), 3 * 4000);
}

TEST(MemoryOrder, WhatFreesRunsEarly) {
  Schedule schedule{empty_program(7), {}, {}};
  schedule.program.buffers[6].is_output = true;
  schedule.program.buffers[3].sizes = schedule.program.buffers[4].sizes = {SymExpr(1)};
  schedule.steps.emplace_back(call_of(0, {}, {1}));
  schedule.steps.emplace_back(call_of(1, {}, {2}));
  schedule.steps.emplace_back(kernel({1}, {3}));
  schedule.steps.emplace_back(kernel({2}, {4}));
  schedule.steps.emplace_back(kernel({3, 4}, {6}));
  order_by_memory(schedule, kNoHints);
  EXPECT_EQ(order_of(schedule), "c1 k3 c2 k4 k6 ");
}

TEST(MemoryOrder, TheProgramsOwnOrderStandsWhereNoneIsBetter) {
  Schedule schedule{empty_program(5), {}, {}};
  schedule.program.buffers[4].is_output = true;
  schedule.steps.emplace_back(kernel({}, {1}));
  schedule.steps.emplace_back(kernel({}, {2}));
  schedule.steps.emplace_back(kernel({2, 1}, {4}));
  order_by_memory(schedule, kNoHints);
  EXPECT_EQ(order_of(schedule), "k1 k2 k4 ");
}

// A step that writes what another touches stays on its side of it, and calls stay in order.
TEST(MemoryOrder, RandomPrograms) {
  std::mt19937_64 random(7);
  size_t improved = 0;
  for (int round = 0; round < 300; ++round) {
    const size_t count = 2 + random() % 20, buffers = count + 3;
    Schedule schedule{empty_program(buffers), {}, {}};
    for (size_t b = 0; b < buffers; ++b) {
      schedule.program.buffers[b].sizes = {SymExpr(static_cast<int64_t>(1 + random() % 50))};
      schedule.program.buffers[b].is_output = random() % 5 == 0;
      if (b < 3) schedule.program.buffers[b].role = BufferRole::kInput;
    }
    struct Touch {
      std::vector<LoopBufferId> reads, writes;
      bool is_call;
    };
    std::vector<Touch> touched;
    for (size_t s = 0; s < count; ++s) {
      Touch t{{}, {static_cast<LoopBufferId>(random() % 8 == 0 ? 3 + random() % (s + 1) : s + 3)}, random() % 3 == 0};
      for (size_t k = random() % 3; k-- > 0;) t.reads.push_back(static_cast<LoopBufferId>(random() % (s + 3)));
      std::sort(t.reads.begin(), t.reads.end());
      touched.push_back(t);
      if (t.is_call) {
        schedule.steps.emplace_back(call_of(static_cast<uint32_t>(s), t.reads, t.writes));
      } else {
        Group group = kernel(t.reads, t.writes);
        group.outer = s;  // its index
        schedule.steps.emplace_back(std::move(group));
      }
    }
    const int64_t before = peak_bytes(schedule, kNoHints);
    Schedule again = schedule;
    order_by_memory(schedule, kNoHints);
    order_by_memory(again, kNoHints);
    EXPECT_EQ(order_of(schedule), order_of(again));
    improved += peak_bytes(schedule, kNoHints) < before;
    EXPECT_LE(peak_bytes(schedule, kNoHints), before);
    std::map<size_t, size_t> place;
    for (size_t at = 0; at < schedule.steps.size(); ++at) {
      const auto* group = std::get_if<Group>(&schedule.steps[at]);
      place[group != nullptr ? group->outer : std::get<ExternCall>(schedule.steps[at]).node] = at;
    }
    ASSERT_EQ(place.size(), count);
    for (size_t a = 0; a < count; ++a)
      for (size_t b = a + 1; b < count; ++b) {
        if (conflict(touched[a], touched[b]) || (touched[a].is_call && touched[b].is_call)) {
          EXPECT_LT(place[a], place[b]) << "round " << round;
        }
      }
  }
  EXPECT_GT(improved, 20u);
}

// The casts of all weights come first in the program. In the plan, each comes after the previous product, into the same
// slot.
TEST(MemoryOrder, OneSlotForTheCastsOfAllWeights) {
  std::string text = "graph @f(%x : bf16[32, 192]";
  for (int k = 0; k < 6; ++k) text += ", %w" + std::to_string(k) + " : f32[192, 192]";
  text += ") {\n";
  for (int k = 0; k < 6; ++k)
    text += "  %" + std::to_string(k) + " = _to_copy %w" + std::to_string(k) +
            ", @bf16, none, none, none, false, none : bf16[192, 192]\n";
  for (int k = 0; k < 6; ++k)
    text += "  %" + std::to_string(6 + k) + " = mm " + (k == 0 ? "%x" : "%" + std::to_string(5 + k)) + ", %" +
            std::to_string(k) + " : bf16[32, 192]\n";
  const auto graph = graph::parse_graph(text + "  return %11\n}");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  InductorOptions options;
  const auto plan = make_inductor_backend(options)->compile(graph.value());
  ASSERT_TRUE(plan.ok());
  std::vector<int64_t> offsets;
  for (const runtime::Buffer& b : plan.value().forward.buffers)
    if (b.storage == runtime::Storage::kArena && b.sizes.size() == 2 && b.sizes[0].constant == 192)
      offsets.push_back(b.offset.constant);
  ASSERT_GE(offsets.size(), 6u);
  for (int64_t offset : offsets) EXPECT_EQ(offset, offsets[0]);
}

}  // namespace
}  // namespace framejit::inductor::testing
