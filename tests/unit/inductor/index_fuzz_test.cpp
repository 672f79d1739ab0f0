// Random index expressions compared with brute force: the results of simplify, reshape_index, linear_index and
// split_linear are evaluated at every point of the nest. Seeded; FUZZ_ROUNDS sets how many run, FUZZ_SEED where to
// begin.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "inductor/loop/index_expr.h"
#include "tests/unit/inductor/fuzz_rounds.h"

namespace framejit::inductor::testing {
namespace {

constexpr uint32_t kSizeSymbols = 2;
constexpr int kIndexRounds = 2000;

// The functions under test; a planted defect replaces one of them.
struct IndexFunctions {
  std::function<decltype(inductor::simplify)> simplify = inductor::simplify;
  std::function<decltype(inductor::split_linear)> split_linear = inductor::split_linear;
  std::function<decltype(inductor::reshape_index)> reshape_index = inductor::reshape_index;
  std::function<decltype(inductor::linear_index)> linear_index = inductor::linear_index;
};

class RandomIndex {
 public:
  explicit RandomIndex(uint32_t seed) : random_(seed), symbols_(kSizeSymbols) {
    const int count = 1 + pick(4);
    for (int d = 0; d < count; ++d) extents_.push_back(size());
  }

  DimBounds bounds() const { return {symbols_, extents_}; }
  SymExpr dim(size_t d) const { return symbols_.dim(d); }
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  SymExpr size_symbol() { return SymExpr::symbol(static_cast<uint32_t>(pick(kSizeSymbols))); }

  SymExpr size() {
    switch (pick(5)) {
      case 0: return size_symbol();
      case 1: return size_symbol() * SymExpr(1 + pick(3));
      default: return SymExpr(1 + pick(6));
    }
  }

  SymExpr expression(int depth) {
    if (depth == 0 || pick(6) == 0)
      return pick(5) == 0 ? SymExpr(pick(7)) : dim(static_cast<size_t>(pick(static_cast<int>(extents_.size()))));
    switch (pick(9)) {
      case 0:
      case 1: return expression(depth - 1) + expression(depth - 1);
      case 2: return expression(depth - 1) * (pick(3) == 0 ? size() : SymExpr(1 + pick(8)));
      case 3:
      case 4: return SymExpr::floor_div(expression(depth - 1), divisor());
      case 5:
      case 6: return SymExpr::mod(expression(depth - 1), divisor());
      case 7:
        return pick(2) == 0 ? SymExpr::min(expression(depth - 1), expression(depth - 1))
                            : SymExpr::max(expression(depth - 1), expression(depth - 1));
      default: return pick(2) == 0 ? expression(depth - 1) - SymExpr(pick(5)) : recombined(expression(depth - 1));
    }
  }

  // b*(e // b) + e % b and its relatives, which the rewriter looks for.
  SymExpr recombined(const SymExpr& e) {
    const SymExpr b = divisor();
    const SymExpr factor = SymExpr(1 + pick(3)), inner = pick(4) == 0 ? e + SymExpr(1) : e;
    return factor * (b * SymExpr::floor_div(e, b) + SymExpr::mod(inner, b));
  }

  // The same product of sizes grouped in two ways.
  void two_shapes(SymSizes& from, SymSizes& to) {
    std::vector<SymExpr> factors;
    const int count = 2 + pick(4);
    for (int k = 0; k < count; ++k) factors.push_back(pick(4) == 0 ? size_symbol() : SymExpr(1 + pick(4)));
    for (SymSizes* sizes : {&from, &to}) {
      sizes->assign(1, SymExpr(1));
      for (const SymExpr& f : factors) {
        if (pick(2) == 0) sizes->push_back(SymExpr(1));
        sizes->back() = sizes->back() * f;
      }
      if (sizes->size() > 1 && sizes->front() == SymExpr(1) && pick(2) == 0) sizes->erase(sizes->begin());
    }
  }

  std::vector<int64_t> symbol_values() { return {1 + pick(5), 1 + pick(5)}; }

