// graph/sym_expr.cpp — the canonical form of SymExpr.
//
// An expression is a polynomial: a constant plus terms (coefficient, sorted atoms), in descending graded lexicographic
// order.
// Atoms are symbols, floor divisions, modulos, minima and maxima. Every operation unpacks its operands into
// polynomials, works there, and packs the result; packing is the only place where nodes are made, so equal polynomials
// have equal nodes.
// Division first tries to be exact (graded order is a monomial order, so long division finds every exact quotient),
// then drops common factors and takes out multiples of a constant divisor; the rest becomes an atom. Arithmetic is
// exact: a coefficient that needs more than 64 bits throws NoInt64.
#include "graph/sym_expr.h"

#include <algorithm>
#include <numeric>

#include "graph/int64_range.h"
#include "runtime/base/exact_int.h"
#include "runtime/base/hash_index.h"
#include "runtime/base/result.h"

namespace framejit::graph {

using Atoms = std::vector<SymExpr>;

struct Term {
  int64_t coefficient;
  Atoms atoms;  // sorted; a power repeats its atom
};

struct Polynomial {
  int64_t constant = 0;
  std::vector<Term> terms;  // sorted, no zero coefficients, no equal atoms
};

namespace {

int compare(const SymExpr& a, const SymExpr& b);

int compare(const Atoms& a, const Atoms& b) {
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;  // higher degree first
  for (size_t i = 0; i < a.size(); ++i)
    if (const int c = compare(a[i], b[i])) return c;
  return 0;
}

// A total order that does not use addresses: constants, then by kind, symbol, coefficient, operands.
int compare(const SymExpr& a, const SymExpr& b) {
  if (a.node() == b.node() && a.node() != nullptr) return 0;
  if (a.is_constant() || b.is_constant()) {
    if (a.is_constant() != b.is_constant()) return a.is_constant() ? 1 : -1;
    return a.constant() == b.constant() ? 0 : a.constant() < b.constant() ? -1 : 1;
  }
  const SymExpr::Node &x = *a.node(), &y = *b.node();
  if (x.op != y.op) return x.op < y.op ? -1 : 1;
  if (x.symbol != y.symbol) return x.symbol < y.symbol ? -1 : 1;
  if (const int c = compare(x.operands, y.operands)) return c;
  return x.coefficient == y.coefficient ? 0 : x.coefficient < y.coefficient ? -1 : 1;
}

using Operation = bool (*)(int64_t, int64_t, int64_t&);

template <Operation operation> int64_t exactly(int64_t a, int64_t b) {
  int64_t result = 0;
  if (!operation(a, b, result)) throw NoInt64();
  return result;
}
constexpr auto add_int = exactly<exact::add>, mul_int = exactly<exact::multiply>,
               floor_div_int = exactly<exact::floor_div>, mod_int = exactly<exact::mod>;

bool apply(SymOp op, int64_t a, int64_t b, int64_t& out) {
  switch (op) {
    case SymOp::kSymbol: return false;
    case SymOp::kSum: return exact::add(a, b, out);
    case SymOp::kProduct: return exact::multiply(a, b, out);
    case SymOp::kFloorDiv: return exact::floor_div(a, b, out);
    case SymOp::kMod: return exact::mod(a, b, out);
    case SymOp::kMin: out = std::min(a, b); return true;
    case SymOp::kMax: out = std::max(a, b); return true;
  }
  return false;
}

void add_term(Polynomial& p, Term term) {
  if (term.coefficient == 0) return;
  if (term.atoms.empty()) {
    p.constant = add_int(p.constant, term.coefficient);
    return;
  }
  auto at = std::lower_bound(p.terms.begin(), p.terms.end(), term.atoms,
                             [](const Term& t, const Atoms& atoms) { return compare(t.atoms, atoms) < 0; });
  if (at == p.terms.end() || compare(at->atoms, term.atoms) != 0) {
    p.terms.insert(at, std::move(term));
    return;
  }
  at->coefficient = add_int(at->coefficient, term.coefficient);
  if (at->coefficient == 0) p.terms.erase(at);
}

// a / b as atoms, if every atom of b is in a.
bool divide_atoms(const Atoms& a, const Atoms& b, Atoms& quotient) {
  quotient = a;
  for (const SymExpr& atom : b) {
    auto at = std::find_if(quotient.begin(), quotient.end(), [&](const SymExpr& x) { return compare(x, atom) == 0; });
    if (at == quotient.end()) return false;
    quotient.erase(at);
  }
  return true;
}

Term multiply(const Term& a, const Term& b) {
  Term product{mul_int(a.coefficient, b.coefficient), a.atoms};
  product.atoms.insert(product.atoms.end(), b.atoms.begin(), b.atoms.end());
  std::sort(product.atoms.begin(), product.atoms.end(),
            [](const SymExpr& x, const SymExpr& y) { return compare(x, y) < 0; });
  return product;
}

}  // namespace

struct SymBuilder {
  static SymExpr make(SymExpr::Node node) {
    uint64_t h = mix(static_cast<uint64_t>(node.op), node.symbol);
    h = mix(h, static_cast<uint64_t>(node.coefficient));
    for (const SymExpr& operand : node.operands) h = mix(h, operand.hash());
    node.hash = h;
    SymExpr e;
    e.node_ = std::make_shared<const SymExpr::Node>(std::move(node));
    return e;
  }

