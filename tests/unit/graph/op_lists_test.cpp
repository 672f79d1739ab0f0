// The ops of each list, and near misses.
#include "graph/op_lists.h"

#include <gtest/gtest.h>

namespace framejit::graph {
namespace {

TEST(OpLists, RowsBelongToTheirList) {
  EXPECT_TRUE(is_in(OpList::copies_storage, "slice_scatter"));
  EXPECT_FALSE(is_in(OpList::moves_elements, "slice_scatter"));
  EXPECT_TRUE(is_in(OpList::moves_elements, "_to_copy"));
  EXPECT_TRUE(is_in(OpList::keeps_format, "convolution"));
  EXPECT_TRUE(is_in(OpList::only_asserts, "_assert_async.msg"));
  EXPECT_TRUE(is_in(OpList::sized_by_scales, "upsample_bicubic2d.vec"));
  EXPECT_FALSE(is_in(OpList::sized_by_scales, "upsample_bicubic2d"));
  EXPECT_TRUE(is_in(OpList::linear_in_each, "mm"));
  EXPECT_FALSE(is_in(OpList::linear_jointly, "mm"));
}

TEST(OpLists, GiveTheirOps) {
  const std::vector<std::string_view> layers = ops_of(OpList::recurrent_layers);
  EXPECT_EQ(layers.size(), 4u);
  for (std::string_view layer : layers) EXPECT_TRUE(is_in(OpList::recurrent_layers, layer)) << layer;
}

TEST(OpLists, NamesAreComparedWhole) {
  EXPECT_FALSE(is_in(OpList::of_masks, "index"));
  EXPECT_FALSE(is_in(OpList::of_masks, "index.Tensor_out"));
  EXPECT_FALSE(is_in(OpList::only_asserts, ""));
}

}  // namespace
}  // namespace framejit::graph
