// Loads across the lanes: kernels in tiles, for every vector level, against the interpreter.
#include <gtest/gtest.h>

#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

std::string add_transposed(const std::string& dtype, int rows, int columns) {
  const std::string shape = "[" + std::to_string(rows) + ", " + std::to_string(columns), steps = "; 1, " + std::to_string(rows);
  return "graph @f(%x : " + dtype + shape + steps + "], %y : " + dtype + shape + "]) {\n  %0 = add.Tensor %y, %x, 1 : " + dtype + shape +
         "]\n  return %0\n}";
}

TEST(Tiles, EveryElementSizeAndEveryEdge) {
  for (const char* dtype : {"f32", "bf16", "f16", "f64", "i64", "i32", "i16", "u8"})
    for (const auto& [rows, columns] : {std::pair{64, 48}, {127, 70}, {17, 200}, {8, 8}, {9, 33}})
      check_graph(add_transposed(dtype, rows, columns), {.tolerance = dtype[0] == 'b' ? 1e-2 : 1e-3, .kernels = 1});
}

TEST(Tiles, AreChosenForStridedLoads) {
  EXPECT_TRUE(kernels_of(add_transposed("f32", 64, 48), 0).at(0).in_tiles);
  EXPECT_FALSE(kernels_of(add_transposed("f32", 64, 4), 0).at(0).in_tiles);
  EXPECT_FALSE(kernels_of("graph @f(%x : f32[64, 48], %y : f32[64, 48]) {\n  %0 = add.Tensor %x, %y, 1 : f32[64, 48]\n  return %0\n}", 0).at(0).in_tiles);
}

TEST(Tiles, BoolsAndSeveralStridedOperandsInOneBody) {
  check_graph(R"(graph @f(%m : bool[2, 37, 50; 1850, 1, 37], %x : f32[2, 37, 50; 1850, 1, 37], %y : f32[2, 37, 50], %z : bf16[37, 50; 1, 37]) {
    %0 = where.self %m, %x, %y : f32[2, 37, 50]
    %1 = add.Tensor %0, %z, 1 : f32[2, 37, 50]
    %2 = exp %1 : f32[2, 37, 50]
    return %2
  })", {.kernels = 1});
}

}  // namespace
}  // namespace framejit::inductor::testing
