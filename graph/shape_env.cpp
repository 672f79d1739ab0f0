// graph/shape_env.cpp — what can be proven about size expressions, and the record of what had to be assumed.
//
// A question becomes one about the sign of a difference d = left - right. The answer comes, in this order, from the
// difference being constant, from its bounds (symbols are shifted to start at zero, so that s0*s1 - s0 is seen to be
// positive), from recorded facts about the same difference, or from its form without remainders. Facts that fix a
// symbol (s0 == 4, s1 == s0) are substituted first.
#include "graph/shape_env.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

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

// If `fits` is given, it becomes false if e, or a part of it as value_of() evaluates it, may not be an int64.
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

bool is_sum(const SymExpr& e) { return !e.is_constant() && e.node()->op == SymOp::kSum; }
// An expression that is no constant: its terms, and the constant that is added to them.
std::span<const SymExpr> terms_of(const SymExpr& e) {
  return is_sum(e) ? std::span(e.node()->operands) : std::span(&e, 1);
}
int64_t constant_of(const SymExpr& e) { return is_sum(e) ? e.node()->coefficient : 0; }

// Bounds of a difference after s = low + s', s' >= 0, where only the coefficients count. Of sums of products of
// symbols.
Bounds shifted_bounds(const SymExpr& e, const ShapeEnv& env) {
  if (!is_sum(e)) return {};
  const auto is_shifted = [&](const SymExpr& atom) {
    SymbolId id = 0;
    return atom.is_symbol(&id) && env.symbol(id).low >= 0;
  };
  const auto atoms_of = [](const SymExpr& term) {
    return term.node()->op == SymOp::kProduct ? std::span(term.node()->operands) : std::span(&term, 1);
  };
  for (const SymExpr& term : terms_of(e))
    if (!std::ranges::all_of(atoms_of(term), is_shifted)) return {};
  std::vector<SymbolId> symbols;
  e.collect_symbols(symbols);
  std::vector<SymExpr> shifted(symbols.back() + 1);
  for (SymbolId id : symbols) shifted[id] = SymExpr::symbol(id) + env.symbol(id).low;
  const SymExpr moved = e.substitute(shifted);
  if (moved.is_constant()) return {moved.constant(), moved.constant()};
  const auto has_sign = [](int sign) {
    return [sign](const SymExpr& term) {
      return ((term.node()->op == SymOp::kProduct ? term.node()->coefficient : 1) < 0 ? -1 : 1) == sign;
    };
  };
  Bounds bounds;
  if (std::ranges::all_of(terms_of(moved), has_sign(1))) bounds.low = constant_of(moved);
  if (std::ranges::all_of(terms_of(moved), has_sign(-1))) bounds.high = constant_of(moved);
  return bounds;
}

// The symbol that a fact fixes, and its value: a constant or a lower symbol.
std::optional<Equality> fixed_symbol(const SizeFact& fact) {
  SymbolId id = 0, other = 0;
  if (fact.relation != Relation::kEq) return std::nullopt;
  const bool left = fact.left.is_symbol(&id);
  if (!left && !fact.right.is_symbol(&id)) return std::nullopt;
  const SymExpr& value = left ? fact.right : fact.left;
  if (!value.is_constant() && !(value.is_symbol(&other) && other < id)) return std::nullopt;
  return Equality{id, value};
}

struct Sign {  // what is known about a difference
  bool negative = false, zero = false, positive = false;  // possible
};

// a - b, if it is a constant in 64 bits. Neither is a constant.
std::optional<int64_t> constant_difference(const SymExpr& a, const SymExpr& b) {
  int64_t difference = 0;
  if (!std::ranges::equal(terms_of(a), terms_of(b)) ||
      __builtin_sub_overflow(constant_of(a), constant_of(b), &difference))
    return std::nullopt;
  return difference;
}

// d == fact + k, and fact <relation> 0.
void narrow_by_fact(int64_t k, Relation relation, Sign& sign) {
  if (relation == Relation::kEq) sign = {k < 0 && sign.negative, k == 0 && sign.zero, k > 0 && sign.positive};
  if (relation == Relation::kNe && k == 0) sign.zero = false;
  const Wide high = relation == Relation::kLt ? Wide{k} - 1 : k;  // fact <= -1 or fact <= 0
  if (relation == Relation::kLt || relation == Relation::kLe) {
    if (high <= 0) sign.positive = false;
    if (high < 0) sign.zero = false;
  }
}