  static SymExpr atom(SymOp op, const SymExpr& a, const SymExpr& b) { return make({op, 0, 0, {a, b}, 0}); }

  static Term term_of(const SymExpr& e) {  // e is an atom or a product
    const SymExpr::Node& n = *e.node();
    if (n.op == SymOp::kProduct) return {n.coefficient, n.operands};
    return {1, {e}};
  }

  static Polynomial unpack(const SymExpr& e) {
    Polynomial p;
    if (e.is_constant()) {
      p.constant = e.constant();
    } else if (e.node()->op == SymOp::kSum) {
      p.constant = e.node()->coefficient;
      for (const SymExpr& operand : e.node()->operands) p.terms.push_back(term_of(operand));
    } else {
      p.terms.push_back(term_of(e));
    }
    return p;
  }

  static SymExpr pack(const Term& t) {
    if (t.coefficient == 1 && t.atoms.size() == 1) return t.atoms[0];
    return make({SymOp::kProduct, 0, t.coefficient, t.atoms, 0});
  }

  static SymExpr pack(const Polynomial& p) {
    if (p.terms.empty()) return p.constant;
    if (p.terms.size() == 1 && p.constant == 0) return pack(p.terms[0]);
    SymExpr::Node node{SymOp::kSum, 0, p.constant, {}, 0};
    for (const Term& t : p.terms) node.operands.push_back(pack(t));
    return make(std::move(node));
  }

  static void add(Polynomial& sum, const SymExpr& e) {
    if (e.is_constant()) {
      sum.constant = add_int(sum.constant, e.constant());
    } else if (e.node()->op == SymOp::kSum) {
      sum.constant = add_int(sum.constant, e.node()->coefficient);
      for (const SymExpr& operand : e.node()->operands) add_term(sum, term_of(operand));
    } else {
      add_term(sum, term_of(e));
    }
  }

  static SymExpr sum(int64_t constant, std::span<const SymExpr> parts) {
    Polynomial sum{constant, {}};
    for (const SymExpr& part : parts) add(sum, part);
    return pack(sum);
  }