 private:
  SymExpr divisor() {
    return pick(4) == 0 ? extents_[static_cast<size_t>(pick(static_cast<int>(extents_.size())))] : SymExpr(1 + pick(8));
  }
  std::mt19937 random_;
  NestSymbols symbols_;
  SymSizes extents_;
};

// Calls visit(environment) for every point of the dimensions `extents` under these values of the size symbols.
template <class Visit>
void for_each_point(const SymSizes& extents, const std::vector<int64_t>& symbols, Visit visit) {
  std::vector<int64_t> env = symbols;
  env.resize(kSizeSymbols + kMaxDims, 0);
  for (;;) {
    visit(env);
    size_t d = extents.size();
    while (d > 0 && ++env[kSizeSymbols + d - 1] == extents[d - 1].eval(symbols)) env[kSizeSymbols + --d] = 0;
    if (d == 0) return;
  }
}

std::string words(const SymSizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::string(),
                         [](std::string s, const SymExpr& e) { return s + "[" + e.text() + "]"; });
}

void check_simplify(RandomIndex& random, const IndexFunctions& fuzzed) {
  const SymExpr e = random.expression(4);
  const SymExpr simple = fuzzed.simplify(e, random.bounds());
  for (int round = 0; round < 3; ++round)
    for_each_point(random.bounds().extents, random.symbol_values(), [&](const std::vector<int64_t>& env) {
      ASSERT_EQ(simple.eval(env), e.eval(env))
          << e.text() << " became " << simple.text() << " over " << words(random.bounds().extents);
    });
}

void check_split(RandomIndex& random, const IndexFunctions& fuzzed) {
  const SymExpr e = random.expression(3), dim = random.dim(0);
  SymExpr coefficient, rest;
  if (!fuzzed.split_linear(e, dim, coefficient, rest)) return;
  graph::SymbolId id = 0;
  ASSERT_TRUE(dim.is_symbol(&id));
  ASSERT_FALSE(mentions(rest, id) || mentions(coefficient, id)) << e.text();
  for_each_point(random.bounds().extents, random.symbol_values(), [&](const std::vector<int64_t>& env) {
    ASSERT_EQ(coefficient.eval(env) * dim.eval(env) + rest.eval(env), e.eval(env))
        << e.text() << " split into " << coefficient.text() << " and " << rest.text();
  });
}

void check_reshape(RandomIndex& random, const IndexFunctions& fuzzed) {
  SymSizes from, to;
  random.two_shapes(from, to);
  DimBounds bounds = random.bounds();
  bounds.extents = to;
  std::vector<SymExpr> index;
  for (size_t k = 0; k < to.size(); ++k) index.push_back(random.dim(k));
  const std::vector<SymExpr> mapped = fuzzed.reshape_index(from, to, index, bounds);
  ASSERT_EQ(mapped.size(), from.size());
  for (int round = 0; round < 3; ++round) {
    const std::vector<int64_t> symbols = random.symbol_values();
    for_each_point(to, symbols, [&](const std::vector<int64_t>& env) {
      int64_t expected = 0, got = 0;
      for (size_t k = 0; k < to.size(); ++k) expected = expected * to[k].eval(env) + index[k].eval(env);
      for (size_t k = 0; k < from.size(); ++k) {
        const int64_t at = mapped[k].eval(env);
        ASSERT_TRUE(at >= 0 && at < from[k].eval(env))
            << "dimension " << k << " of " << words(from) << " seen as " << words(to) << ": " << mapped[k].text();
        got = got * from[k].eval(env) + at;
      }
      ASSERT_EQ(got, expected) << words(from) << " seen as " << words(to) << ": " << words(mapped);
    });
  }
  SymSizes strides(from.size(), SymExpr(1));
  for (SymExpr& s : strides) s = SymExpr(random.pick(9));
  const SymExpr linear = fuzzed.linear_index(mapped, strides, bounds);
  for_each_point(to, random.symbol_values(), [&](const std::vector<int64_t>& env) {
    int64_t expected = 0;
    for (size_t k = 0; k < from.size(); ++k) expected += mapped[k].eval(env) * strides[k].eval(env);
    ASSERT_EQ(linear.eval(env), expected) << linear.text();
  });
}

void check_index(uint32_t seed, const IndexFunctions& fuzzed) {
  RandomIndex random(seed);
  check_simplify(random, fuzzed);
  check_split(random, fuzzed);
  check_reshape(random, fuzzed);
}

TEST(Fuzz, IndexExpressions) {
  for_each_seed(kIndexRounds, [](uint32_t seed) { check_index(seed, {}); });
}

// --- planted defects ---

SymExpr toward_zero(const SymExpr& a, const SymExpr& b) {
  return SymExpr::floor_div(SymExpr::max(a, 0), b) - SymExpr::floor_div(SymExpr::max(SymExpr(0) - a, 0), b);
}

// `e` with other divisions and modulos.
using Binary = std::function<SymExpr(const SymExpr&, const SymExpr&)>;
SymExpr with(const SymExpr& e, const Binary& division, const Binary& modulo) {
  if (e.is_constant() || e.is_symbol()) return e;
  const SymExpr::Node& node = *e.node();
  std::vector<SymExpr> operands;
  for (const SymExpr& o : node.operands) operands.push_back(with(o, division, modulo));
  const auto joined = [&](auto join) {
    return std::accumulate(operands.begin(), operands.end(), SymExpr(node.coefficient), join);
  };
  switch (node.op) {
    case graph::SymOp::kSum: return joined([](const SymExpr& a, const SymExpr& b) { return a + b; });
    case graph::SymOp::kProduct: return joined([](const SymExpr& a, const SymExpr& b) { return a * b; });
    case graph::SymOp::kFloorDiv: return division(operands[0], operands[1]);
    case graph::SymOp::kMod: return modulo(operands[0], operands[1]);
    case graph::SymOp::kMin: return SymExpr::min(operands[0], operands[1]);
    case graph::SymOp::kMax: return SymExpr::max(operands[0], operands[1]);
    case graph::SymOp::kSymbol: break;
  }
  return e;
}

SymExpr one_short(const SymExpr& e, DimBounds bounds) {
  for (SymExpr& extent : bounds.extents)
    if (extent.is_constant() && extent.constant() > 1) extent = extent - SymExpr(1);
  return simplify(e, bounds);
}

bool without_symbol(const SymExpr& e, const SymExpr& dim, SymExpr& coefficient, SymExpr& rest) {
  if (!split_linear(e, dim, coefficient, rest)) return false;
  if (!coefficient.is_constant()) coefficient = 1;
  return true;
}

std::vector<SymExpr> exchanged(const SymSizes& from, const SymSizes& to, const std::vector<SymExpr>& index,
                               const DimBounds& bounds) {
  std::vector<SymExpr> mapped = reshape_index(from, to, index, bounds);
  if (from.size() > 1 && from[0] == from[1]) std::swap(mapped[0], mapped[1]);
  return mapped;
}

std::vector<SymExpr> one_further(const SymSizes& from, const SymSizes& to, const std::vector<SymExpr>& index,
                                 const DimBounds& bounds) {
  std::vector<SymExpr> mapped = reshape_index(from, to, index, bounds);
  if (!mapped.empty()) mapped.back() = SymExpr::min(mapped.back() + SymExpr(1), from.back() - SymExpr(1));
  return mapped;
}

SymExpr without_last(const std::vector<SymExpr>& index, SymSizes strides, const DimBounds& bounds) {
  if (!strides.empty()) strides.back() = 0;
  return linear_index(index, strides, bounds);
}

TEST(Planted, IndexDefectsAreFound) {
  const auto simplify_with = [](const Binary& division, const Binary& modulo) {
    return IndexFunctions{.simplify = [=](const SymExpr& e, const DimBounds& bounds) {
      return simplify(with(e, division, modulo), bounds);
    }};
  };
  const struct {
    const char *name, *finding;
    IndexFunctions fuzzed;
  } defects[] = {
      {"a division that rounds negative numbers towards zero", "became", simplify_with(toward_zero, SymExpr::mod)},
      {"a modulo with the sign of the dividend", "became",
       simplify_with(SymExpr::floor_div, [](const SymExpr& a, const SymExpr& b) { return a - b * toward_zero(a, b); })},
      {"a bound that is one too small", "became", {.simplify = one_short}},
      {"a coefficient that loses its symbol", "split into", {.split_linear = without_symbol}},
      {"dimensions of equal size that change places", "seen as", {.reshape_index = exchanged}},
      {"an index that is one too large", "seen as", {.reshape_index = one_further}},
      {"a stride that is forgotten", "linear.eval", {.linear_index = without_last}},
  };
  for (const auto& defect : defects) {
    SCOPED_TRACE(defect.name);
    EXPECT_GT(seeds_until_found(kIndexRounds, defect.finding, [&](uint32_t seed) { check_index(seed, defect.fuzzed); }),
              0);
  }
  EXPECT_EQ(seeds_until_found(
                50, "", [&](uint32_t seed) { check_index(seed, simplify_with(SymExpr::floor_div, SymExpr::mod)); }),
            0);
}

}  // namespace
}  // namespace framejit::inductor::testing
