#include "inductor/weights/join_products.h"

#include <algorithm>
#include <set>

#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/shape_rule.h"
#include "inductor/lowering/few_rows.h"
#include "inductor/lowering/lower.h"
#include "inductor/weights/linear_layers.h"
#include "inductor/lowering/users.h"

namespace framejit::inductor {

using graph::Graph;
using graph::index_of;
using graph::Node;
using graph::Rebuild;
using graph::SymExpr;
using graph::SymSizes;
using graph::ValueId;

namespace {

constexpr int64_t kWholeWords = 8;  // in half precision, each product's columns then begin at a multiple of 16 bytes

struct Member {
  size_t node;
  LinearLayer layer;
};
using Family = std::vector<Member>;  // products that read one input

// The input that `v` is a cast of, if `v` has only one reader; otherwise kNoValue.
ValueId own_cast_of(const Graph& graph, const Users& users, ValueId v) {
  const Node* cast = v != graph::kNoValue && users.only_user(v) ? graph.maker(v, graph::KnownOp::to_copy) : nullptr;
  if (cast == nullptr || !graph.meta(v).is_contiguous()) return graph::kNoValue;
  const ValueId from = value_of(cast->args[0]);
  const bool is_input = graph.values[index_of(from)].node < 0;
  return is_input && graph.meta(from).device == graph.meta(v).device ? from : graph::kNoValue;
}

// The same for a weight that is the transpose of such a cast.
ValueId own_cast_below(const Graph& graph, const Users& users, ValueId weight) {
  const Node* permuted = users.only_user(weight) ? graph.maker(weight, graph::KnownOp::permute) : nullptr;
  return permuted == nullptr ? graph::kNoValue : own_cast_of(graph, users, value_of(permuted->args[0]));
}

// Per input: whether it is a weight or a bias that the graph casts. Such a cast can write to where a joined product
// reads.
std::vector<bool> weights_that_are_cast(const Graph& graph) {
  const Users users(graph);
  std::set<ValueId> found;
  for (const Node& node : graph.nodes) {
    const bool adds = node.op->is(graph::KnownOp::addmm);
    if (!adds && !node.op->is(graph::KnownOp::mm)) continue;
    found.insert(own_cast_below(graph, users, value_of(node.args[adds ? 2 : 1])));
    if (adds) found.insert(own_cast_of(graph, users, value_of(node.args[0])));
  }
  std::vector<bool> weights;
  for (ValueId v : graph.inputs) weights.push_back(found.contains(v));
  return weights;
}

class Joiner {
 public:
  // Without weights, the operands of joined products are casts of inputs.
  Joiner(const Graph& graph, const std::vector<bool>& weights, const TargetInfo& target)
      : graph_(graph),
        known_(find_weight_values(graph, weights.empty() ? weights_that_are_cast(graph) : weights)),
        users_(graph),
        target_(target),
        joins_casts_(weights.empty()),
        family_of_(graph.nodes.size()),
        settled_(graph::settled_memory(graph)) {}

  Result<Graph> run() {
    find_families();
    if (families_.empty()) return graph_;
    Rebuild r(graph_, true);
    for (const bool known : {true, false})  // weights first: a family's first product needs all of its weights
      for (size_t n = 0; n < graph_.nodes.size(); ++n)
        if (known_.makes_known(graph_.nodes[n]) == known) emit(r, n);
    return graph::dce(r.build());
  }

 private:
  void close(Family& family) {
    if (family.size() > 1) {
      for (const Member& member : family) family_of_[member.node] = families_.size() + 1;
      families_.push_back(std::move(family));
    }
    family = {};
  }

  // Whether one product of the library is faster than several: then nothing is packed.
  bool joins_in_library(const Node& node, const LinearLayer& layer) const {
    const graph::TensorMeta &x = graph_.meta(layer.x), &weight = graph_.meta(layer.weight);
    if (!target_.traits.joins_products || !is_half(x.dtype) || x.device != kernel_device(graph_) ||
        is_few_row_product(graph_, node, target_))
      return false;
    if (!weight.sizes[1].is_constant() || weight.sizes[1].constant() % kWholeWords != 0) return false;
    if (!joins_casts_) return true;
    return own_cast_below(graph_, users_, layer.weight) != graph::kNoValue &&
           (layer.bias == graph::kNoValue || own_cast_of(graph_, users_, layer.bias) != graph::kNoValue);
  }

