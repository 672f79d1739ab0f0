// Known ops are recognised by their whole name: no other overload, and no other library's op, is mistaken for one.
#include "graph/known_ops.h"

#include <gtest/gtest.h>

#include "graph/op_def.h"

namespace framejit::graph {
namespace {

TEST(KnownOps, RowsHaveTheirId) {
  EXPECT_EQ(known_op("add.Tensor"), KnownOp::add_tensor);
  ASSERT_NE(find_op("bmm"), nullptr);
  EXPECT_TRUE(find_op("bmm")->is(KnownOp::bmm));
  EXPECT_FALSE(find_op("bmm")->is(KnownOp::mm));
}

TEST(KnownOps, NamesAreComparedWhole) {
  for (const char* other : {"", "add", "add.Scalar", "add.Tensor_out", "Add.Tensor", "mylib::add.Tensor", "mylib::bmm"})
    EXPECT_EQ(known_op(other), KnownOp::none) << other;
}

TEST(KnownOps, AnOpOfTheProgramIsNone) {
  OpDef definition;
  definition.name = "mylib::convolution";
  EXPECT_FALSE(declare_op(definition)->is(KnownOp::convolution));
  definition.name = "convolution.mine";
  EXPECT_FALSE(declare_op(definition)->is(KnownOp::convolution));
}

}  // namespace
}  // namespace framejit::graph
