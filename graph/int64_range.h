// graph/int64_range.h — sizes and Python ints as int64: in a run, an expression has its true value, or a guard fails.
//
// A SymExpr stands for an integer of any length. NoInt64 is thrown if a coefficient or a value would need more than 64
// bits, or on a division by zero. Results that a trace computes from Python ints go through keep_exact(), so that this
// does not happen in a later run.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "graph/shape_env.h"

namespace framejit::graph {

class NoInt64 : public std::range_error {
 public:
  NoInt64() : std::range_error("a size that does not fit 64 bits") {}
};

// The bounds of symbols that stand for sizes. 0 and 1 specialise. No memory holds more elements than the upper bound.
// So most size expressions are known to fit.
inline constexpr int64_t kLeastSize = SymbolInfo{}.low, kMostSize = int64_t{1} << 40;

// As SymExpr::eval; nullopt if that throws NoInt64.
std::optional<int64_t> value_of(const SymExpr& e, std::span<const int64_t> symbol_values);

// Ensures that e, evaluated as value_of() does it, is an int64 in every run: by a proof, or by a new fact. False if it
// is no int64 for the hints.
bool keep_exact(ShapeEnv& env, const SymExpr& e, const std::string& why);
// True of the facts that keep_exact() adds: the right side is an int64.
inline bool is_any_int64(const SizeFact& fact) {
  return fact.relation == Relation::kLe && fact.left.as_constant() == INT64_MIN;
}

}  // namespace framejit::graph
