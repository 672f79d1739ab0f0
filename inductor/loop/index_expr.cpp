// inductor/loop/index_expr.cpp — range-aware rewriting of index expressions.
//
// One bottom-up walk rebuilds the expression through SymExpr's own operators; at each floor division and modulo it
// tries three rules: multiples of the divisor can be taken out of the numerator (floor division distributes over them),
// a numerator within [0, divisor) gives 0 or itself, and d*(e // d) + e % d is e. Upper bounds are polynomials, with
// the extents' largest values substituted.
#include "inductor/loop/index_expr.h"

#include <algorithm>

namespace framejit::inductor {

using graph::SymbolId;
using graph::SymOp;

DimBounds bounds_of(const Nest& nest, const NestSymbols& symbols) {
  DimBounds bounds{symbols, nest.ranges};
  bounds.extents.insert(bounds.extents.end(), nest.reduced.begin(), nest.reduced.end());
  return bounds;
}

SymExpr substitute(const SymExpr& e, const std::function<SymExpr(SymbolId)>& replace) {
  if (e.is_constant()) return e;
  const SymExpr::Node& n = *e.node();
  switch (n.op) {
    case SymOp::kSymbol: return replace(n.symbol);
    case SymOp::kSum: {
      SymExpr sum = n.coefficient;
      for (const SymExpr& x : n.operands) sum = sum + substitute(x, replace);
      return sum;
    }
    case SymOp::kProduct: {
      SymExpr product = n.coefficient;
      for (const SymExpr& x : n.operands) product = product * substitute(x, replace);
      return product;
    }
    case SymOp::kFloorDiv:
      return SymExpr::floor_div(substitute(n.operands[0], replace), substitute(n.operands[1], replace));
    case SymOp::kMod: return SymExpr::mod(substitute(n.operands[0], replace), substitute(n.operands[1], replace));
    case SymOp::kMin: return SymExpr::min(substitute(n.operands[0], replace), substitute(n.operands[1], replace));
    case SymOp::kMax: return SymExpr::max(substitute(n.operands[0], replace), substitute(n.operands[1], replace));
  }
  return e;
}

bool mentions(const SymExpr& e, SymbolId id) {
  if (e.is_constant()) return false;
  if (e.node()->op == SymOp::kSymbol) return e.node()->symbol == id;
  return std::any_of(e.node()->operands.begin(), e.node()->operands.end(),
                     [&](const SymExpr& x) { return mentions(x, id); });
}

bool mentions_values(const SymExpr& e, const NestSymbols& symbols) {
  std::vector<SymbolId> ids;
  e.collect_symbols(ids);
  return std::any_of(ids.begin(), ids.end(), [&](SymbolId id) { return symbols.is_value(id); });
}

LoopInst renumbered(LoopInst inst, const NestSymbols& symbols, const std::vector<InstId>& values) {
  for (int k = 0; k < inst.operand_count(); ++k) inst.operands[k] = values[inst.operands[k]];
  for (SymExpr& e : inst.index)
    e = substitute(e, [&](SymbolId id) {
      return symbols.is_value(id) ? symbols.value(values[symbols.inst_of(id)]) : SymExpr::symbol(id);
    });
  return inst;
}

bool split_linear(const SymExpr& e, const SymExpr& dim, SymExpr& coefficient, SymExpr& rest) {
  SymbolId id = 0;
  if (!dim.is_symbol(&id)) return false;
  if (!mentions(e, id)) {
    coefficient = 0;
    rest = e;
    return true;
  }
  rest = substitute(e, [&](SymbolId s) { return s == id ? SymExpr(0) : SymExpr::symbol(s); });
  coefficient = substitute(e, [&](SymbolId s) { return s == id ? SymExpr(1) : SymExpr::symbol(s); }) - rest;
  return coefficient * dim + rest == e;
}

namespace {

std::vector<SymExpr> terms_of(const SymExpr& e) {
  if (e.is_constant()) return e.constant() == 0 ? std::vector<SymExpr>{} : std::vector<SymExpr>{e};
  if (e.node()->op != SymOp::kSum) return {e};
  std::vector<SymExpr> terms = e.node()->operands;
  if (e.node()->coefficient != 0) terms.push_back(e.node()->coefficient);
  return terms;
}

// Whether everything in e is known to be >= 0: sizes, dimensions, and products of them with positive factors. Checked
// indices are in range, so they count too. Symbols of sizes are never negative.
bool is_nonnegative(const SymExpr& e) {
  if (e.is_constant()) return e.constant() >= 0;
  const SymExpr::Node& n = *e.node();
  const auto all = [&] { return std::all_of(n.operands.begin(), n.operands.end(), is_nonnegative); };
  switch (n.op) {
    case SymOp::kSymbol: return true;
    case SymOp::kSum: return n.coefficient >= 0 && all();
    case SymOp::kProduct: return n.coefficient > 0 && all();
    case SymOp::kFloorDiv:
    case SymOp::kMin: return all();
    case SymOp::kMod: return is_nonnegative(n.operands[1]);
    case SymOp::kMax: return is_nonnegative(n.operands[0]) || is_nonnegative(n.operands[1]);
  }
  return false;
}

// A polynomial in sizes that e never exceeds; false if e has parts without a known bound.
bool upper_bound(const SymExpr& e, const DimBounds& bounds, SymExpr& bound) {
  if (e.is_constant()) {
    bound = e;
    return true;
  }
  const SymExpr::Node& n = *e.node();
  switch (n.op) {
    case SymOp::kSymbol:
      if (bounds.symbols.is_value(n.symbol)) return false;
      bound = bounds.symbols.is_dim(n.symbol) ? bounds.extents[bounds.symbols.dim_of(n.symbol)] - SymExpr(1) : e;
      return true;
    case SymOp::kSum:
    case SymOp::kProduct: {
      SymExpr total = n.coefficient, part;
      if (n.op == SymOp::kProduct && n.coefficient < 0) return false;
      for (const SymExpr& x : n.operands) {
        if (!is_nonnegative(x) || !upper_bound(x, bounds, part)) return false;
        total = n.op == SymOp::kSum ? total + part : total * part;
      }
      bound = total;
      return true;
    }
    case SymOp::kFloorDiv: {
      SymExpr a;
      if (!n.operands[1].is_constant() || n.operands[1].constant() <= 0 || !upper_bound(n.operands[0], bounds, a))
        return false;
      bound = SymExpr::floor_div(a, n.operands[1]);
      return true;
    }
    case SymOp::kMod: bound = n.operands[1] - SymExpr(1); return is_nonnegative(bound);
    case SymOp::kMin: return upper_bound(n.operands[0], bounds, bound);
    case SymOp::kMax: return false;
  }
  return false;
}

bool is_below(const SymExpr& e, const SymExpr& limit, const DimBounds& bounds) {
  SymExpr top;
  return is_nonnegative(e) && upper_bound(e, bounds, top) && is_nonnegative(limit - SymExpr(1) - top);
}

// e == quotient * divisor + remainder, with every term that the divisor divides moved into the quotient.
void pull_multiples(const SymExpr& e, const SymExpr& divisor, SymExpr& quotient, SymExpr& remainder) {
  quotient = remainder = 0;
  for (const SymExpr& term : terms_of(e)) {
    const SymExpr q = SymExpr::floor_div(term, divisor);
    if (q * divisor == term) {
      quotient = quotient + q;
    } else {
      remainder = remainder + term;
    }
  }
}

// A zero divisor is the extent of an empty dimension: no point is ever visited, so any index is fine.
SymExpr divide(const SymExpr& a, const SymExpr& b, const DimBounds& bounds) {
  if (b == SymExpr(0)) return 0;
  SymExpr quotient, remainder;
  pull_multiples(a, b, quotient, remainder);
  if (is_below(remainder, b, bounds)) return quotient;
  return quotient + SymExpr::floor_div(remainder, b);
}

SymExpr modulo(const SymExpr& a, const SymExpr& b, const DimBounds& bounds) {
  if (b == SymExpr(0)) return 0;
  SymExpr quotient, remainder;
  pull_multiples(a, b, quotient, remainder);
  if (is_below(remainder, b, bounds)) return remainder;
  return SymExpr::mod(remainder, b);
}

// k*b*(a // b) + k*(a % b) is k*a.
SymExpr join_quotients(SymExpr e) {
  for (const SymExpr& term : terms_of(e)) {
    if (term.is_constant()) continue;
    std::vector<SymExpr> atoms =
        term.node()->op == SymOp::kProduct ? term.node()->operands : std::vector<SymExpr>{term};
    for (const SymExpr& atom : atoms) {
      if (atom.node()->op != SymOp::kMod) continue;
      const SymExpr &a = atom.node()->operands[0], &b = atom.node()->operands[1];
      const SymExpr factor = term == atom ? SymExpr(1) : SymExpr::floor_div(term, atom);
      if (!(factor * atom == term)) continue;
      const SymExpr joined = e - term - factor * b * SymExpr::floor_div(a, b) + factor * a;
      if (terms_of(joined).size() < terms_of(e).size()) return join_quotients(joined);
    }
  }
  return e;
}

SymExpr rebuild(const SymExpr& e, const DimBounds& bounds) {
  if (e.is_constant()) return e;
  const SymExpr::Node& n = *e.node();
  switch (n.op) {
    case SymOp::kSymbol: {
      if (!bounds.symbols.is_dim(n.symbol)) return e;
      const SymExpr& extent = bounds.extents[bounds.symbols.dim_of(n.symbol)];
      return extent == SymExpr(1) ? SymExpr(0) : e;
    }
    case SymOp::kSum: {
      SymExpr sum = n.coefficient;
      for (const SymExpr& x : n.operands) sum = sum + rebuild(x, bounds);
      return join_quotients(sum);
    }
    case SymOp::kProduct: {
      SymExpr product = n.coefficient;
      for (const SymExpr& x : n.operands) product = product * rebuild(x, bounds);
      return product;
    }
    case SymOp::kFloorDiv: return divide(rebuild(n.operands[0], bounds), rebuild(n.operands[1], bounds), bounds);
    case SymOp::kMod: return modulo(rebuild(n.operands[0], bounds), rebuild(n.operands[1], bounds), bounds);
    case SymOp::kMin: return SymExpr::min(rebuild(n.operands[0], bounds), rebuild(n.operands[1], bounds));
    case SymOp::kMax: return SymExpr::max(rebuild(n.operands[0], bounds), rebuild(n.operands[1], bounds));
  }
  return e;
}

}  // namespace

SymExpr simplify(const SymExpr& e, const DimBounds& bounds) { return rebuild(e, bounds); }

namespace {

// Whether it consists only of dimensions and of symbols in extents: other symbols may be numbers of the program, which
// may be negative.
bool is_of_places(const SymExpr& e, const DimBounds& bounds) {
  std::vector<SymbolId> ids, sizes;
  e.collect_symbols(ids);
  for (const SymExpr& extent : bounds.extents) extent.collect_symbols(sizes);
  return std::all_of(ids.begin(), ids.end(), [&](SymbolId id) {
    return bounds.symbols.is_dim(id) || std::find(sizes.begin(), sizes.end(), id) != sizes.end();
  });
}

}  // namespace

bool is_always_below(const SymExpr& a, const SymExpr& b, const DimBounds& bounds) {
  return is_of_places(a, bounds) && is_of_places(b, bounds) && is_below(a, b, bounds);
}

bool is_never_below(const SymExpr& a, const SymExpr& b, const DimBounds& bounds) {
  return is_of_places(a, bounds) && is_of_places(b, bounds) && is_nonnegative(a - b);
}

std::vector<SymExpr> reshape_index(const SymSizes& from, const SymSizes& to, const std::vector<SymExpr>& index,
                                   const DimBounds& bounds) {
  std::vector<SymExpr> result(from.size(), SymExpr(0));
  size_t f = 0, t = 0;
  while (f < from.size() && t < to.size()) {
    // The smallest groups [f, f_end) and [t, t_end) with equal products. Groups are closed from the left: both sides of
    // a group have the same number of elements, so row-major order is kept group by group.
    size_t f_end = f + 1, t_end = t + 1;
    SymExpr product_from = from[f], product_to = to[t];
    while (!(product_from == product_to) && (f_end < from.size() || t_end < to.size())) {
      const bool grow_from =
          t_end == to.size() ||
          (f_end < from.size() && (product_from == SymExpr(1) || is_nonnegative(product_to - product_from)));
      if (grow_from && f_end < from.size()) {
        product_from = product_from * from[f_end++];
      } else if (t_end < to.size()) {
        product_to = product_to * to[t_end++];
      } else {
        break;
      }
    }
    if (!(product_from == product_to)) {
      f_end = from.size();
      t_end = to.size();
    }
    SymExpr linear = 0;
    for (size_t k = t; k < t_end; ++k) linear = linear * to[k] + index[k];
    SymExpr inner = 1;
    for (size_t k = f_end; k-- > f;) {
      SymExpr at = inner == SymExpr(1) ? linear : divide(linear, inner, bounds);
      if (k > f) at = modulo(at, from[k], bounds);
      result[k] = from[k] == SymExpr(1) ? SymExpr(0) : simplify(at, bounds);
      inner = inner * from[k];
    }
    f = f_end;
    t = t_end;
  }
  return result;
}

SymExpr linear_index(const std::vector<SymExpr>& index, const SymSizes& strides, const DimBounds& bounds) {
  SymExpr sum = 0;
  for (size_t k = 0; k < index.size(); ++k) sum = sum + index[k] * strides[k];
  return simplify(sum, bounds);
}

}  // namespace framejit::inductor
