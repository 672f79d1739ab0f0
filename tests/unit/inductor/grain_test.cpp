// The least part of a kernel that is worth a thread follows from the costs of its instructions.
#include <gtest/gtest.h>

#include "inductor/loop/op_costs.h"
#include "tests/unit/inductor/plan_runner.h"

namespace framejit::inductor::testing {
namespace {

int64_t grain_of(const std::string& op, const std::string& shape) {
  return kernels_of("graph @f(%x : f32" + shape + ") {\n  %0 = " + op + " : f32" + shape + "\n  return %0\n}")
      .at(0)
      .grain;
}

TEST(Grain, WhatCostsMoreIsSharedSooner) {
  const int64_t add = grain_of("add.Tensor %x, 1, 1", "[1048576]"), exp = grain_of("exp %x", "[1048576]"),
                pow = grain_of("pow.Tensor_Scalar %x, 1.7", "[1048576]");
  EXPECT_EQ(add, 32768);
  EXPECT_LE(exp * 2, add);
  EXPECT_LE(pow * 4, exp);
  EXPECT_GT(pow, 0);
}

TEST(Grain, SmallKernelsAreOneThreads) {
  EXPECT_EQ(grain_of("add.Tensor %x, 1, 1", "[20000]"), -1);
  EXPECT_EQ(grain_of("add.Tensor %x, 1, 1", "[60000]"), -1) << "less than two parts";
  EXPECT_GT(grain_of("exp %x", "[30000]"), 0);
  EXPECT_EQ(grain_of("exp %x", "[2000]"), -1);
}

TEST(Grain, APointOfRowsIsAllOfItsRow) {
  const auto rows = [](const std::string& count) {
    return kernels_of("graph @f(%x : f32[" + count + ", 64]) {\n  %0 = sum.dim_IntList %x, [1], false : f32[" + count +
                      "]\n  return %0\n}")
        .at(0)
        .grain;
  };
  EXPECT_EQ(rows("2048"), 512);
  EXPECT_EQ(rows("512"), 0);
}

TEST(Grain, OnlyScalarOperationsHaveCostsOfTheirOwn) {
  LoopInst inst;
  inst.scalar = ScalarOp::k_exp;
  EXPECT_EQ(cost_of(inst), 1);
  inst.op = LoopOp::kScalar;
  EXPECT_GE(cost_of(inst), kFunctionCost);
  inst.scalar = ScalarOp::k_div;
  EXPECT_LT(cost_of(inst), kFunctionCost);
}

}  // namespace
}  // namespace framejit::inductor::testing
