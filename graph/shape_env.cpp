// graph/shape_env.cpp — what can be proven about size expressions, and the record of what had to be assumed.
//
// A question is turned into the sign of one difference d = left - right. It is answered, in this order, from the difference
// being constant, from its bounds (symbols are shifted to start at zero, so that s0*s1 - s0 is seen to be positive), and from
// recorded facts about the same difference. Facts that fix a symbol (s0 == 4, s1 == s0) are substituted first.
#include "graph/shape_env.h"

#include <algorithm>

#include "runtime/base/result.h"

namespace framejit::graph {
namespace {

constexpr int64_t kUnbounded = INT64_MAX;

struct Bounds {  // inclusive; INT64_MIN and INT64_MAX mean unbounded
  int64_t low = INT64_MIN, high = kUnbounded;
};

int64_t saturate(__int128 value) {
  if (value <= INT64_MIN) return INT64_MIN;
  if (value >= kUnbounded) return kUnbounded;
  return static_cast<int64_t>(value);
}
bool infinite(int64_t v) { return v == INT64_MIN || v == kUnbounded; }

int64_t add_bound(int64_t a, int64_t b, int64_t if_infinite) {
  if (infinite(a) || infinite(b)) return if_infinite;
  return saturate(static_cast<__int128>(a) + b);
}

int64_t mul_bound(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (infinite(a) || infinite(b)) return (a < 0) == (b < 0) ? kUnbounded : INT64_MIN;
  return saturate(static_cast<__int128>(a) * b);
}

Bounds add(const Bounds& a, const Bounds& b) { return {add_bound(a.low, b.low, INT64_MIN), add_bound(a.high, b.high, kUnbounded)}; }
Bounds multiply(const Bounds& a, const Bounds& b) {
  const int64_t corners[] = {mul_bound(a.low, b.low), mul_bound(a.low, b.high), mul_bound(a.high, b.low), mul_bound(a.high, b.high)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

Bounds bounds_of(const SymExpr& e, const ShapeEnv& env);

Bounds bounds_of_division(const SymExpr::Node& n, const ShapeEnv& env) {
  const Bounds a = bounds_of(n.operands[0], env), b = bounds_of(n.operands[1], env);
  if (n.op == SymOp::kMod) return b.low > 0 ? Bounds{0, infinite(b.high) ? kUnbounded : b.high - 1} : Bounds{};
  if (b.low <= 0) return {};
  auto divide = [](int64_t value, int64_t by) {
    if (infinite(value)) return value;
    return value / by - (value % by < 0 ? 1 : 0);
  };
  return {a.low >= 0 ? divide(a.low, infinite(b.high) ? kUnbounded : b.high) : divide(a.low, b.low),
          a.high >= 0 ? divide(a.high, b.low) : (infinite(b.high) ? -1 : divide(a.high, b.high))};
}

Bounds bounds_of(const SymExpr& e, const ShapeEnv& env) {
  if (e.is_constant()) return {e.constant(), e.constant()};
  const SymExpr::Node& n = *e.node();
  Bounds result{n.coefficient, n.coefficient};
  switch (n.op) {
    case SymOp::kSymbol: return {env.symbol(n.symbol).low, env.symbol(n.symbol).high};
    case SymOp::kSum:
      for (const SymExpr& operand : n.operands) result = add(result, bounds_of(operand, env));
      return result;
    case SymOp::kProduct:
      for (const SymExpr& operand : n.operands) result = multiply(result, bounds_of(operand, env));
      return result;
    case SymOp::kFloorDiv:
    case SymOp::kMod: return bounds_of_division(n, env);
    case SymOp::kMin:
    case SymOp::kMax: {
      const Bounds a = bounds_of(n.operands[0], env), b = bounds_of(n.operands[1], env);
      if (n.op == SymOp::kMin) return {std::min(a.low, b.low), std::min(a.high, b.high)};
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    }
  }
  return {};
}

// Bounds of a difference: the better of the plain ones and those after s = low + s', s' >= 0, where only coefficients count.
Bounds tight_bounds(const SymExpr& e, const ShapeEnv& env) {
  Bounds plain = bounds_of(e, env);
  if (e.is_constant() || e.node()->op != SymOp::kSum) return plain;
  std::vector<SymExpr> shifted;
  for (SymbolId id = 0; id < env.symbol_count(); ++id) shifted.push_back(SymExpr::symbol(id) + std::max<int64_t>(env.symbol(id).low, 0));
  const SymExpr moved = e.substitute(shifted);
  if (moved.is_constant() || moved.node()->op == SymOp::kSymbol) return plain;
  const bool is_sum = moved.node()->op == SymOp::kSum;
  const int64_t base = is_sum ? moved.node()->coefficient : 0;
  std::vector<SymExpr> terms = is_sum ? moved.node()->operands : std::vector<SymExpr>{moved};
  bool only_up = true, only_down = true;
  for (const SymExpr& term : terms) {
    const SymExpr::Node& n = *term.node();
    const int64_t coefficient = n.op == SymOp::kProduct ? n.coefficient : 1;
    const std::vector<SymExpr> atoms = n.op == SymOp::kProduct ? n.operands : std::vector<SymExpr>{term};
    const bool all_symbols = std::all_of(atoms.begin(), atoms.end(), [&](const SymExpr& a) {
      SymbolId id = 0;
      return a.is_symbol(&id) && env.symbol(id).low >= 0;
    });
    only_up = only_up && all_symbols && coefficient > 0;
    only_down = only_down && all_symbols && coefficient < 0;
  }
  if (only_up) plain.low = std::max(plain.low, base);
  if (only_down) plain.high = std::min(plain.high, base);
  return plain;
}

// Constants and other symbols that facts put in the place of symbols; empty when there are none.
std::vector<SymExpr> fixed_symbols(const ShapeEnv& env) {
  std::vector<SymExpr> by_symbol;
  for (const SizeFact& fact : env.facts()) {
    SymbolId id = 0;
    if (fact.relation != Relation::kEq) continue;
    const bool left = fact.left.is_symbol(&id);
    if (!left && !fact.right.is_symbol(&id)) continue;
    const SymExpr& value = left ? fact.right : fact.left;
    SymbolId other = 0;
    if (!value.is_constant() && !(value.is_symbol(&other) && other < id)) continue;
    if (by_symbol.empty())
      for (SymbolId i = 0; i < env.symbol_count(); ++i) by_symbol.push_back(SymExpr::symbol(i));
    by_symbol[id] = value.substitute(by_symbol);
  }
  return by_symbol;
}

struct Sign {  // what is known of a difference
  bool negative = false, zero = false, positive = false;  // possible
};

void narrow_by_fact(const SymExpr& d, const SymExpr& fact, Relation relation, Sign& sign) {
  const SymExpr same = d - fact, opposite = d + fact;
  if (same.is_constant()) {  // d == fact + k
    const int64_t k = same.constant();
    if (relation == Relation::kEq) sign = {k < 0 && sign.negative, k == 0 && sign.zero, k > 0 && sign.positive};
    if (relation == Relation::kNe && k == 0) sign.zero = false;
    const int64_t high = relation == Relation::kLt ? k - 1 : k;  // fact <= -1 or fact <= 0
    if (relation == Relation::kLt || relation == Relation::kLe) {
      if (high <= 0) sign.positive = false;
      if (high < 0) sign.zero = false;
    }
  }
  if (opposite.is_constant()) {  // d == k - fact
    const int64_t k = opposite.constant();
    if (relation == Relation::kEq) sign = {k < 0 && sign.negative, k == 0 && sign.zero, k > 0 && sign.positive};
    if (relation == Relation::kNe && k == 0) sign.zero = false;
    const int64_t low = relation == Relation::kLt ? k + 1 : k;
    if (relation == Relation::kLt || relation == Relation::kLe) {
      if (low >= 0) sign.negative = false;
      if (low > 0) sign.zero = false;
    }
  }
}

Relation negate(Relation relation) {  // of Eq and Ne; the others also swap sides
  switch (relation) {
    case Relation::kEq: return Relation::kNe;
    case Relation::kNe: return Relation::kEq;
    case Relation::kLt: return Relation::kLe;
    case Relation::kLe: return Relation::kLt;
  }
  return relation;
}

bool holds(int64_t left, Relation relation, int64_t right) {
  switch (relation) {
    case Relation::kEq: return left == right;
    case Relation::kNe: return left != right;
    case Relation::kLt: return left < right;
    case Relation::kLe: return left <= right;
  }
  return false;
}

}  // namespace

SymbolId ShapeEnv::add_symbol(int64_t hint, int64_t low, int64_t high) {
  symbols_.push_back({hint, low, high});
  return static_cast<SymbolId>(symbols_.size() - 1);
}

int64_t ShapeEnv::hint(const SymExpr& e) const {
  if (e.is_constant()) return e.constant();
  std::vector<int64_t> hints;
  hints.reserve(symbols_.size());
  for (const SymbolInfo& symbol : symbols_) hints.push_back(symbol.hint);
  return e.eval(hints);
}

std::optional<bool> ShapeEnv::known(const SymExpr& left, Relation relation, const SymExpr& right) const {
  if (left.is_constant() && right.is_constant()) return holds(left.constant(), relation, right.constant());
  SymExpr d = left - right;
  const std::vector<SymExpr> fixed = facts_.empty() ? std::vector<SymExpr>{} : fixed_symbols(*this);
  if (!fixed.empty()) d = d.substitute(fixed);
  if (d.is_constant()) return holds(d.constant(), relation, 0);
  const Bounds bounds = tight_bounds(d, *this);
  Sign sign{bounds.low < 0, bounds.low <= 0 && bounds.high >= 0, bounds.high > 0};
  for (const SizeFact& fact : facts_) {
    SymExpr f = fact.left - fact.right;
    if (!fixed.empty()) f = f.substitute(fixed);
    if (!f.is_constant()) narrow_by_fact(d, f, fact.relation, sign);
  }
  bool can_hold = false, can_fail = false;
  auto consider = [&](bool possible, int64_t representative) {
    if (possible) (holds(representative, relation, 0) ? can_hold : can_fail) = true;
  };
  consider(sign.negative, -1);
  consider(sign.zero, 0);
  consider(sign.positive, 1);
  if (can_hold == can_fail) return std::nullopt;
  return can_hold;
}

bool ShapeEnv::decide(const SymExpr& left, Relation relation, const SymExpr& right, const std::string& why) {
  if (const auto answer = known(left, relation, right)) return *answer;
  const bool answer = holds(hint(left), relation, hint(right));
  const bool swap = !answer && (relation == Relation::kLt || relation == Relation::kLe);
  facts_.push_back({swap ? right : left, swap ? left : right, answer ? relation : negate(relation), why});
  return answer;
}

int64_t ShapeEnv::specialise(const SymExpr& e, const std::string& why) {
  const int64_t value = hint(e);
  if (!e.is_constant() && known(e, Relation::kEq, value) != true) facts_.push_back({e, value, Relation::kEq, why});
  return value;
}

}  // namespace framejit::graph
