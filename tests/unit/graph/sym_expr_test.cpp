// Size expressions, compared with brute force; their text; and what a ShapeEnv proves, assumes and records.
#include <gtest/gtest.h>

#include <random>

#include "graph/int64_range.h"
#include "tests/parsers/sym_parser.h"

namespace framejit::graph {
namespace {

struct Sample {
  SymExpr expr;
  std::vector<int64_t> values;  // for each of the assignments below
};

constexpr int kAssignments = 6;
const int64_t kSymbols[kAssignments][3] = {{2, 3, 5}, {7, 2, 4}, {16, 9, 2}, {100, 33, 12}, {5, 5, 5}, {31, 64, 3}};

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Sample random_expr(std::mt19937_64& random, int depth) {
  Sample s;
  const int kind = depth == 0 ? static_cast<int>(random() % 2) : static_cast<int>(random() % 9);
  if (kind == 0) {
    const auto constant = static_cast<int64_t>(random() % 13) - 4;
    return {constant, std::vector<int64_t>(kAssignments, constant)};
  }
  if (kind == 1) {
    const auto id = static_cast<SymbolId>(random() % 3);
    s.expr = SymExpr::symbol(id);
    for (const auto& row : kSymbols) s.values.push_back(row[id]);
    return s;
  }
  Sample a = random_expr(random, depth - 1), b = random_expr(random, depth - 1);
  const bool divides = kind == 5 || kind == 6;
  if (divides)
    for (int64_t v : b.values)
      if (v == 0) return a;
  auto combine = [&](const SymExpr& e, auto f) {
    s.expr = e;
    for (int i = 0; i < kAssignments; ++i) s.values.push_back(f(a.values[i], b.values[i]));
    return s;
  };
  switch (kind) {
    case 2: return combine(a.expr + b.expr, [](int64_t x, int64_t y) { return x + y; });
    case 3: return combine(a.expr - b.expr, [](int64_t x, int64_t y) { return x - y; });
    case 4: return combine(a.expr * b.expr, [](int64_t x, int64_t y) { return x * y; });
    case 5: return combine(SymExpr::floor_div(a.expr, b.expr), floor_div);
    case 6: return combine(SymExpr::mod(a.expr, b.expr), [](int64_t x, int64_t y) { return x - floor_div(x, y) * y; });
    case 7: return combine(SymExpr::min(a.expr, b.expr), [](int64_t x, int64_t y) { return std::min(x, y); });
    default: return combine(SymExpr::max(a.expr, b.expr), [](int64_t x, int64_t y) { return std::max(x, y); });
  }
}

TEST(SymExpr, FuzzedAgainstBruteForceAndThroughText) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 4000; ++i) {
    const Sample s = random_expr(random, 4);
    for (int row = 0; row < kAssignments; ++row) ASSERT_EQ(s.expr.eval(kSymbols[row]), s.values[row]) << s.expr.text();
    const std::string spelled = s.expr.text();
    text::Reader cursor(spelled);
    const Result<SymExpr> parsed = parse_sym_expr(cursor);
    ASSERT_TRUE(parsed.ok()) << s.expr.text() << ": " << parsed.error().message;
    ASSERT_TRUE(cursor.at_end()) << s.expr.text();
    ASSERT_EQ(parsed.value().text(), s.expr.text());
    ASSERT_TRUE(parsed.value() == s.expr) << s.expr.text();
    ASSERT_EQ(parsed.value().hash(), s.expr.hash());
    const std::vector<SymExpr> identity{SymExpr::symbol(0), SymExpr::symbol(1), SymExpr::symbol(2)};
    ASSERT_TRUE(s.expr.substitute(identity) == s.expr);
    const std::vector<SymExpr> constants{kSymbols[3][0], kSymbols[3][1], kSymbols[3][2]};
    ASSERT_TRUE(s.expr.substitute(constants) == SymExpr(s.values[3]));
  }
}

