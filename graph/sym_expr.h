// graph/sym_expr.h — sizes as expressions: usually a constant, otherwise a normalised integer expression over symbols.
//
// Immutable and cheap to copy. Expressions are kept in a canonical form (sums of products with constant coefficients;
// floor division, modulo, min and max are atoms), so equal polynomials compare equal. Division is Python's floor
// division.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace framejit::graph {

using SymbolId = uint32_t;  // s0, s1, ...

class SymExpr {
 public:
  SymExpr(int64_t constant = 0) : constant_(constant) {}
  static SymExpr symbol(SymbolId id);
  static SymExpr floor_div(const SymExpr& a, const SymExpr& b);
  static SymExpr mod(const SymExpr& a, const SymExpr& b);
  static SymExpr min(const SymExpr& a, const SymExpr& b);
  static SymExpr max(const SymExpr& a, const SymExpr& b);

  bool is_constant() const { return !node_; }
  int64_t constant() const { return constant_; }  // only when is_constant()
  std::optional<int64_t> as_constant() const { return node_ ? std::nullopt : std::optional<int64_t>(constant_); }
  bool is_symbol(SymbolId* id = nullptr) const;

  int64_t eval(std::span<const int64_t> symbol_values) const;  // symbol_values[id]
  void collect_symbols(std::vector<SymbolId>& out) const;      // sorted, unique
  SymExpr substitute(std::span<const SymExpr> by_symbol) const;
  std::string text() const;                                    // "64*s0 + 1"
  size_t hash() const;

  friend SymExpr operator+(const SymExpr& a, const SymExpr& b);
  friend SymExpr operator-(const SymExpr& a, const SymExpr& b);
  friend SymExpr operator*(const SymExpr& a, const SymExpr& b);
  friend bool operator==(const SymExpr& a, const SymExpr& b);

  // The parts of the expression, for emitters: terms of a sum, factors of a product, or an atom's operands.
  struct Node;
  const Node* node() const { return node_.get(); }

 private:
  friend struct SymBuilder;
  int64_t constant_ = 0;
  std::shared_ptr<const Node> node_;
};

enum class SymOp : uint8_t { kSymbol, kSum, kProduct, kFloorDiv, kMod, kMin, kMax };

struct SymExpr::Node {
  SymOp op;
  SymbolId symbol = 0;
  int64_t coefficient = 0;         // kSum: the constant term; kProduct: the constant factor
  std::vector<SymExpr> operands;   // kSum: products or atoms; kProduct: atoms; others: two operands
  size_t hash = 0;
};

// The same value. A remainder of a constant divisor becomes x - c * (x // c), so that s + -s % 4 is seen to be a
// multiple of 4.
SymExpr without_mods(const SymExpr& e);

using SymSizes = std::vector<SymExpr>;
bool all_constant(const SymSizes& sizes);

}  // namespace framejit::graph
