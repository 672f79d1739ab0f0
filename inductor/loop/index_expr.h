// inductor/loop/index_expr.h — index arithmetic that knows the extents of the dimensions.
//
// SymExpr alone knows no ranges. Here a nest's dimension d lies in [0, extent), so (64*i + r) // 64 is i and r % 64 is
// r.
#pragma once

#include <functional>

#include "inductor/loop/loop_program.h"

namespace framejit::inductor {

struct DimBounds {
  NestSymbols symbols;
  SymSizes extents;  // per dimension of the nest
};
DimBounds bounds_of(const Nest& nest, const NestSymbols& symbols);

// An equal expression (within the bounds) with as few divisions and modulos as the rules find.
SymExpr simplify(const SymExpr& e, const DimBounds& bounds);
// e with every symbol replaced; `replace` returns the symbol itself to keep it.
SymExpr substitute(const SymExpr& e, const std::function<SymExpr(graph::SymbolId)>& replace);
// Index into `from` (sizes) of the element at `index` of `to`; both have the same number of elements, in row-major
// order.
std::vector<SymExpr> reshape_index(const SymSizes& from, const SymSizes& to, const std::vector<SymExpr>& index,
                                   const DimBounds& bounds);
// Whether a < b, or a >= b, is known to hold at every point. Values from data are never known.
bool is_always_below(const SymExpr& a, const SymExpr& b, const DimBounds& bounds);
bool is_never_below(const SymExpr& a, const SymExpr& b, const DimBounds& bounds);
// sum of index * stride, simplified.
SymExpr linear_index(const std::vector<SymExpr>& index, const SymSizes& strides, const DimBounds& bounds);
// The part of e that is a multiple of dimension d: e == coefficient * d + rest, where rest does not contain d. False if
// d occurs in another form.
bool split_linear(const SymExpr& e, const SymExpr& dim, SymExpr& coefficient, SymExpr& rest);
bool mentions(const SymExpr& e, graph::SymbolId id);
bool mentions_values(const SymExpr& e, const NestSymbols& symbols);
// The instruction with values[i] in place of every instruction i that it reads (collect_uses).
LoopInst renumbered(LoopInst inst, const NestSymbols& symbols, const std::vector<InstId>& values);

}  // namespace framejit::inductor
