// Facts read from schemas: writes, aliases, functional forms, tags.
#include "graph/aten/op_facts.h"

#include <gtest/gtest.h>

namespace framejit::graph {
namespace {

const OpDef& definition(const char* name) {
  const OpFacts* facts = find_facts(name);
  EXPECT_NE(facts, nullptr) << name;
  return *facts->def;
}

TEST(OpFacts, UnknownOperator) { EXPECT_EQ(find_facts("no_such_operator"), nullptr); }

TEST(OpFacts, InPlace) {
  const OpDef& def = definition("add_.Tensor");
  EXPECT_TRUE(def.has(kMutates));
  EXPECT_EQ(def.functional, "add.Tensor");
  EXPECT_EQ(def.write_args, std::vector<int8_t>{0});
  EXPECT_TRUE(find_facts("add_.Tensor")->in_place);
  EXPECT_FALSE(find_facts("t_")->in_place);
}

TEST(OpFacts, OutArgumentsAreDropped) {
  const OpDef& def = definition("add.out");
  EXPECT_EQ(def.functional, "add.Tensor");
  EXPECT_TRUE(def.drops_out_args);
}

TEST(OpFacts, FunctionalFormsByOtherNames) {
  EXPECT_EQ(definition("normal_").functional, "normal_functional");
  EXPECT_EQ(definition("bernoulli_.float").functional, "bernoulli.p");
  EXPECT_EQ(definition("copy_").functional, "copy");
}

TEST(OpFacts, Views) {
  EXPECT_TRUE(definition("view").has(kView));
  EXPECT_TRUE(definition("split.Tensor").has(kView));
  EXPECT_EQ(definition("split.Tensor").result_alias, std::vector<int8_t>{0});
  EXPECT_FALSE(definition("clone").has(kView));
}

TEST(OpFacts, Tags) {
  EXPECT_TRUE(definition("bernoulli").has(kRandom));
  EXPECT_TRUE(definition("nonzero").has(kDataDependent));
  EXPECT_FALSE(definition("index.Tensor").has(kDataDependent));
  EXPECT_EQ(find_facts("index.Tensor")->data_dependence, DataDependence::kOfMasks);
  EXPECT_EQ(find_facts("repeat_interleave.Tensor")->data_dependence, DataDependence::kWithoutSize);
  EXPECT_EQ(find_facts("nonzero")->data_dependence, DataDependence::kAlways);
  EXPECT_EQ(find_facts("add.Tensor")->data_dependence, DataDependence::kNone);
  EXPECT_TRUE(find_facts("linear")->decomposes);
}

TEST(OpFacts, TypedShapeFunctions) {
  EXPECT_NE(find_facts("mm")->typed_meta, nullptr);
  EXPECT_EQ(find_facts("convolution")->typed_meta, nullptr);
}

}  // namespace
}  // namespace framejit::graph
