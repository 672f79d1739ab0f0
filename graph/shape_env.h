// graph/shape_env.h — the symbols of one capture: hints, ranges, and every fact that was used about them.
//
// The answer to a question about a symbolic size comes from constants, from ranges and known facts, or from the hints.
// An answer from hints is always recorded as a fact, which a guard checks.
#pragma once

#include <string>
#include <vector>

#include "graph/sym_expr.h"

namespace framejit::graph {

enum class Relation : uint8_t { kEq, kNe, kLt, kLe };
template <class Number>
constexpr bool holds(Number left, Relation relation, Number right) {
  switch (relation) {
    case Relation::kEq: return left == right;
    case Relation::kNe: return left != right;
    case Relation::kLt: return left < right;
    case Relation::kLe: return left <= right;
  }
  return false;
}

const char* text_of(Relation relation);  // "=="

struct SizeFact {  // holds: left <relation> right
  SymExpr left, right;
  Relation relation;
  std::string why;   // user line or rule that asked
  std::string rule;  // the rule, if `why` is the line
};

struct SymbolInfo {
  int64_t hint;
  int64_t low = 2, high = INT64_MAX;  // sizes 0 and 1 specialise, so a symbol is at least 2, unless it was asked for
};

struct Equality {  // of a symbol and a constant or a lower symbol
  SymbolId symbol;
  SymExpr value;
};

class ShapeEnv {
 public:
  SymbolId add_symbol(int64_t hint, int64_t low = 2, int64_t high = INT64_MAX);
  size_t symbol_count() const { return symbols_.size(); }
  const SymbolInfo& symbol(SymbolId id) const { return symbols_[id]; }
  int64_t hint(const SymExpr& e) const;  // value of e for the hints

  // The answer without the hints; nullopt if it is not known.
  std::optional<bool> known(const SymExpr& left, Relation relation, const SymExpr& right) const;
  // The equalities that known() may confirm, by symbol, constants first. Only a fact or a range of one number proves an
  // equality, so there are at most as many as symbols and facts: most symbols of a long loop are never compared.
  std::vector<Equality> possible_equalities() const;
  // The answer for the hints; if it is not known, it (or its negation) becomes a fact.
  bool decide(const SymExpr& left, Relation relation, const SymExpr& right, const std::string& why);
  // Makes e a constant: records e == hint. Returns it.
  int64_t specialise(const SymExpr& e, const std::string& why);

  void add_line(size_t from, const std::string& line);  // rules asked for the facts from `from` on, for this line
  void add_fact(SizeFact fact);  // decided here, or known from elsewhere: from a parsed text or the user
  const std::vector<SizeFact>& facts() const { return facts_; }

 private:
  // A fact as questions need it: difference <relation> 0. It has no symbol that another fact fixes.
  struct Reduced {
    SymExpr difference, opposite;
    Relation relation;
  };

  std::optional<bool> known_difference(SymExpr d, Relation relation) const;
  void fix_symbols();
  void reduce(const SizeFact& fact);

  std::vector<SymbolInfo> symbols_;
  std::vector<SizeFact> facts_;
  std::vector<SymExpr> fixed_;  // constants and lower symbols for symbols that facts fix; empty if there are none
  std::vector<Reduced> reduced_;
};

}  // namespace framejit::graph