// d == k - fact, and fact <relation> 0.
void narrow_by_opposite(int64_t k, Relation relation, Sign& sign) {
  if (relation == Relation::kEq) sign = {k < 0 && sign.negative, k == 0 && sign.zero, k > 0 && sign.positive};
  if (relation == Relation::kNe && k == 0) sign.zero = false;
  const Wide low = relation == Relation::kLt ? Wide{k} + 1 : k;
  if (relation == Relation::kLt || relation == Relation::kLe) {
    if (low >= 0) sign.negative = false;
    if (low > 0) sign.zero = false;
  }
}

// Whether the relation holds for all signs that are possible; nullopt if it depends.
std::optional<bool> answer_for(const Sign& sign, Relation relation) {
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

Relation negate(Relation relation) {  // of Eq and Ne; the others also swap sides
  switch (relation) {
    case Relation::kEq: return Relation::kNe;
    case Relation::kNe: return Relation::kEq;
    case Relation::kLt: return Relation::kLe;
    case Relation::kLe: return Relation::kLt;
  }
  return relation;
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

void ShapeEnv::add_fact(SizeFact fact) {
  facts_.push_back(std::move(fact));
  if (fixed_symbol(facts_.back())) fix_symbols();
  else reduce(facts_.back());
}

void ShapeEnv::add_line(size_t from, const std::string& line) {
  for (size_t i = from; i < facts_.size(); ++i) facts_[i].rule = std::exchange(facts_[i].why, line);
}

void ShapeEnv::fix_symbols() {
  fixed_.clear();
  for (const SizeFact& fact : facts_) {
    const auto fixed = fixed_symbol(fact);
    if (!fixed) continue;
    for (auto id = static_cast<SymbolId>(fixed_.size()); id <= fixed->symbol; ++id)
      fixed_.push_back(SymExpr::symbol(id));
    fixed_[fixed->symbol] = fixed->value.substitute(fixed_);
  }
  for (SymExpr& value : fixed_) value = value.substitute(fixed_);  // facts come in any order
  reduced_.clear();
  for (const SizeFact& fact : facts_) reduce(fact);
}

void ShapeEnv::reduce(const SizeFact& fact) {
  if (is_any_int64(fact)) return;
  try {
    SymExpr difference = fact.left - fact.right;
    if (!fixed_.empty()) difference = difference.substitute(fixed_);
    if (!difference.is_constant()) reduced_.push_back({difference, SymExpr(0) - difference, fact.relation});
  } catch (const NoInt64&) {  // in 64 bits this fact says nothing
  }
}

// d against 0. Cheap answers come first: a compile asks many thousand times.
std::optional<bool> ShapeEnv::known_difference(SymExpr d, Relation relation) const {
  if (!fixed_.empty()) d = d.substitute(fixed_);
  if (d.is_constant()) return holds(d.constant(), relation, int64_t{0});
  Bounds bounds = bounds_of(d, *this);
  const auto sign_of = [&] { return Sign{bounds.low < 0, may_be_zero(bounds), bounds.high > 0}; };
  if (const auto answer = answer_for(sign_of(), relation)) return answer;
  const Bounds shifted = shifted_bounds(d, *this);
  bounds = {std::max(bounds.low, shifted.low), std::min(bounds.high, shifted.high)};
  Sign sign = sign_of();
  for (const Reduced& fact : reduced_) {
    if (const auto k = constant_difference(d, fact.difference)) narrow_by_fact(*k, fact.relation, sign);
    if (const auto k = constant_difference(d, fact.opposite)) narrow_by_opposite(*k, fact.relation, sign);
  }
  if (const auto answer = answer_for(sign, relation)) return answer;
  const SymExpr expanded = without_mods(d);
  if (!expanded.is_constant()) return std::nullopt;
  return holds(expanded.constant(), relation, int64_t{0});
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
    return known_difference(left - right, relation);
  } catch (const NoInt64&) {
    return std::nullopt;
  }
}

std::vector<Equality> ShapeEnv::possible_equalities() const {
  std::vector<Equality> found;
  for (SymbolId id = 0; id < symbol_count(); ++id) {
    if (symbols_[id].low == symbols_[id].high) found.push_back({id, symbols_[id].hint});
    if (id < fixed_.size() && !(fixed_[id] == SymExpr::symbol(id))) found.push_back({id, fixed_[id]});
  }
  for (const Reduced& fact : reduced_) {
    std::vector<SymbolId> symbols;
    fact.difference.collect_symbols(symbols);
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
  add_fact({swap ? right : left, swap ? left : right, answer ? relation : negate(relation), why});
  return answer;
}

int64_t ShapeEnv::specialise(const SymExpr& e, const std::string& why) {
  const int64_t value = hint(e);
  if (!e.is_constant() && known(e, Relation::kEq, value) != true) add_fact({e, value, Relation::kEq, why});
  return value;
}

}  // namespace framejit::graph
