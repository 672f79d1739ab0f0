// Offsets of random buffers: buffers that live at the same time do not overlap, and the block is no larger than it must
// be in the worst case.
#include "inductor/schedule/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace framejit::inductor {
namespace {

constexpr int64_t kAlign = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Case {
  std::vector<ArenaRequest> requests;
  std::vector<int64_t> symbols;
};

Case random_case(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Case made;
  for (size_t s = 0; s < 3; ++s) made.symbols.push_back(static_cast<int64_t>(below(500)) + 1);
  const size_t steps = below(40) + 1, count = below(60);
  for (size_t r = 0; r < count; ++r) {
    const size_t first = below(steps), last = first + below(steps - first);
    graph::SymExpr bytes = static_cast<int64_t>(below(3) == 0 ? below(4) * 4096 : below(10000));
    if (below(4) == 0) bytes = graph::SymExpr::symbol(static_cast<graph::SymbolId>(below(3))) * graph::SymExpr(4);
    made.requests.push_back({bytes, first, last});
  }
  return made;
}

TEST(MemoryPlan, RandomBuffers) {
  std::mt19937_64 random(20261122);
  for (int round = 0; round < 500; ++round) {
    const Case made = random_case(random);
    const ArenaPlan plan = plan_arena(made.requests);
    ASSERT_EQ(plan.offsets.size(), made.requests.size());
    const int64_t total = plan.total.eval(made.symbols);
    int64_t sum = 0;
    for (size_t a = 0; a < made.requests.size(); ++a) {
      const ArenaRequest& one = made.requests[a];
      const int64_t begin = plan.offsets[a].eval(made.symbols), end = begin + one.bytes.eval(made.symbols);
      EXPECT_EQ(begin % kAlign, 0);
      EXPECT_GE(begin, 0);
      EXPECT_LE(end, total);
      sum += aligned(end - begin);
      for (size_t b = 0; b < a; ++b) {
        const ArenaRequest& other = made.requests[b];
        if (one.first_step > other.last_step || other.first_step > one.last_step) continue;
        const int64_t other_begin = plan.offsets[b].eval(made.symbols),
                      other_end = other_begin + other.bytes.eval(made.symbols);
        EXPECT_TRUE(end <= other_begin || other_end <= begin) << "round " << round << ": " << a << " and " << b;
      }
    }
    EXPECT_LE(total, sum);
  }
}

TEST(MemoryPlan, WhatFollowsTakesTheSamePlace) {
  const ArenaPlan plan = plan_arena({{100, 0, 1}, {100, 2, 3}, {100, 4, 9}});
  EXPECT_EQ(plan.total, graph::SymExpr(128));
}

}  // namespace
}  // namespace framejit::inductor
