// Kernels that begin elsewhere in their buffers are the same kernel.
#include <gtest/gtest.h>

#include "inductor/kernel/base_offsets.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

struct Placed {
  std::string text;
  std::vector<int64_t> offsets;
};

Placed placed(const std::string& graph) {
  Kernel kernel = kernels_of(graph).at(0);
  std::vector<int64_t> offsets = take_base_offsets(kernel);
  return {print(kernel), offsets};
}

Placed rows(int first) {
  return placed("graph @f(%x : f32[40, 30]) {\n  %0 = slice.Tensor %x, 0, " + std::to_string(first) + ", " +
                std::to_string(first + 5) + ", 1 : f32[5, 30]\n  %1 = sin %0 : f32[5, 30]\n  return %1\n}");
}

TEST(BaseOffsets, SlicesOfOneTensor) {
  const Placed first = rows(0), later = rows(7);
  EXPECT_EQ(first.text, later.text);
  EXPECT_EQ(first.offsets, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(later.offsets, (std::vector<int64_t>{210, 0}));
}

TEST(BaseOffsets, DistancesStay) {
  const auto neighbours = [](int first, int second) {
    const std::string a = std::to_string(first), b = std::to_string(second);
    return placed("graph @f(%x : f32[100]) {\n  %0 = slice.Tensor %x, 0, " + a + ", " + std::to_string(first + 20) +
                  ", 1 : f32[20]\n  %1 = slice.Tensor %x, 0, " + b + ", " + std::to_string(second + 20) +
                  ", 1 : f32[20]\n  %2 = mul.Tensor %0, %1 : f32[20]\n  return %2\n}");
  };
  EXPECT_EQ(neighbours(3, 8).text, neighbours(40, 45).text);
  EXPECT_NE(neighbours(3, 8).text, neighbours(3, 9).text);
  EXPECT_EQ(neighbours(8, 3).offsets[0], 3);
}

// Masked reads may begin before the buffer.
TEST(BaseOffsets, NothingBeginsBeforeItsBuffer) {
  const Placed padded = placed(
      "graph @f(%x : f32[100]) {\n  %0 = constant_pad_nd %x, [3, 2], 0 : f32[105]\n  %1 = sin %0 : f32[105]\n  return "
      "%1\n}");
  EXPECT_NE(padded.text.find("load b0[i0 - 3] if"), std::string::npos) << padded.text;
  EXPECT_EQ(padded.offsets, (std::vector<int64_t>{0, 0}));
}

}  // namespace
}  // namespace framejit::inductor::testing
