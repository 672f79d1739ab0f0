// graph/passes/fix_sizes.cpp — replaces symbols that facts make constant, or equal to others.
//
// In: any graph. Out: the same nodes; sizes, strides, offsets and size arguments without those symbols, so that tensors
// that have the same size at run time visibly have it. The facts stay, because they justify the change. If facts show
// that a symbolic position counts from the end, it counts from the front afterwards, so that later passes need not ask.
#include "graph/passes/passes.h"

namespace framejit::graph {
namespace {

// By symbol: its constant, the lowest symbol that it equals, or itself. Empty if nothing is fixed.
SymSizes fixed_symbols(const ShapeEnv& env) {
  SymSizes by_symbol;
  for (SymbolId id = 0; id < env.symbol_count(); ++id) by_symbol.push_back(SymExpr::symbol(id));
  bool any = false;
  for (const auto& [id, value] : env.possible_equalities()) {
    if (!by_symbol[id].is_symbol() || env.known(SymExpr::symbol(id), Relation::kEq, value) != true) continue;
    const SymExpr lowest = value.substitute(by_symbol);
    SymbolId now = 0, lower = 0;
    if (lowest.is_symbol(&lower) && by_symbol[id].is_symbol(&now) && now <= lower) continue;
    by_symbol[id] = lowest;
    any = true;
  }
  return any ? by_symbol : SymSizes{};
}

void replace(SymSizes& sizes, const SymSizes& by_symbol) {
  for (SymExpr& e : sizes) e = e.substitute(by_symbol);
}

struct PositionRow {
  const char* op;
  size_t dim, first, last;  // arguments: the dimension, and the positions in it
  bool clamps;  // positions outside are clamped
  bool takes_sizes = false;  // argument 1 is the list of sizes that the positions refer to; else argument 0 has them
};
constexpr PositionRow kPositions[] = {
    {"select.int", 1, 2, 2, false},
    {"slice.Tensor", 1, 2, 3, true},
    {"select_scatter", 2, 3, 3, false},
    {"slice_scatter", 2, 3, 4, true},
    {"select_backward", 2, 3, 3, false, true},
    {"slice_backward", 2, 3, 4, true, true},
};

SymExpr from_front(const ShapeEnv& env, SymExpr position, const SymExpr& size, bool clamps) {
  if (env.known(position, Relation::kLt, 0) == true) position = position + size;
  if (clamps && env.known(position, Relation::kLt, 0) == true) return 0;
  return position;
}

void settle_positions(const Graph& graph, Node& node) {
  for (const PositionRow& row : kPositions) {
    if (node.op->name != row.op) continue;
    const auto* self = node.args[0].get<ValueId>();
    const SymSizes* const sizes = row.takes_sizes   ? node.args[1].get<SymSizes>()
                                  : self != nullptr ? &graph.meta(*self).sizes
                                                    : nullptr;
    const auto* dim = row.dim < node.args.size() ? node.args[row.dim].get<SymExpr>() : nullptr;
    if (sizes == nullptr || (dim != nullptr && !dim->is_constant())) return;
    int64_t d = dim != nullptr ? dim->constant() : 0;
    if (d < 0) d += static_cast<int64_t>(sizes->size());
    for (size_t i = row.first; i <= row.last && i < node.args.size(); ++i)
      if (auto* position = std::get_if<SymExpr>(&node.args[i].payload); position != nullptr && !position->is_constant())
        *position = from_front(graph.shapes, *position, (*sizes)[static_cast<size_t>(d)], row.clamps);
  }
}

}  // namespace

Result<Graph> fix_sizes(Graph graph) {
  if (graph.shapes.symbol_count() == 0) return graph;
  for (Node& node : graph.nodes) settle_positions(graph, node);
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
