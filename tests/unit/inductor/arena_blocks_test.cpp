// Blocks for random buffers, with random tensors outside: a live buffer lies in a block that is held, apart from the
// others; the peak never rises.
#include "inductor/schedule/arena_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/parsers/graph_parser.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

constexpr int64_t kMib = 1 << 20;
constexpr int64_t kSaving = 64 * 1024;

struct Case {
  std::vector<ArenaRequest> requests;
  std::vector<int64_t> beside;
};

Case random_case(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Case made;
  const size_t steps = below(40) + 1, count = below(40);
  for (size_t s = 0; s < steps; ++s)
    made.beside.push_back(static_cast<int64_t>(below(5) == 0 ? below(9 * kMib) : below(kMib)));
  for (size_t r = 0; r < count; ++r) {
    const size_t first = below(steps), last = first + below(std::min<size_t>(steps - first, 6));
    made.requests.push_back({static_cast<int64_t>(below(2 * kMib) + 1), first, last});
  }
  return made;
}

bool is_held(const ArenaBlocks& blocks, uint32_t block, size_t step) {
  return block == 0 || std::any_of(blocks.spans.begin(), blocks.spans.end(), [&](const BlockSpan& s) {
           return s.block == block && s.first_step <= step && step <= s.last_step;
         });
}

int64_t peak(const ArenaBlocks& blocks, const std::vector<int64_t>& beside) {
  int64_t most = 0;
  for (size_t s = 0; s < beside.size(); ++s) {
    int64_t held = beside[s];
    for (uint32_t block = 0; block < blocks.bytes.size(); ++block)
      if (is_held(blocks, block, s)) held += blocks.bytes[block].constant();
    most = std::max(most, held);
  }
  return most;
}

// Each buffer lies in its block, which is held without interruption as long as the buffer lives; buffers that live at
// the same time do not overlap.
void check_places(const Case& made, const ArenaBlocks& blocks) {
  ASSERT_EQ(blocks.places.size(), made.requests.size());
  for (size_t a = 0; a < made.requests.size(); ++a) {
    const ArenaRequest& one = made.requests[a];
    const auto [block, offset] = blocks.places[a];
    ASSERT_LT(block, blocks.bytes.size());
    EXPECT_LE(offset.constant() + one.bytes.constant(), blocks.bytes[block].constant());
    const uint32_t in = block;
    const bool covered = in == 0 || std::any_of(blocks.spans.begin(), blocks.spans.end(), [&](const BlockSpan& s) {
                           return s.block == in && s.first_step <= one.first_step && one.last_step <= s.last_step;
                         });
    EXPECT_TRUE(covered) << "request " << a;
    for (size_t b = 0; b < a; ++b) {
      const ArenaRequest& other = made.requests[b];
      if (blocks.places[b].block != block || one.first_step > other.last_step || other.first_step > one.last_step)
        continue;
      const int64_t at = offset.constant(), other_at = blocks.places[b].offset.constant();
      EXPECT_TRUE(at + one.bytes.constant() <= other_at || other_at + other.bytes.constant() <= at)
          << a << " and " << b;
    }
  }
}

void check_spans(const ArenaBlocks& blocks) {
  for (size_t i = 0; i < blocks.spans.size(); ++i) {
    ASSERT_TRUE(blocks.spans[i].block == 1 || blocks.spans[i].block == 2);
    for (size_t k = 0; k < i; ++k)
      EXPECT_TRUE(blocks.spans[k].block != blocks.spans[i].block ||
                  blocks.spans[k].last_step < blocks.spans[i].first_step)
          << "taken twice";
  }
}

TEST(ArenaBlocks, RandomBuffers) {
  std::mt19937_64 random(20261123);
  size_t split = 0;
  for (int round = 0; round < 500; ++round) {
    const Case made = random_case(random);
    const ArenaBlocks blocks = plan_blocks(made.requests, made.beside, kSaving),
                      one = plan_blocks(made.requests, {}, kSaving);
    check_places(made, blocks);
    check_spans(blocks);
    ASSERT_EQ(one.bytes.size(), 1u);
    if (blocks.bytes.size() == 1) {
      EXPECT_TRUE(blocks.spans.empty());
      continue;
    }
    ++split;
    EXPECT_EQ(blocks.bytes[0], graph::SymExpr(0));
    EXPECT_LE(peak(blocks, made.beside) + 64 * 1024, peak(one, made.beside));
  }
  EXPECT_GT(split, 100u);
}