  // The polynomial q with a == q * b, if there is one with integer coefficients.
  static std::optional<Polynomial> divide_exactly(Polynomial a, const Polynomial& b) {
    const Term lead = b.terms.empty() ? Term{b.constant, {}} : b.terms[0];
    if (lead.coefficient == 0) return std::nullopt;
    Polynomial quotient;
    for (int guard = 0; guard < 64; ++guard) {
      if (a.terms.empty() && a.constant == 0) return quotient;
      const Term top = a.terms.empty() ? Term{a.constant, {}} : a.terms[0];
      Term step{0, {}};
      if (mod_int(top.coefficient, lead.coefficient) != 0 || !divide_atoms(top.atoms, lead.atoms, step.atoms))
        return std::nullopt;
      step.coefficient = floor_div_int(top.coefficient, lead.coefficient);
      add_term(quotient, step);
      for (const Term& t : b.terms) {
        Term product = multiply(t, step);
        product.coefficient = mul_int(product.coefficient, -1);
        add_term(a, std::move(product));
      }
      if (b.constant != 0) add_term(a, {mul_int(mul_int(b.constant, step.coefficient), -1), step.atoms});
    }
    return std::nullopt;
  }

  // a == divisor * multiple + rest, taking every term whose coefficient the divisor divides.
  static void split_multiples(const Polynomial& a, int64_t divisor, Polynomial& multiple, Polynomial& rest) {
    for (const Term& t : a.terms) {
      const bool divides = mod_int(t.coefficient, divisor) == 0;
      (divides ? multiple : rest)
          .terms.push_back({divides ? floor_div_int(t.coefficient, divisor) : t.coefficient, t.atoms});
    }
    multiple.constant = floor_div_int(a.constant, divisor);
    rest.constant = mod_int(a.constant, divisor);
  }

  static int64_t content_of_terms(const Polynomial& p) {
    int64_t g = 0;
    for (const Term& t : p.terms) g = std::gcd(g, t.coefficient);
    return g;
  }

  // The largest product that divides every term of both; its coefficient is positive.
  static Term common_factor(const Polynomial& a, const Polynomial& b) {
    const bool has_constant = a.constant != 0 || b.constant != 0;
    Term common{std::gcd(std::gcd(content_of_terms(a), a.constant), std::gcd(content_of_terms(b), b.constant)), {}};
    if (common.coefficient <= 0) common.coefficient = 1;  // that of INT64_MIN alone
    if (has_constant || b.terms.empty()) return common;
    for (const SymExpr& atom : b.terms[0].atoms) {
      Term more = common;
      more.atoms.push_back(atom);
      Atoms rest;
      const auto divides = [&](const Term& t) { return divide_atoms(t.atoms, more.atoms, rest); };
      if (std::ranges::all_of(a.terms, divides) && std::ranges::all_of(b.terms, divides)) common = std::move(more);
    }
    return common;
  }

  static Polynomial divided(const Polynomial& p, const Term& factor) {
    Polynomial quotient;
    quotient.constant = p.constant / factor.coefficient;
    for (const Term& t : p.terms) {
      Term term{t.coefficient / factor.coefficient, {}};
      divide_atoms(t.atoms, factor.atoms, term.atoms);
      add_term(quotient, std::move(term));
    }
    return quotient;
  }