TEST(SymExpr, EqualPolynomialsAreEqual) {
  const SymExpr s = SymExpr::symbol(0), t = SymExpr::symbol(1);
  EXPECT_EQ(((s + t) * (s - t)).text(), (s * s - t * t).text());
  EXPECT_EQ(SymExpr::floor_div(s * t * 64, t), s * 64);
  EXPECT_EQ(SymExpr::floor_div((s + 1) * 64 * t, s + 1), t * 64);
  EXPECT_EQ(SymExpr::floor_div(s * 4 + 7, 4), s + 1);
  EXPECT_EQ(SymExpr::mod(s * 4 + 7, 4), SymExpr(3));
  EXPECT_EQ(SymExpr::floor_div(s * 2 + 1, 4), SymExpr::floor_div(s, 2));
  EXPECT_EQ(SymExpr::floor_div(s * t * 16 + s * 48, s * 64), SymExpr::floor_div(t + 3, 4));
  EXPECT_EQ(SymExpr::mod(s * t * 16 + s * 48, s * 64), s * 16 * SymExpr::mod(t + 3, 4));
  EXPECT_EQ(SymExpr::mod(SymExpr::mod(s, 8) + t, 4), SymExpr::mod(s + t, 4));
  EXPECT_EQ(SymExpr::floor_div(SymExpr(0) - s, 4), SymExpr(0) - SymExpr::floor_div(s + 3, 4));
  EXPECT_EQ((SymExpr(64) * s + 1).text(), "64*s0 + 1");
  EXPECT_EQ(SymExpr::max(s, s - 1), s);
}

TEST(ShapeEnv, ProvesFromRanges) {
  ShapeEnv env;
  const SymExpr b = SymExpr::symbol(env.add_symbol(8)), l = SymExpr::symbol(env.add_symbol(37));
  EXPECT_EQ(env.known(b, Relation::kEq, 1), false);
  EXPECT_EQ(env.known(b * 64, Relation::kEq, 0), false);
  EXPECT_EQ(env.known(b, Relation::kEq, -1), false);
  EXPECT_EQ(env.known(32, Relation::kLt, b * 224), true);
  EXPECT_EQ(env.known(b * l, Relation::kLe, b), false);
  EXPECT_EQ(env.known(b * l - b, Relation::kLe, 0), false);
  EXPECT_EQ(env.known(b * 32 * 7, Relation::kNe, b * 224), false);
  EXPECT_EQ(env.known(SymExpr::mod(b, 4), Relation::kLt, 4), true);
  EXPECT_EQ(env.known(SymExpr::min(b, 10), Relation::kLe, 10), true);
  EXPECT_EQ(env.known(b, Relation::kEq, 37), std::nullopt);
  EXPECT_EQ(env.known(b, Relation::kLt, l), std::nullopt);
  EXPECT_TRUE(env.facts().empty());
}

// A length that the program has padded to whole chunks, in a product with other sizes.
TEST(ShapeEnv, SeesThatPaddedLengthsAreWholeChunks) {
  ShapeEnv env;
  const SymExpr b = SymExpr::symbol(env.add_symbol(8)), l = SymExpr::symbol(env.add_symbol(6));
  const SymExpr padded = l + SymExpr::mod(SymExpr(0) - SymExpr::mod(l, 4), 4);
  const SymExpr chunks = SymExpr::floor_div(b * padded * 32, b * 128);
  EXPECT_EQ(chunks, SymExpr::floor_div(l + 3, 4));
  EXPECT_EQ(SymExpr::mod(b * padded * 32, b * 128), SymExpr(0));
  EXPECT_EQ(env.known(b * chunks * 128, Relation::kEq, b * padded * 32), true);
  EXPECT_EQ(env.known(padded, Relation::kNe, chunks * 4), false);
  EXPECT_EQ(env.known(chunks, Relation::kLe, 0), false);
  EXPECT_EQ(env.known(padded, Relation::kEq, l), std::nullopt);
}

