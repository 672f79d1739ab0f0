// graph/int64_range.h — sizes and Python ints as int64: an expression has its true value in a run, or the guards miss.
//
// A SymExpr means an integer of any length. NoInt64 is thrown where a coefficient or a value would need more than 64
// bits or is divided by zero; what a trace computes of Python ints goes through keep_exact(), so that none of it does
// so in a later run.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "graph/shape_env.h"

namespace framejit::graph {

class NoInt64 : public std::range_error {
 public:
  NoInt64() : std::range_error("a size that is no 64-bit integer") {}
};

// Sizes become symbols within these. 0 and 1 specialise; no memory holds more than the most, so that most of what is
// made of sizes is seen to fit.
inline constexpr int64_t kLeastSize = SymbolInfo{}.low, kMostSize = int64_t{1} << 40;

// As SymExpr::eval; nullopt where that throws NoInt64.
std::optional<int64_t> value_of(const SymExpr& e, std::span<const int64_t> symbol_values);

// That e, evaluated as value_of() does it, is an int64 in every run: proven, or a fact. False when it is none for the
// hints.
bool keep_exact(ShapeEnv& env, const SymExpr& e, const std::string& why);
// True of the facts that keep_exact() adds: the right side is an int64.
inline bool is_any_int64(const SizeFact& fact) {
  return fact.relation == Relation::kLe && fact.left.as_constant() == INT64_MIN;
}

}  // namespace framejit::graph