  bool may_join(const Node& node, const LinearLayer& layer) const {
    if (joins_in_library(node, layer)) return true;
    return !joins_casts_ && (packs_bfloat16(graph_, layer, target_) || packs_float32(graph_, layer, target_));
  }

  bool fits(const Family& family, const LinearLayer& layer) const {
    const LinearLayer& first = family[0].layer;
    return layer.x == first.x && (layer.bias == graph::kNoValue) == (first.bias == graph::kNoValue);
  }

  void find_families() {
    Family family;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (known_.makes_known(node) || node.op->has(graph::kView) || find_lowering(node.op->name) != nullptr) continue;
      const auto layer = linear_layer(graph_, known_, node);
      const bool is_member = layer && !settled_.contains(node.results[0]) && may_join(node, *layer);
      if (!family.empty() && !(is_member && fits(family, *layer))) close(family);
      if (is_member) family.push_back({n, *layer});
    }
    close(family);
  }

  void emit(Rebuild& r, size_t n) {
    const Node& node = graph_.nodes[n];
    if (family_of_[n] != 0) {
      const Family& family = families_[family_of_[n] - 1];
      if (family[0].node == n) emit_family(r, family);
      return;
    }
    if (is_in(graph::OpList::takes_columns, node.op->name) && !graph::draws_numbers(node)) return emit_reader(r, node);
    const ValueId* base = node.op->has(graph::kView) && !node.args.empty() ? node.args[0].get<ValueId>() : nullptr;
    if (base == nullptr || !columns_.contains(*base)) return r.copy_node(node);
    r.begin(node);  // a view of columns stays a view
    const std::vector<ValueId> made = r.emit_like(node, node.op, r.map_args(node));
    for (size_t i = 0; i < made.size(); ++i) {
      if (node.results[i] == graph::kNoValue) continue;
      r.set(node.results[i], made[i]);
      columns_.insert(node.results[i]);
    }
  }

  // Its operands may be columns. Its results keep their layout.
  void emit_reader(Rebuild& r, const Node& node) {
    r.begin(node);
    Node made = node;
    made.args = r.map_args(node);
    for (ValueId& v : made.results)
      if (v != graph::kNoValue) v = r.out().new_value(graph_.meta(v), r.out().new_storage());
    const std::vector<ValueId> results = made.results;
    r.out().add_node(std::move(made));
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i] != graph::kNoValue) r.set(node.results[i], results[i]);
  }

  void emit_family(Rebuild& r, const Family& family) {
    r.begin(graph_.nodes[family[0].node]);
    std::vector<ValueId> weights, biases;
    for (const Member& member : family) {
      weights.push_back(columns_first(r.out(), r.get(member.layer.weight)));
      biases.push_back(r.get(member.layer.bias));
    }
    const ValueId x = r.get(family[0].layer.x), all = r.out().emit("cat", {weights, SymExpr(0)});
    const ValueId weight = r.out().emit("permute", {all, SymSizes{SymExpr(1), SymExpr(0)}});
    const bool adds = biases[0] != graph::kNoValue;
    const ValueId whole = adds ? r.out().emit("addmm", {r.out().emit("cat", {biases, SymExpr(0)}), x, weight,
                                                        SymExpr(1), SymExpr(1)})
                               : r.out().emit("mm", {x, weight});
    SymExpr begin = 0;
    for (const Member& member : family) {
      const ValueId result = graph_.nodes[member.node].results[0];
      const SymExpr end = begin + graph_.meta(result).sizes[1];
      r.set(result, r.out().emit("slice.Tensor", {whole, SymExpr(1), begin, end, SymExpr(1)}));
      columns_.insert(result);
      begin = end;
    }
  }

  const Graph& graph_;
  const graph::WeightValues known_;
  const Users users_;
  const TargetInfo& target_;
  const bool joins_casts_;
  std::vector<Family> families_;
  std::vector<size_t> family_of_;  // per node: its number, from 1 on
  const std::set<ValueId> settled_;
  std::set<ValueId> columns_;      // old values that are views of a family's result
};

}  // namespace

Result<Graph> join_products(const Graph& functional, const std::vector<bool>& weights, const TargetInfo& target) {
  if (weights.empty() && !target.traits.joins_products) return functional;
  return Joiner(functional, weights, target).run();
}

}  // namespace framejit::inductor
