// graph/passes/decompose.cpp — driver: looks each op up in the table and replaces it, or copies it.
//
// The table is made of the families decompose_{norm,pointwise,shape,nn,lists,reduction}.cpp. Ops that a library does
// better have no row: products, convolution, attention, sort, embedding.
#include "graph/passes/decompose.h"

#include "graph/passes/passes.h"

namespace framejit::graph {

ValueId Decomposing::wide(ValueId v) { return is_half(meta(v).dtype) ? converted(out, v, DType::kFloat32) : v; }

SymExpr reduced_count(const TensorMeta& meta, const std::vector<bool>& reduced) {
  SymExpr count = 1;
  for (size_t i = 0; i < meta.ndim(); ++i)
    if (reduced[i]) count = count * meta.sizes[i];
  return count;
}

namespace {

bool same_sizes(const ShapeEnv& env, const SymSizes& a, const SymSizes& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!(a[i] == b[i]) && env.known(a[i], Relation::kEq, b[i]) != true) return false;
  return a.size() == b.size();
}

const Decompositions& decompositions() {
  static const Decompositions table = [] {
    Decompositions t;
    add_norm_decompositions(t);
    add_pointwise_decompositions(t);
    add_shape_decompositions(t);
    add_nn_decompositions(t);
    add_list_decompositions(t);
    add_reduction_decompositions(t);
    return t;
  }();
  return table;
}

}  // namespace

bool is_decomposed(std::string_view op) { return decompositions().count(op) != 0; }

Result<Graph> decompose(Graph graph) {
  const Decompositions& table = decompositions();
  Rebuild r(graph, false);
  for (const Node& node : graph.nodes) {
    if (node.op->has(kMutates))
      return Error{Reason::not_functional, "needs a functional graph, but " + node.op->name + " writes"};
    const auto row = table.find(node.op->name);
    if (row == table.end()) {
      r.copy_node(node);
      continue;
    }
    std::vector<TensorMeta> metas;
    for (ValueId v : node.results) metas.push_back(v == kNoValue ? TensorMeta{} : graph.meta(v));
    const GraphBuilder::Mark before = r.out().mark();
    Decomposing d{r.out(), node, r.map_args(node), std::move(metas), {}};
    r.begin(node);
    if (!row->second(d)) {
      r.out().rollback(before);
      r.copy_node(node);
      continue;
    }
    FJ_ASSERT(d.results.size() == node.results.size(),
              "decomposition of " + node.op->name + " has another number of results");
    for (size_t i = 0; i < d.results.size(); ++i) {
      if (node.results[i] == kNoValue) continue;
      const TensorMeta& made = r.out().meta(d.results[i]);
      FJ_ASSERT(made.dtype == d.metas[i].dtype && same_sizes(r.out().shapes(), made.sizes, d.metas[i].sizes),
                "decomposition of " + node.op->name + " gives " + text_of(made) + " instead of " + text_of(d.metas[i]));
      r.adopt(node.results[i], d.results[i]);
    }
  }
  return r.build();
}

}  // namespace framejit::graph
