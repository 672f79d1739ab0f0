// Facts read from schemas: writes, aliases, functional forms, tags.
#include "graph/aten/op_info.h"

#include <gtest/gtest.h>

namespace framejit::graph {
namespace {

const OpDef& definition(const char* name) {
  const OpInfo* info = find_op_info(name);
  EXPECT_NE(info, nullptr) << name;
  return *info->def;
}

TEST(OpInfo, UnknownOperator) { EXPECT_EQ(find_op_info("no_such_operator"), nullptr); }

TEST(OpInfo, KnownOpsAreTorchs) {
#define KNOWN_OP(id, op, why) EXPECT_TRUE(definition(op).is(KnownOp::id));
#include "graph/known_ops.def"
#undef KNOWN_OP
}

TEST(OpInfo, InPlace) {
  const OpDef& def = definition("add_.Tensor");
  EXPECT_TRUE(def.has(kMutates));
  EXPECT_EQ(def.functional, "add.Tensor");
  EXPECT_EQ(def.write_args, std::vector<int8_t>{0});
  EXPECT_TRUE(find_op_info("add_.Tensor")->in_place);
  EXPECT_FALSE(find_op_info("t_")->in_place);
}

TEST(OpInfo, OutArgumentsAreDropped) {
  const OpDef& def = definition("add.out");
  EXPECT_EQ(def.functional, "add.Tensor");
  EXPECT_TRUE(def.drops_out_args);
}

TEST(OpInfo, FunctionalFormsByOtherNames) {
  EXPECT_EQ(definition("normal_").functional, "normal_functional");
  EXPECT_EQ(definition("bernoulli_.float").functional, "bernoulli.p");
  EXPECT_EQ(definition("copy_").functional, "copy");
}

TEST(OpInfo, Views) {
  EXPECT_TRUE(definition("view").has(kView));
  EXPECT_TRUE(definition("split.Tensor").has(kView));
  EXPECT_EQ(definition("split.Tensor").result_alias, std::vector<int8_t>{0});
  EXPECT_FALSE(definition("clone").has(kView));
}

TEST(OpInfo, Tags) {
  EXPECT_TRUE(definition("bernoulli").has(kRandom));
  EXPECT_TRUE(definition("nonzero").has(kDataDependent));
  EXPECT_FALSE(definition("index.Tensor").has(kDataDependent));
  EXPECT_EQ(find_op_info("index.Tensor")->data_dependence, DataDependence::kOfMasks);
  EXPECT_EQ(find_op_info("repeat_interleave.Tensor")->data_dependence, DataDependence::kWithoutSize);
  EXPECT_EQ(find_op_info("nonzero")->data_dependence, DataDependence::kAlways);
  EXPECT_EQ(find_op_info("add.Tensor")->data_dependence, DataDependence::kNone);
  EXPECT_TRUE(find_op_info("linear")->decomposes);
}

TEST(OpInfo, TypedShapeFunctions) {
  EXPECT_NE(find_op_info("mm")->typed_meta, nullptr);
  EXPECT_EQ(find_op_info("convolution")->typed_meta, nullptr);
}

}  // namespace
}  // namespace framejit::graph
