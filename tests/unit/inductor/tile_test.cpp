// Loads across the lanes (kernels in tiles) and lanes across outer points, for every vector level, compared with the
// interpreter.
#include <gtest/gtest.h>

#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

std::string add_transposed(const std::string& dtype, int rows, int columns) {
  const std::string shape = "[" + std::to_string(rows) + ", " + std::to_string(columns),
                    steps = "; 1, " + std::to_string(rows);
  return "graph @f(%x : " + dtype + shape + steps + "], %y : " + dtype + shape +
         "]) {\n  %0 = add.Tensor %y, %x, 1 : " + dtype + shape + "]\n  return %0\n}";
}

TEST(Tiles, EveryElementSizeAndEveryEdge) {
  for (const char* dtype : {"f32", "bf16", "f16", "f64", "i64", "i32", "i16", "u8"})
    for (const auto& [rows, columns] : {std::pair{64, 48}, {127, 70}, {17, 200}, {8, 8}, {9, 33}})
      check_graph(add_transposed(dtype, rows, columns), {.tolerance = dtype[0] == 'b' ? 1e-2 : 1e-3, .kernels = 1});
}

// Several lines of points in a tile, and prefetches beyond the ends of memory.
TEST(SlowTiles, BeyondCaches) {
  check_graph(add_transposed("f32", 2401, 2411), {.kernels = 1});
}

TEST(Tiles, AreChosenForStridedLoads) {
  EXPECT_TRUE(kernels_of(add_transposed("f32", 64, 48)).at(0).in_tiles);
  EXPECT_FALSE(kernels_of(add_transposed("f32", 64, 4)).at(0).in_tiles);
  EXPECT_FALSE(
      kernels_of(
          "graph @f(%x : f32[64, 48], %y : f32[64, 48]) {\n  %0 = add.Tensor %x, %y, 1 : f32[64, 48]\n  return %0\n}")
          .at(0)
          .in_tiles);
}

TEST(Tiles, BoolsAndSeveralStridedOperandsInOneBody) {
  check_graph(
      R"(graph @f(%m : bool[2, 37, 50; 1850, 1, 37], %x : f32[2, 37, 50; 1850, 1, 37], %y : f32[2, 37, 50], %z : bf16[37, 50; 1, 37]) {
    %0 = where.self %m, %x, %y : f32[2, 37, 50]
    %1 = add.Tensor %0, %z, 1 : f32[2, 37, 50]
    %2 = exp %1 : f32[2, 37, 50]
    return %2
  })",
      {.kernels = 1});
}

const char* const kSoftmaxOverChannels = R"(graph @f(%x : f32[3, 40, 7, 11]) {
    %0 = _softmax %x, 1, false : f32[3, 40, 7, 11]
    return %0
  })";

TEST(OuterLanes, AreChosenWherePointsLieSideBySide) {
  const Kernel columns = kernels_of(kSoftmaxOverChannels).at(0);
  EXPECT_TRUE(columns.lanes_outer);
  EXPECT_EQ(columns.outer.size(), 2u) << "height and width step as one";
  EXPECT_FALSE(kernels_of("graph @f(%x : f32[30, 40]) {\n  %0 = _softmax %x, 1, false : f32[30, 40]\n  return %0\n}")
                   .at(0)
                   .lanes_outer);
}

TEST(OuterLanes, EqualTheInterpreter) {
  check_graph(kSoftmaxOverChannels);
  for (const char* rows : {"2", "19", "300"})
    for (const char* columns : {"5", "16", "131"}) {
      const std::string shape = std::string("f32[") + rows + ", " + columns + "]",
                        kept = std::string("f32[") + columns + "]";
      check_graph(
          "graph @f(%x : " + shape + ") {\n  %0 = var.correction %x, [0], 0, false : " + kept + "\n  return %0\n}",
          {.tolerance = 1e-5});
      check_graph("graph @f(%x : " + shape + ") {\n  %0 = _log_softmax %x, 0, false : " + shape + "\n  return %0\n}",
                  {.tolerance = 1e-5});
    }
}

TEST(OuterLanes, ScratchOfSeveralElementsAndOtherReductions) {
  check_graph(R"(graph @f(%x : bf16[4, 30, 50], %m : bool[50]) {
    %0 = exp %x : bf16[4, 30, 50]
    %1 = where.self %m, %0, %x : bf16[4, 30, 50]
    %2 = amax %1, [1], true : bf16[4, 1, 50]
    %3 = sub.Tensor %1, %2, 1 : bf16[4, 30, 50]
    %4 = sum.dim_IntList %3, [1], true, none : bf16[4, 1, 50]
    %5 = div.Tensor %3, %4 : bf16[4, 30, 50]
    %6 = argmax %x, 1, false : i64[4, 50]
    return %5, %6
  })", {.tolerance = 2e-2});
}

// Functions with their own branch (wide_math.cpp) inside every form of loop, with lanes that take the branch and lanes
// that do not.
TEST(FarLanes, AreFilledInEveryFormOfKernel) {
  const char* const kFar =
      "  %0 = mul.Tensor %x, 100000000000.0 : f32[37, 70]\n  %1 = sin %0 : f32[37, 70]\n  %2 = fmod.Tensor %0, %y : "
      "f32[37, 70]\n"
      "  %3 = cos %2 : f32[37, 70]\n  %4 = add.Tensor %1, %3, 1 : f32[37, 70]\n";
  const char* const kEnds[] = {"  return %4\n}",
                               "  %5 = sum.dim_IntList %4, [1], false, none : f32[37]\n  return %5\n}",
                               "  %5 = sum.dim_IntList %4, [0], false, none : f32[70]\n  return %5\n}",
                               "  %5 = _softmax %4, 1, false : f32[37, 70]\n  return %5\n}",
                               "  %5 = _softmax %4, 0, false : f32[37, 70]\n  return %5\n}",
                               "  %5 = argmax %4, 1, false : i64[37]\n  return %5\n}"};
  const auto check = [&](const char* steps, const char* end) {
    check_graph(std::string("graph @f(%x : f32[37, 70") + steps + "], %y : f32[37, 70]) {\n" + kFar + end,
                {.tolerance = 1e-5});
  };
  for (const char* end : kEnds) check("", end);
  check("; 1, 37", kEnds[0]);
}

}  // namespace
}  // namespace framejit::inductor::testing
