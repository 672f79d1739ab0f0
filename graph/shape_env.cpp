// graph/shape_env.cpp — what can be proven about size expressions, and the record of what had to be assumed.
//
// A question becomes one about the sign of a difference d = left - right. The answer comes, in this order, from the
// difference being constant, from its bounds (symbols are shifted to start at zero, so that s0*s1 - s0 is seen to be
// positive), or from recorded facts about the same difference. Facts that fix a symbol (s0 == 4, s1 == s0) are
// substituted first.
#include "graph/shape_env.h"

#include <algorithm>
#include <tuple>

#include "graph/int64_range.h"

namespace framejit::graph {
namespace {

using Wide = __int128;
constexpr Wide kUnbounded = Wide{1} << 120;

struct Bounds {  // inclusive
  Wide low = -kUnbounded, high = kUnbounded;
};

Wide saturate(Wide value) { return std::clamp(value, -kUnbounded, kUnbounded); }

Wide mul_bound(Wide a, Wide b) {
  Wide product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return (a < 0) == (b < 0) ? kUnbounded : -kUnbounded;
  return saturate(product);
}

Bounds add(const Bounds& a, const Bounds& b) { return {saturate(a.low + b.low), saturate(a.high + b.high)}; }
Bounds multiply(const Bounds& a, const Bounds& b) {
  const Wide corners[] = {mul_bound(a.low, b.low), mul_bound(a.low, b.high), mul_bound(a.high, b.low),
                          mul_bound(a.high, b.high)};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}
Bounds divide(const Bounds& a, const Bounds& b) {
  if (b.low <= 0) return {};
  auto quotient = [](Wide value, Wide by) { return value / by - (value % by < 0 ? 1 : 0); };
  return {quotient(a.low, a.low >= 0 ? b.high : b.low), quotient(a.high, a.high >= 0 ? b.low : b.high)};
}
Bounds remainder(const Bounds& b) { return {std::min<Wide>(b.low + 1, 0), std::max<Wide>(b.high - 1, 0)}; }

bool may_be_zero(const Bounds& b) { return b.low <= 0 && b.high >= 0; }
bool is_int64(const Bounds& b) { return b.low >= INT64_MIN && b.high <= INT64_MAX; }

// If `fits` is given, it becomes false if e, or a part of it as value() evaluates it, may not be an int64.
Bounds bounds_of(const SymExpr& e, const ShapeEnv& env, bool* fits = nullptr) {
  if (e.is_constant()) return {e.constant(), e.constant()};
  const SymExpr::Node& n = *e.node();
  if (n.op == SymOp::kSymbol) return {env.symbol(n.symbol).low, env.symbol(n.symbol).high};
  const bool folds = n.op == SymOp::kSum || n.op == SymOp::kProduct;
  Bounds result = folds ? Bounds{n.coefficient, n.coefficient} : bounds_of(n.operands[0], env, fits);
  for (size_t i = folds ? 0 : 1; i < n.operands.size(); ++i) {
    const Bounds right = bounds_of(n.operands[i], env, fits);
    const bool divides = n.op == SymOp::kFloorDiv || n.op == SymOp::kMod;
    if (fits != nullptr && divides && may_be_zero(right)) *fits = false;
    switch (n.op) {
      case SymOp::kSymbol: break;
      case SymOp::kSum: result = add(result, right); break;
      case SymOp::kProduct: result = multiply(result, right); break;
      case SymOp::kFloorDiv: result = divide(result, right); break;
      case SymOp::kMod: result = remainder(right); break;
      case SymOp::kMin: result = {std::min(result.low, right.low), std::min(result.high, right.high)}; break;
      case SymOp::kMax: result = {std::max(result.low, right.low), std::max(result.high, right.high)}; break;
    }
    if (fits != nullptr && !is_int64(result)) *fits = false;
  }
  return result;
}

// Bounds of a difference: the better of the plain ones and those after s = low + s', s' >= 0, where only the
// coefficients count.
Bounds tight_bounds(const SymExpr& e, const ShapeEnv& env) {
  Bounds plain = bounds_of(e, env);
  if (e.is_constant() || e.node()->op != SymOp::kSum) return plain;
  std::vector<SymbolId> symbols;
  e.collect_symbols(symbols);
  std::vector<SymExpr> shifted(symbols.empty() ? 0 : symbols.back() + 1);
  for (SymbolId id : symbols) shifted[id] = SymExpr::symbol(id) + std::max<int64_t>(env.symbol(id).low, 0);
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
  if (only_up) plain.low = std::max<Wide>(plain.low, base);
  if (only_down) plain.high = std::min<Wide>(plain.high, base);
  return plain;
}

// Constants and other symbols that facts substitute for symbols; empty if there are none.
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
  for (SymExpr& value : by_symbol) value = value.substitute(by_symbol);  // facts come in any order
  return by_symbol;
}

std::vector<SymbolId> compared_symbols(const SizeFact& fact, const std::vector<SymExpr>& fixed) {
  std::vector<SymbolId> symbols;
  try {
    const SymExpr difference = fact.left - fact.right;
    (fixed.empty() ? difference : difference.substitute(fixed)).collect_symbols(symbols);
  } catch (const NoInt64&) {  // in 64 bits this fact says nothing
  }
  return symbols;
}

struct Sign {  // what is known about a difference
  bool negative = false, zero = false, positive = false;  // possible
};

void narrow_by_fact(const SymExpr& d, const SymExpr& fact, Relation relation, Sign& sign) {
  const SymExpr same = d - fact, opposite = d + fact;
  if (same.is_constant()) {  // d == fact + k
    const int64_t k = same.constant();
    if (relation == Relation::kEq) sign = {k < 0 && sign.negative, k == 0 && sign.zero, k > 0 && sign.positive};
    if (relation == Relation::kNe && k == 0) sign.zero = false;
    const Wide high = relation == Relation::kLt ? Wide{k} - 1 : k;  // fact <= -1 or fact <= 0
    if (relation == Relation::kLt || relation == Relation::kLe) {
      if (high <= 0) sign.positive = false;
      if (high < 0) sign.zero = false;
    }
  }
  if (opposite.is_constant()) {  // d == k - fact
    const int64_t k = opposite.constant();
    if (relation == Relation::kEq) sign = {k < 0 && sign.negative, k == 0 && sign.zero, k > 0 && sign.positive};
    if (relation == Relation::kNe && k == 0) sign.zero = false;
    const Wide low = relation == Relation::kLt ? Wide{k} + 1 : k;
    if (relation == Relation::kLt || relation == Relation::kLe) {
      if (low >= 0) sign.negative = false;
      if (low > 0) sign.zero = false;
    }
  }
}

void narrow_by_fact(const SymExpr& d, const SizeFact& fact, const std::vector<SymExpr>& fixed, Sign& sign) {
  try {
    SymExpr f = fact.left - fact.right;
    if (!fixed.empty()) f = f.substitute(fixed);
    if (!f.is_constant()) narrow_by_fact(d, f, fact.relation, sign);
  } catch (const NoInt64&) {  // in 64 bits this fact says nothing
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

std::optional<bool> known_difference(SymExpr d, Relation relation, const ShapeEnv& env) {  // d against 0
  const std::vector<SymExpr> fixed = env.facts().empty() ? std::vector<SymExpr>{} : fixed_symbols(env);
  if (!fixed.empty()) d = d.substitute(fixed);
  if (d.is_constant()) return holds(d.constant(), relation, int64_t{0});
  const Bounds bounds = tight_bounds(d, env);
  Sign sign{bounds.low < 0, may_be_zero(bounds), bounds.high > 0};
  for (const SizeFact& fact : env.facts())
    if (!is_any_int64(fact)) narrow_by_fact(d, fact, fixed, sign);
  bool can_hold = false, can_fail = false;
  auto consider = [&](bool possible, int64_t representative) {
    if (possible) (holds(representative, relation, int64_t{0}) ? can_hold : can_fail) = true;
  };
  consider(sign.negative, -1);
  consider(sign.zero, 0);
  consider(sign.positive, 1);
  if (can_hold == can_fail) return std::nullopt;
  return can_hold;
}

std::vector<int64_t> hints_of(const ShapeEnv& env) {
  std::vector<int64_t> hints;
  hints.reserve(env.symbol_count());
  for (SymbolId id = 0; id < env.symbol_count(); ++id) hints.push_back(env.symbol(id).hint);
  return hints;
}

}  // namespace

const char* text_of(Relation relation) {
  switch (relation) {
    case Relation::kEq: return "==";
    case Relation::kNe: return "!=";
    case Relation::kLt: return "<";
    case Relation::kLe: return "<=";
  }
  return "";
}

SymbolId ShapeEnv::add_symbol(int64_t hint, int64_t low, int64_t high) {
  symbols_.push_back({hint, low, high});
  return static_cast<SymbolId>(symbols_.size() - 1);
}

int64_t ShapeEnv::hint(const SymExpr& e) const {
  if (e.is_constant()) return e.constant();
  return e.eval(hints_of(*this));
}

bool keep_exact(ShapeEnv& env, const SymExpr& e, const std::string& why) {
  if (e.is_constant() || e.is_symbol()) return true;
  if (!value_of(e, hints_of(env))) return false;
  bool fits = true;
  bounds_of(e, env, &fits);
  const bool listed = std::any_of(env.facts().begin(), env.facts().end(),
                                  [&](const SizeFact& fact) { return is_any_int64(fact) && fact.right == e; });
  if (!fits && !listed) env.add_fact({INT64_MIN, e, Relation::kLe, why});
  return true;
}

std::optional<bool> ShapeEnv::known(const SymExpr& left, Relation relation, const SymExpr& right) const {
  if (left.is_constant() && right.is_constant()) return holds(left.constant(), relation, right.constant());
  try {
    return known_difference(left - right, relation, *this);
  } catch (const NoInt64&) {
    return std::nullopt;
  }
}

std::vector<Equality> ShapeEnv::possible_equalities() const {
  const std::vector<SymExpr> fixed = fixed_symbols(*this);
  std::vector<Equality> found;
  for (SymbolId id = 0; id < symbol_count(); ++id) {
    if (symbols_[id].low == symbols_[id].high) found.push_back({id, symbols_[id].hint});
    if (!fixed.empty() && !(fixed[id] == SymExpr::symbol(id))) found.push_back({id, fixed[id]});
  }
  for (const SizeFact& fact : facts_) {
    if (is_any_int64(fact)) continue;
    const std::vector<SymbolId> symbols = compared_symbols(fact, fixed);
    if (symbols.size() == 1) found.push_back({symbols[0], symbols_[symbols[0]].hint});
    if (symbols.size() == 2 && symbols_[symbols[0]].hint == symbols_[symbols[1]].hint)
      found.push_back({symbols[1], SymExpr::symbol(symbols[0])});
  }
  const auto key = [](const Equality& e) {
    SymbolId lower = 0;
    const bool is_symbol = e.value.is_symbol(&lower);
    return std::tuple(e.symbol, is_symbol, lower);
  };
  std::ranges::sort(found, {}, key);
  const auto repeated = std::ranges::unique(found, {}, key);
  found.erase(repeated.begin(), repeated.end());
  return found;
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
