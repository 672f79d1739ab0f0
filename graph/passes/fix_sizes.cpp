// graph/passes/fix_sizes.cpp — symbols that facts make constants, or equal to others, are replaced where they stand.
//
// In: any graph. Out: the same nodes; sizes, strides, offsets and size arguments without those symbols, so that what has one size at
// run time is seen to have it. The facts stay: they are what makes this right.
#include "graph/passes/passes.h"

namespace framejit::graph {
namespace {

// By symbol: its constant, the lowest symbol that it equals, or itself. Empty when nothing is fixed.
SymSizes fixed_symbols(const ShapeEnv& env) {
  SymSizes by_symbol;
  bool any = false;
  for (SymbolId id = 0; id < env.symbol_count(); ++id) {
    const SymExpr symbol = SymExpr::symbol(id), hint = env.symbol(id).hint;
    SymExpr value = env.known(symbol, Relation::kEq, hint) == true ? hint : symbol;
    for (SymbolId other = 0; other < id && value == symbol; ++other)
      if (env.symbol(other).hint == env.symbol(id).hint && env.known(symbol, Relation::kEq, SymExpr::symbol(other)) == true) value = by_symbol[other];
    any = any || !(value == symbol);
    by_symbol.push_back(std::move(value));
  }
  return any ? by_symbol : SymSizes{};
}

void replace(SymSizes& sizes, const SymSizes& by_symbol) {
  for (SymExpr& e : sizes) e = e.substitute(by_symbol);
}

}  // namespace

Result<Graph> fix_sizes(const Graph& recorded) {
  Graph graph = recorded;
  const SymSizes by_symbol = fixed_symbols(graph.shapes);
  if (by_symbol.empty()) return graph;
  for (ValueInfo& value : graph.values) {
    replace(value.meta.sizes, by_symbol);
    replace(value.meta.strides, by_symbol);
    value.meta.offset = value.meta.offset.substitute(by_symbol);
  }
  for (Node& node : graph.nodes)
    for (Arg& arg : node.args) {
      if (auto* e = std::get_if<SymExpr>(&arg.payload)) *e = e->substitute(by_symbol);
      if (auto* list = std::get_if<SymSizes>(&arg.payload)) replace(*list, by_symbol);
    }
  return graph;
}

}  // namespace framejit::graph