TEST(ShapeEnv, DecidesByHintOnceAndRemembers) {
  ShapeEnv env;
  const SymExpr b = SymExpr::symbol(env.add_symbol(8)), l = SymExpr::symbol(env.add_symbol(37));
  EXPECT_TRUE(env.decide(b, Relation::kLt, l, "test"));
  ASSERT_EQ(env.facts().size(), 1u);
  EXPECT_TRUE(env.decide(b, Relation::kLe, l, "test"));
  EXPECT_FALSE(env.decide(l, Relation::kLe, b, "test"));
  EXPECT_FALSE(env.decide(b, Relation::kEq, l, "test"));
  EXPECT_TRUE(env.decide(b, Relation::kLt, l + 5, "test"));
  EXPECT_EQ(env.facts().size(), 1u);
  EXPECT_FALSE(env.decide(l, Relation::kEq, 12, "test"));
  ASSERT_EQ(env.facts().size(), 2u);
  EXPECT_EQ(env.facts()[1].relation, Relation::kNe);
  EXPECT_EQ(env.specialise(b * 2, "test"), 16);
  EXPECT_EQ(env.known(b * 2, Relation::kEq, 16), true);
  EXPECT_EQ(env.specialise(b, "test"), 8);
  EXPECT_EQ(env.known(b + l, Relation::kEq, l + 8), true);
}