  // A remainder counts like its operand if the divisor is a multiple: (x % 8) % 4 is x % 4.
  static std::optional<SymExpr> without_inner_mods(const Polynomial& p, int64_t divisor) {
    for (const Term& t : p.terms) {
      const SymExpr::Node& n = *t.atoms[0].node();
      int64_t multiple = 0;
      if (t.atoms.size() != 1 || n.op != SymOp::kMod || !n.operands[1].is_constant()) continue;
      if (!exact::multiply(t.coefficient, n.operands[1].constant_, multiple) || mod_int(multiple, divisor) != 0)
        continue;
      return pack(p) + SymExpr(t.coefficient) * (n.operands[0] - t.atoms[0]);
    }
    return std::nullopt;
  }
};

SymExpr SymExpr::symbol(SymbolId id) { return SymBuilder::make({SymOp::kSymbol, id, 0, {}, 0}); }

bool SymExpr::is_symbol(SymbolId* id) const {
  if (!node_ || node_->op != SymOp::kSymbol) return false;
  if (id != nullptr) *id = node_->symbol;
  return true;
}

SymExpr operator+(const SymExpr& a, const SymExpr& b) {
  if (a.is_constant() && b.is_constant()) return add_int(a.constant_, b.constant_);
  if (a == SymExpr(0)) return b;
  if (b == SymExpr(0)) return a;
  Polynomial sum = SymBuilder::unpack(a);
  SymBuilder::add(sum, b);
  return SymBuilder::pack(sum);
}

SymExpr operator-(const SymExpr& a, const SymExpr& b) { return a + SymExpr(-1) * b; }

SymExpr operator*(const SymExpr& a, const SymExpr& b) {
  if (a.is_constant() && b.is_constant()) return mul_int(a.constant_, b.constant_);
  if (a == SymExpr(1)) return b;
  if (b == SymExpr(1)) return a;
  if (a == SymExpr(0) || b == SymExpr(0)) return 0;
  const Polynomial x = SymBuilder::unpack(a), y = SymBuilder::unpack(b);
  Polynomial product;
  product.constant = mul_int(x.constant, y.constant);
  for (const Term& s : x.terms) {
    for (const Term& t : y.terms) add_term(product, multiply(s, t));
    add_term(product, {mul_int(s.coefficient, y.constant), s.atoms});
  }
  for (const Term& t : y.terms) add_term(product, {mul_int(t.coefficient, x.constant), t.atoms});
  return SymBuilder::pack(product);
}

SymExpr SymExpr::floor_div(const SymExpr& a, const SymExpr& b) {
  if (a.is_constant() && b.is_constant()) return floor_div_int(a.constant_, b.constant_);
  if (b == SymExpr(1)) return a;
  const Polynomial x = SymBuilder::unpack(a), y = SymBuilder::unpack(b);
  if (auto exact = SymBuilder::divide_exactly(x, y)) return SymBuilder::pack(*exact);
  if (b.is_constant()) {
    Polynomial multiple, rest;
    SymBuilder::split_multiples(x, b.constant_, multiple, rest);
    const SymExpr whole = SymBuilder::pack(multiple);
    if (rest.terms.empty()) return whole;  // 0 <= rest < divisor (or > divisor when negative): its quotient is 0
    if (const SymExpr expanded = without_mods(a); !(expanded == a)) {
      Polynomial all, left;
      SymBuilder::split_multiples(SymBuilder::unpack(expanded), b.constant_, all, left);
      if (left.terms.empty()) return SymBuilder::pack(all);
    }
    if (b.constant_ > 0 && rest.terms[0].coefficient < 0)  // rounded down is the negative, rounded up
      return whole - floor_div(SymExpr(b.constant_ - 1) - SymBuilder::pack(rest), b);
    const int64_t common = std::gcd(SymBuilder::content_of_terms(rest), b.constant_);
    if (common == b.constant_ || common <= 1 || b.constant_ < 0)
      return whole + SymBuilder::atom(SymOp::kFloorDiv, SymBuilder::pack(rest), b);
    Polynomial reduced, none;  // (g*t + c) // (g*d) == (t + c // g) // d
    SymBuilder::split_multiples(rest, common, reduced, none);
    return whole + SymBuilder::atom(SymOp::kFloorDiv, SymBuilder::pack(reduced), b.constant_ / common);
  }
  const Term common = SymBuilder::common_factor(x, y);
  if (common.coefficient == 1 && common.atoms.empty()) return SymBuilder::atom(SymOp::kFloorDiv, a, b);
  return floor_div(SymBuilder::pack(SymBuilder::divided(x, common)), SymBuilder::pack(SymBuilder::divided(y, common)));
}

SymExpr SymExpr::mod(const SymExpr& a, const SymExpr& b) {
  if (a.is_constant() && b.is_constant()) return mod_int(a.constant_, b.constant_);
  if (b == SymExpr(1)) return 0;
  const Polynomial x = SymBuilder::unpack(a), y = SymBuilder::unpack(b);
  if (SymBuilder::divide_exactly(x, y)) return 0;
  if (!b.is_constant()) {
    const Term common = SymBuilder::common_factor(x, y);
    if (common.coefficient == 1 && common.atoms.empty()) return SymBuilder::atom(SymOp::kMod, a, b);
    return SymBuilder::pack(Polynomial{0, {common}}) *
           mod(SymBuilder::pack(SymBuilder::divided(x, common)), SymBuilder::pack(SymBuilder::divided(y, common)));
  }
  if (const auto plainer = SymBuilder::without_inner_mods(x, b.constant_)) return mod(*plainer, b);
  Polynomial multiple, rest;
  SymBuilder::split_multiples(x, b.constant_, multiple, rest);
  if (rest.terms.empty()) return rest.constant;
  return SymBuilder::atom(SymOp::kMod, SymBuilder::pack(rest), b);
}

SymExpr without_mods(const SymExpr& e) {
  const auto is_mod = [](const SymExpr& x) {
    return !x.is_constant() && x.node()->op == SymOp::kMod && x.node()->operands[1].is_constant();
  };
  if (e.is_constant()) return e;
  const SymExpr::Node& n = *e.node();
  if (is_mod(e)) return n.operands[0] - n.operands[1] * SymExpr::floor_div(n.operands[0], n.operands[1]);
  if (n.op != SymOp::kSum && n.op != SymOp::kProduct) return e;
  std::vector<SymExpr> parts;
  bool changed = false;
  for (const SymExpr& part : n.operands) {
    parts.push_back(without_mods(part));
    changed = changed || parts.back().node() != part.node();
  }
  if (!changed) return e;
  if (n.op == SymOp::kSum) return SymBuilder::sum(n.coefficient, parts);
  SymExpr value = n.coefficient;
  for (const SymExpr& part : parts) value = value * part;
  return value;
}

SymExpr SymExpr::min(const SymExpr& a, const SymExpr& b) {
  const SymExpr difference = a - b;
  if (difference.is_constant()) return difference.constant_ <= 0 ? a : b;
  return compare(a, b) <= 0 ? SymBuilder::atom(SymOp::kMin, a, b) : SymBuilder::atom(SymOp::kMin, b, a);
}

SymExpr SymExpr::max(const SymExpr& a, const SymExpr& b) {
  const SymExpr difference = a - b;
  if (difference.is_constant()) return difference.constant_ >= 0 ? a : b;
  return compare(a, b) <= 0 ? SymBuilder::atom(SymOp::kMax, a, b) : SymBuilder::atom(SymOp::kMax, b, a);
}

bool operator==(const SymExpr& a, const SymExpr& b) {
  if (a.node_ == b.node_) return a.node_ != nullptr || a.constant_ == b.constant_;
  if (!a.node_ || !b.node_ || a.node_->hash != b.node_->hash) return false;
  return compare(a, b) == 0;
}

size_t SymExpr::hash() const { return node_ ? node_->hash : mix(0x51ed270b, static_cast<uint64_t>(constant_)); }

std::optional<int64_t> value_of(const SymExpr& e, std::span<const int64_t> symbol_values) {
  if (e.is_constant()) return e.constant();
  const SymExpr::Node& n = *e.node();
  if (n.op == SymOp::kSymbol) {
    FJ_ASSERT(n.symbol < symbol_values.size(), "no value for symbol s" + std::to_string(n.symbol));
    return symbol_values[n.symbol];
  }
  const bool folds = n.op == SymOp::kSum || n.op == SymOp::kProduct;
  std::optional<int64_t> value = folds ? n.coefficient : value_of(n.operands[0], symbol_values);
  for (size_t i = folds ? 0 : 1; i < n.operands.size() && value; ++i) {
    const std::optional<int64_t> right = value_of(n.operands[i], symbol_values);
    if (!right || !apply(n.op, *value, *right, *value)) return std::nullopt;
  }
  return value;
}

int64_t SymExpr::eval(std::span<const int64_t> symbol_values) const {
  const std::optional<int64_t> result = value_of(*this, symbol_values);
  if (!result) throw NoInt64();
  return *result;
}

void SymExpr::collect_symbols(std::vector<SymbolId>& out) const {
  if (!node_) return;
  if (node_->op == SymOp::kSymbol) {
    auto at = std::lower_bound(out.begin(), out.end(), node_->symbol);
    if (at == out.end() || *at != node_->symbol) out.insert(at, node_->symbol);
  }
  for (const SymExpr& operand : node_->operands) operand.collect_symbols(out);
}

SymExpr SymExpr::substitute(std::span<const SymExpr> by_symbol) const {
  if (!node_) return *this;
  const Node& n = *node_;
  if (n.op == SymOp::kSymbol) return n.symbol < by_symbol.size() ? by_symbol[n.symbol] : *this;
  std::vector<SymExpr> operands;
  operands.reserve(n.operands.size());
  bool changed = false;
  for (const SymExpr& operand : n.operands) {
    operands.push_back(operand.substitute(by_symbol));
    changed = changed || !(operands.back() == operand);
  }
  if (!changed) return *this;
  switch (n.op) {
    case SymOp::kSymbol: break;
    case SymOp::kSum: return SymBuilder::sum(n.coefficient, operands);
    case SymOp::kProduct: {
      SymExpr value = n.coefficient;
      for (const SymExpr& operand : operands) value = value * operand;
      return value;
    }
    case SymOp::kFloorDiv: return floor_div(operands[0], operands[1]);
    case SymOp::kMod: return mod(operands[0], operands[1]);
    case SymOp::kMin: return min(operands[0], operands[1]);
    case SymOp::kMax: return max(operands[0], operands[1]);
  }
  return *this;
}

namespace {

// An operand of * // %: atoms bare unless they are divisions themselves.
std::string factor_text(const SymExpr& e) {
  if (e.is_constant()) return e.constant() < 0 ? "(" + e.text() + ")" : e.text();
  const SymOp op = e.node()->op;
  return op == SymOp::kSymbol || op == SymOp::kMin || op == SymOp::kMax ? e.text() : "(" + e.text() + ")";
}

std::string product_text(int64_t coefficient, const Atoms& atoms) {
  std::string text = coefficient == 1 ? "" : coefficient == -1 ? "-" : std::to_string(coefficient) + "*";
  for (size_t i = 0; i < atoms.size(); ++i) text += (i != 0 ? "*" : "") + factor_text(atoms[i]);
  return text;
}

}  // namespace

std::string SymExpr::text() const {
  if (!node_) return std::to_string(constant_);
  const Node& n = *node_;
  switch (n.op) {
    case SymOp::kSymbol: return "s" + std::to_string(n.symbol);
    case SymOp::kProduct: return product_text(n.coefficient, n.operands);
    case SymOp::kFloorDiv: return factor_text(n.operands[0]) + "//" + factor_text(n.operands[1]);
    case SymOp::kMod: return factor_text(n.operands[0]) + " % " + factor_text(n.operands[1]);
    case SymOp::kMin: return "min(" + n.operands[0].text() + ", " + n.operands[1].text() + ")";
    case SymOp::kMax: return "max(" + n.operands[0].text() + ", " + n.operands[1].text() + ")";
    case SymOp::kSum: break;
  }
  std::string text;
  auto append = [&](const std::string& part) {
    if (text.empty()) text = part;
    else if (part[0] == '-') text += " - " + part.substr(1);
    else text += " + " + part;
  };
  for (const SymExpr& operand : n.operands) append(operand.text());
  if (n.coefficient != 0) append(std::to_string(n.coefficient));
  return text;
}

bool all_constant(const SymSizes& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const SymExpr& e) { return e.is_constant(); });
}

}  // namespace framejit::graph