TEST(ArenaBlocks, AnOutputAfterEverything) {
  const ArenaBlocks blocks = plan_blocks({{8 * kMib, 0, 2}, {kMib, 2, 3}}, {0, 0, 0, 9 * kMib}, kSaving);
  EXPECT_EQ(blocks.places[0].block, 1u);
  EXPECT_EQ(blocks.places[1].block, 2u);
  EXPECT_EQ(peak(blocks, {0, 0, 0, 9 * kMib}), 10 * kMib);
}

TEST(ArenaBlocks, TakenAgainAfterEachHeavyStep) {
  const std::vector<int64_t> beside{0, 9 * kMib, 0, 9 * kMib, 0};
  const ArenaBlocks blocks =
      plan_blocks({{4 * kMib, 0, 0}, {4 * kMib, 2, 2}, {4 * kMib, 4, 4}, {kMib, 0, 4}}, beside, kSaving);
  EXPECT_EQ(peak(blocks, beside), 10 * kMib);
  EXPECT_EQ(std::count_if(blocks.spans.begin(), blocks.spans.end(), [](const BlockSpan& s) { return s.block == 1; }),
            3);
}

TEST(ArenaBlocks, OneWhereTwoSaveNothing) {
  EXPECT_EQ(plan_blocks({{8 * kMib, 0, 1}, {kMib, 1, 2}}, {0, 0, 0}, kSaving).bytes.size(), 1u) << "nothing beside";
  EXPECT_EQ(plan_blocks({{8 * kMib, 0, 3}, {kMib, 2, 3}}, {0, 0, 0, 9 * kMib}, kSaving).bytes.size(), 1u)
      << "all of it in use";
  EXPECT_EQ(plan_blocks({{32 * 1024, 0, 1}, {1024, 1, 2}}, {0, 0, 9 * kMib}, kSaving).bytes.size(), 1u) << "too little";
  EXPECT_EQ(plan_blocks({{graph::SymExpr::symbol(0), 0, 1}, {kMib, 1, 2}}, {0, 0, 9 * kMib}, kSaving).bytes.size(), 1u)
      << "not known";
  EXPECT_TRUE(plan_blocks({}, {1, 2}, kSaving).places.empty());
}

// A product whose result is an output and larger than everything before: in its step, only its operand is left in the
// arena.
const char* const kLogits = R"(graph @f(%x : f32[160, 160], %w : f32[160, 200]) {
    %0 = mm %x, %x : f32[160, 160]
    %1 = mm %0, %x : f32[160, 160]
    %2 = mul.Tensor %0, %1 : f32[160, 160]
    %3 = neg %2 : f32[160, 160]
    %4 = mm %3, %w : f32[160, 200]
    return %4
  })";

std::string steps_of(const std::string& text) {
  const auto graph = graph::parse_graph(text);
  EXPECT_TRUE(graph.ok());
  const auto executable = make_inductor_backend()->compile(graph.value());
  EXPECT_TRUE(executable.ok());
  const std::string all = print(executable.value().forward);
  return all.substr(all.find("  take"));
}

TEST(ArenaBlocks, OfAPlan) {
  EXPECT_EQ(steps_of(kLogits), R"(  take arena 2
  call mm.out(b0, b0, b5)
  take arena 1
  call mm.out(b5, b0, b2)
  kernel k0(b5, b2, b3) runs c0 extent 25600 grain -1 unit 64
  give arena 1
  allocate b4
  call mm.out(b3, b1, b4)
  give arena 2
  return b4
}
)");
  check_graph(kLogits, {.tolerance = 1e-4});
}

}  // namespace
}  // namespace framejit::inductor::testing
