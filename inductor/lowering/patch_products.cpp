#include "inductor/lowering/patch_products.h"

#include <algorithm>
#include <set>

#include "graph/node_values.h"
#include "graph/graph_builder.h"
#include "graph/passes/decompose.h"
#include "graph/passes/rebuild.h"
#include "graph/shape_rule.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::index_of;
using graph::Node;
using graph::Rebuild;
using graph::SymExpr;
using graph::SymSizes;
using graph::TensorMeta;
using graph::ValueId;

namespace {

bool are_all(const Arg& arg, int64_t number) {
  const auto* list = arg.get<SymSizes>();
  return list != nullptr && list->size() == 2 &&
         std::all_of(list->begin(), list->end(), [&](const SymExpr& e) { return e == SymExpr(number); });
}

class Patches {
 public:
  explicit Patches(const Graph& graph) : graph_(graph), settled_(graph::settled_memory(graph)) {}

  bool is_patches(const Node& node) const {
    if (!node.op->is(graph::KnownOp::convolution)) return false;
    const TensorMeta &x = graph_.meta(*node.args[0].get<ValueId>()),
                     &weight = graph_.meta(*node.args[1].get<ValueId>()), &made = graph_.meta(node.results[0]);
    if (x.ndim() != 4 || !is_half(x.dtype) || weight.dtype != x.dtype || x.device != kernel_device(graph_))
      return false;
    const bool* transposed = node.args[6].get<bool>();
    const auto* groups = node.args[8].get<SymExpr>();
    const auto* strides = node.args[3].get<SymSizes>();
    if (transposed == nullptr || *transposed || groups == nullptr || !(*groups == SymExpr(1)) || strides == nullptr ||
        strides->size() != 2 || !are_all(node.args[4], 0) || !are_all(node.args[5], 1))
      return false;
    if (!graph::all_constant(weight.sizes) || weight.numel() == SymExpr(0) || made.numel() == SymExpr(0)) return false;
    if (weight.sizes[2] * weight.sizes[3] == SymExpr(1)) return false;  // the library computes these as products
    for (size_t d = 0; d < 2; ++d)
      if (!((*strides)[d] == weight.sizes[d + 2]) || !(x.sizes[d + 2] == made.sizes[d + 2] * weight.sizes[d + 2]))
        return false;
    return true;
  }

  Graph run() {
    Rebuild r(graph_, true);
    for (const Node& node : graph_.nodes) {
      const ValueId* base = node.op->has(graph::kView) && !node.args.empty() ? node.args[0].get<ValueId>() : nullptr;
      if (is_patches(node)) emit(r, node);
      else if (base != nullptr && moved_.contains(*base)) emit_view(r, node);
      else r.copy_node(node);
    }
    return r.build();
  }

 private:
  void emit(Rebuild& r, const Node& node) {
    r.begin(node);
    const TensorMeta &weight = graph_.meta(*node.args[1].get<ValueId>()), &made = graph_.meta(node.results[0]);
    const SymSizes& k = weight.sizes;
    const SymExpr n = made.sizes[0], h = made.sizes[2], w = made.sizes[3], terms = k[1] * k[2] * k[3];
    const auto permuted = [&](ValueId v, SymSizes dims) { return r.out().emit("permute", {v, std::move(dims)}); };
    const ValueId split = graph::reshaped(r.out(), r.get(*node.args[0].get<ValueId>()), {n, k[1], h, k[2], w, k[3]});
    const ValueId rows = graph::contiguous_clone(
        r.out(), permuted(split, {SymExpr(0), SymExpr(2), SymExpr(4), SymExpr(1), SymExpr(3), SymExpr(5)}));
    const ValueId x = graph::reshaped(r.out(), rows, {n * h * w, terms});
    const ValueId columns = permuted(graph::reshaped(r.out(), r.get(*node.args[1].get<ValueId>()), {k[0], terms}),
                                     {SymExpr(1), SymExpr(0)});
    const ValueId* bias = node.args[2].get<ValueId>();
    const bool adds = bias != nullptr && *bias != graph::kNoValue;
    const ValueId product = adds ? r.out().emit("addmm", {r.get(*bias), x, columns, SymExpr(1), SymExpr(1)})
                                 : r.out().emit("mm", {x, columns});
    const ValueId result =
        permuted(graph::reshaped(r.out(), product, {n, h, w, k[0]}), {SymExpr(0), SymExpr(3), SymExpr(1), SymExpr(2)});
    const ValueId old = node.results[0];
    if (settled_.contains(old)) return r.set(old, graph::with_layout(r.out(), result, made));
    r.set(old, result);
    moved_.insert(old);
  }

  // A view of a result stays a view, if the new order of the result's dimensions allows one.
  void emit_view(Rebuild& r, const Node& node) {
    r.begin(node);
    const std::vector<ValueId> made = r.emit_like(node, node.op, r.map_args(node));
    for (size_t i = 0; i < made.size(); ++i) {
      if (node.results[i] == graph::kNoValue) continue;
      r.set(node.results[i], made[i]);
      moved_.insert(node.results[i]);
    }
  }

  const Graph& graph_;
  const std::set<ValueId> settled_;
  std::set<ValueId> moved_;  // old values whose order in memory has changed
};

}  // namespace

Graph patch_products(Graph functional, const TargetInfo& target) {
  if (!target.traits.multiplies_patches) return functional;
  Patches patches(functional);
  const auto is_patches = [&](const Node& node) { return patches.is_patches(node); };
  return std::none_of(functional.nodes.begin(), functional.nodes.end(), is_patches) ? std::move(functional)
                                                                                    : patches.run();
}

}  // namespace framejit::inductor
