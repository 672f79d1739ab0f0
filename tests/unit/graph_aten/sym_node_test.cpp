// SymInts over our expressions: arithmetic stays symbolic, questions are proven or become facts.
#include "graph/aten/sym_node.h"

#include <gtest/gtest.h>

namespace framejit::graph {
namespace {

struct Owner final : SymOwner {
  ShapeEnv env;
  ShapeEnv& shapes() override { return env; }
  std::string why() const override { return "test"; }
  void float_is_read(const FloatRead& read) override {
    if (read.other) answers.emplace_back(read.value, *read.other, read.is_equal);
    else fixed.push_back(read.value);
  }
  std::vector<uint32_t> fixed;
  std::vector<std::tuple<uint32_t, double, bool>> answers;
};

struct SymNodeTest : testing::Test {
  std::shared_ptr<Owner> owner = std::make_shared<Owner>();
  SymExpr s0 = SymExpr::symbol(owner->env.add_symbol(6)), s1 = SymExpr::symbol(owner->env.add_symbol(8));
  c10::SymInt a = sym_int_of(s0, owner), b = sym_int_of(s1, owner);
  size_t facts() const { return owner->env.facts().size(); }
};

TEST_F(SymNodeTest, ArithmeticKeepsTheExpression) {
  EXPECT_EQ(expr_of(a * 3 + b - 1).text(), (s0 * 3 + s1 - 1).text());
  EXPECT_EQ(expr_of((a * 4) / 4), s0);
  EXPECT_EQ(facts(), 0u);
}

TEST_F(SymNodeTest, ConstantsArePlain) {
  EXPECT_FALSE(sym_int_of(SymExpr(5), owner).is_symbolic());
  EXPECT_EQ(expr_of(c10::SymInt(7)), SymExpr(7));
}

TEST_F(SymNodeTest, ProvenAnswersAskNothing) {
  EXPECT_TRUE(a.sym_eq(a).guard_bool(__FILE__, __LINE__));
  EXPECT_FALSE(a.sym_eq(c10::SymInt(0)).guard_bool(__FILE__, __LINE__));
  EXPECT_FALSE(a.sym_eq(c10::SymInt(1)).guard_bool(__FILE__, __LINE__));
  EXPECT_TRUE((a * b).sym_gt(a).guard_bool(__FILE__, __LINE__));
  EXPECT_EQ(facts(), 0u);
}

TEST_F(SymNodeTest, AnswersFromHintsBecomeFacts) {
  EXPECT_FALSE(a.sym_eq(b).guard_bool(__FILE__, __LINE__));
  ASSERT_EQ(facts(), 1u);
  EXPECT_EQ(owner->env.facts()[0].relation, Relation::kNe);
  EXPECT_FALSE(a.sym_eq(b).guard_bool(__FILE__, __LINE__));
  EXPECT_EQ(facts(), 1u);
}

// Torch asks this way if both answers give the same values. But which results share memory may still depend on it.
TEST_F(SymNodeTest, UndecidedOrADefaultIsAnsweredAndGuarded) {
  EXPECT_TRUE(TORCH_GUARD_OR_FALSE(a.sym_ne(b)));
  ASSERT_EQ(facts(), 1u);
  EXPECT_FALSE(TORCH_GUARD_OR_TRUE(a.sym_eq(b)));
  EXPECT_EQ(facts(), 1u);
}

TEST_F(SymNodeTest, AnIntegerAskedForSpecialises) {
  EXPECT_EQ(a.guard_int(__FILE__, __LINE__), 6);
  ASSERT_EQ(facts(), 1u);
  EXPECT_EQ(owner->env.facts()[0].right, SymExpr(6));
}

TEST_F(SymNodeTest, CombinationsShortCut) {
  const auto never = a.sym_eq(c10::SymInt(0));
  EXPECT_FALSE(never.sym_and(a.sym_eq(b)).guard_bool(__FILE__, __LINE__));
  EXPECT_TRUE(never.sym_not().sym_or(a.sym_eq(b)).guard_bool(__FILE__, __LINE__));
  EXPECT_EQ(facts(), 0u);
}

TEST_F(SymNodeTest, ContiguityIsProven) {
  EXPECT_TRUE(decide_contiguous(owner->env, {s0, s1, 4}, {s1 * 4, 4, 1}, {2, 1, 0}, "test"));
  EXPECT_EQ(facts(), 0u);
  EXPECT_FALSE(decide_contiguous(owner->env, {s0, s1}, {1, s0}, {1, 0}, "test"));
}

// A Scalar may carry the float to the recorder; if its number is read, its owner is notified.
TEST_F(SymNodeTest, OpenFloats) {
  const c10::SymFloat number = open_float(7, 2.5, owner);
  const auto open = as_open_float(number);
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->value, 7u);
  EXPECT_EQ(open->now, 2.5);
  EXPECT_TRUE(owner->fixed.empty());
  const auto twice = number * 2.0;
  EXPECT_FALSE(as_open_float(twice).has_value());
  EXPECT_EQ(twice.guard_float(__FILE__, __LINE__), 5.0);
  EXPECT_EQ(owner->fixed, std::vector<uint32_t>{7});
  EXPECT_EQ(number.guard_float(__FILE__, __LINE__), 2.5);
  EXPECT_EQ(owner->fixed.size(), 2u);
  EXPECT_FALSE(as_open_float(c10::SymFloat(1.0)).has_value());
}

TEST_F(SymNodeTest, OpenFloatsThatAreComparedStayOpen) {
  const c10::SymFloat number = open_float(7, 2.5, owner);
  EXPECT_FALSE(is_open_float_equal(number, 1));
  EXPECT_TRUE(is_open_float_equal(number, 2.5));
  EXPECT_TRUE(owner->fixed.empty());
  EXPECT_EQ(owner->answers, (std::vector<std::tuple<uint32_t, double, bool>>{{7, 1, false}, {7, 2.5, true}}));
}

}  // namespace
}  // namespace framejit::graph