TEST(SymExpr, HasItsTrueValueOrNone) {
  const SymExpr s = SymExpr::symbol(0), t = SymExpr::symbol(1);
  auto value = [](const SymExpr& e, int64_t a, int64_t b = 0) { return value_of(e, std::vector<int64_t>{a, b}); };
  EXPECT_EQ(value(s * 3 + 1, INT64_MAX / 3), INT64_MAX);
  EXPECT_EQ(value(s * 3 + 2, INT64_MAX / 3), std::nullopt);
  EXPECT_EQ(value(SymExpr(0) - s, INT64_MIN), std::nullopt);
  EXPECT_EQ(value(SymExpr(0) - s, INT64_MAX), -INT64_MAX);
  EXPECT_EQ(value(s * t, int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(value(SymExpr::floor_div(s, t), INT64_MIN, -1), std::nullopt);
  EXPECT_EQ(value(SymExpr::mod(s, t), INT64_MIN, -1), 0);
  EXPECT_EQ(value(SymExpr::floor_div(s, t), 7, 0), std::nullopt);
  EXPECT_EQ(value(SymExpr::mod(s, t), 7, 0), std::nullopt);
  EXPECT_THROW((SymExpr::floor_div(s, t)).eval(std::vector<int64_t>{7, 0}), NoInt64);
  EXPECT_THROW(s * (int64_t{1} << 62) * 4, NoInt64);
  EXPECT_THROW(SymExpr(INT64_MAX) + 1, NoInt64);
  EXPECT_THROW(SymExpr::floor_div(s, 0), NoInt64);
  EXPECT_EQ(SymExpr::floor_div(s * (INT64_MIN / 2), -2), s * (int64_t{1} << 61));
}

TEST(ShapeEnv, KeepsWhatMayNotFit) {
  ShapeEnv env;
  const SymExpr n = SymExpr::symbol(env.add_symbol(5, INT64_MIN, INT64_MAX)),
                size = SymExpr::symbol(env.add_symbol(8, kLeastSize, kMostSize));
  for (const SymExpr& e : {n, size * 1024 + 7, SymExpr::mod(n, 7), SymExpr::floor_div(n, 3), SymExpr::min(n, 4),
                           SymExpr::floor_div(1000, size)})
    EXPECT_TRUE(keep_exact(env, e, "test") && env.facts().empty()) << e.text();
  size_t count = 0;
  for (const SymExpr& e : {n + 1, SymExpr(0) - n, n * n, size * size, size * (int64_t{1} << 40), SymExpr::mod(n * 2, 7),
                           SymExpr::floor_div(7, n)}) {
    EXPECT_TRUE(keep_exact(env, e, "test") && keep_exact(env, e, "test"));
    ASSERT_EQ(env.facts().size(), ++count) << e.text();
    EXPECT_TRUE(is_any_int64(env.facts().back()) && env.facts().back().right == e);
  }
  EXPECT_FALSE(keep_exact(env, n * (int64_t{1} << 62), "test"));
  EXPECT_EQ(env.facts().size(), count);
  EXPECT_EQ(env.known(n - 1, Relation::kLt, n), true);
  EXPECT_EQ(env.known(n * 2, Relation::kLt, n), std::nullopt);
  EXPECT_EQ(env.known(n * (int64_t{1} << 62), Relation::kLt, SymExpr(0) - n * (int64_t{1} << 62)), std::nullopt);
}

// A loop over a number makes a symbol with the same hint for each step, and a fact that a later step still satisfies.
TEST(ShapeEnv, AsksAboutNoMoreEqualitiesThanFacts) {
  ShapeEnv env;
  constexpr SymbolId kSteps = 400;
  for (SymbolId id = 0; id < kSteps; ++id) {
    env.add_symbol(7, INT64_MIN, INT64_MAX);
    env.add_fact({INT64_MIN, SymExpr::symbol(id) * SymExpr::symbol(0), Relation::kLe, "step"});
  }
  EXPECT_TRUE(env.possible_equalities().empty());
  for (SymbolId id = 1; id < kSteps; ++id) env.decide(SymExpr::symbol(id - 1), Relation::kLe, SymExpr::symbol(id), "");
  EXPECT_EQ(env.possible_equalities().size(), kSteps - 1);
}

TEST(ShapeEnv, LeavesOutNoEqualityThatIsKnown) {
  std::mt19937 random(11);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int equal = 0;
  for (int round = 0; round < 3000; ++round) {
    ShapeEnv env;
    for (int i = 0; i < 4; ++i) env.add_symbol(5, pick(3) == 0 ? 5 : 2, pick(3) == 0 ? 5 : 9);
    const auto term = [&]() -> SymExpr { return pick(4) == 0 ? SymExpr(5) : SymExpr::symbol(SymbolId(pick(4))); };
    for (int i = 0; i < 4; ++i) {
      const SymExpr left = term(), right = term();
      env.add_fact({left, right, pick(2) == 0 ? Relation::kEq : Relation::kLe, ""});
    }
    std::vector<SymExpr> resolved;
    for (SymbolId id = 0; id < 4; ++id) resolved.push_back(SymExpr::symbol(id));
    for (const auto& [id, value] : env.possible_equalities())
      if (resolved[id].is_symbol() && env.known(SymExpr::symbol(id), Relation::kEq, value) == true)
        resolved[id] = value.substitute(resolved);
    for (SymbolId id = 0; id < 4; ++id) {
      const bool fixed = env.known(SymExpr::symbol(id), Relation::kEq, 5) == true;
      equal += fixed;
      EXPECT_TRUE(!fixed || resolved[id] == SymExpr(5)) << "s" << id << " in round " << round;
    }
  }
  EXPECT_GT(equal, 100);
}

// What known() claims holds for every assignment in the ranges that satisfies the facts.
TEST(ShapeEnv, ClaimsHoldByBruteForce) {
  std::mt19937_64 random(5);
  const Relation relations[] = {Relation::kEq, Relation::kNe, Relation::kLt, Relation::kLe};
  auto holds = [](int64_t a, Relation r, int64_t b) {
    return r == Relation::kEq ? a == b : r == Relation::kNe ? a != b : r == Relation::kLt ? a < b : a <= b;
  };
  int claims = 0;
  for (int round = 0; round < 400; ++round) {
    ShapeEnv env;
    for (int i = 0; i < 3; ++i) env.add_symbol(2 + static_cast<int64_t>(random() % 9), 2, 10);
    for (int i = 0; i < 2; ++i)
      env.decide(random_expr(random, 2).expr, relations[random() % 4], random_expr(random, 1).expr, "");
    const SymExpr left = random_expr(random, 3).expr, right = random_expr(random, 2).expr;
    const Relation relation = relations[random() % 4];
    const auto claim = env.known(left, relation, right);
    if (!claim) continue;
    ++claims;
    for (int64_t a = 2; a <= 10; ++a)
      for (int64_t b = 2; b <= 10; ++b)
        for (int64_t c = 2; c <= 10; ++c) {
          const int64_t v[3] = {a, b, c};
          bool allowed = true;
          try {
            for (const SizeFact& f : env.facts())
              allowed = allowed && holds(f.left.eval(v), f.relation, f.right.eval(v));
            if (allowed) {
              ASSERT_EQ(holds(left.eval(v), relation, right.eval(v)), *claim) << left.text() << " ? " << right.text();
            }
          } catch (const NoInt64&) {  // a random divisor that is zero here
          }
        }
  }
  EXPECT_GT(claims, 100);
}

}  // namespace
}  // namespace framejit::graph
