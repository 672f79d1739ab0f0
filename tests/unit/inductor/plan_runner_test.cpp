// What the comparison in the tests' host finds: small wrong numbers among small ones, lost infinities, integers off by
// one.
#include "tests/unit/inductor/guarded_memory.h"
#include "tests/unit/inductor/plan_runner.h"

#include <gtest/gtest.h>

#include <limits>

namespace framejit::inductor::testing {
namespace {

Outputs one(DType dtype, std::vector<double> values) { return {{std::move(values)}, {}, {dtype}}; }

bool differ(DType dtype, std::vector<double> got, std::vector<double> expected, double tolerance = 2e-6) {
  return !difference(one(dtype, std::move(got)), one(dtype, std::move(expected)), tolerance).empty();
}

TEST(Difference, OfSmallNumbersIsSeen) {
  EXPECT_TRUE(differ(DType::kFloat32, {1.01e-4, 1e-4}, {1e-4, 1e-4})) << "one per cent of a ten-thousandth";
  EXPECT_TRUE(differ(DType::kFloat32, {1 + 1e-5}, {1}));
  EXPECT_TRUE(differ(DType::kFloat32, {0}, {1e-30}));
  EXPECT_TRUE(differ(DType::kFloat32, {1e-5, 1}, {0, 1})) << "more than cancellation beside 1 leaves";
}

TEST(Difference, OfRoundingIsAllowed) {
  EXPECT_FALSE(differ(DType::kFloat32, {1 + 0x1p-22}, {1}));
  EXPECT_FALSE(differ(DType::kFloat32, {2e-7, 1}, {0, 1}));
  EXPECT_FALSE(differ(DType::kBFloat16, {1 + 0x1p-7}, {1}));
  EXPECT_TRUE(differ(DType::kBFloat16, {1 + 0x1p-5}, {1}));
}

TEST(Difference, OfWhatIsExactIsSeen) {
  EXPECT_TRUE(differ(DType::kInt64, {1000001}, {1000000}));
  EXPECT_TRUE(differ(DType::kFloat32, {1 + 0x1p-23}, {1}, 0));
  EXPECT_FALSE(differ(DType::kFloat32, {1}, {1}, 0));
}

TEST(Difference, OfSpecialValuesIsSeen) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(differ(DType::kFloat32, {inf, -inf, nan}, {inf, -inf, nan}));
  for (const auto& [got, expected] : {std::pair{1.0, inf}, {inf, 1.0}, {inf, -inf}, {nan, 1.0}, {1.0, nan}, {nan, inf}})
    EXPECT_TRUE(differ(DType::kFloat32, {got}, {expected})) << got << " for " << expected;
}

TEST(Difference, OfShapesIsSeen) {
  EXPECT_TRUE(differ(DType::kFloat32, {1}, {1, 1}));
  EXPECT_FALSE(difference({}, one(DType::kFloat32, {1}), 1).empty());
}

// --- guarded_memory.h ---

constexpr const char* kDied = "outside of its buffers";

TEST(GuardedMemoryDeathTest, EndsWhatReachesBeyond) {
  for (const int64_t bytes : {int64_t{4}, int64_t{12}, int64_t{4096}, int64_t{5000}}) {
    const auto block = guarded_block(bytes, 1);
    block[0] = block[bytes - 1] = 1;
    EXPECT_DEATH(block[bytes] = 1, kDied) << bytes;
    const auto copy = guarded_copy(block.get(), bytes);
    EXPECT_EQ(copy[bytes - 1], 1);
    EXPECT_DEATH(copy[bytes - 1] = 2, kDied) << bytes;
  }
  const auto padded = guarded_block(70, 64);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(padded.get()) % 64, 0u);
  padded[127] = 1;
  EXPECT_DEATH(padded[128] = 1, kDied);
}

// A kernel that believes its buffers have more elements than they do; small ones know their sizes.
TEST(GuardedMemoryDeathTest, EndsAKernelThatReachesBeyond) {
  const std::string text = "graph @f(%x : f32[100000]) {\n  %0 = exp %x : f32[100000]\n  return %0\n}\n";
  check_graph(text);
  const auto longer = [](runtime::Executable& executable) {
    for (runtime::Step& step : executable.forward.steps)
      if (auto* kernel = std::get_if<runtime::KernelStep>(&step)) kernel->extent = {100032, -1};
  };
  EXPECT_DEATH(check_graph(text, {.plan = longer}), kDied);
}

}  // namespace
}  // namespace framejit::inductor::testing
