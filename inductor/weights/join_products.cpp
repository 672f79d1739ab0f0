#include "inductor/weights/join_products.h"

#include <algorithm>
#include <set>

#include "graph/node_values.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/shape_rule.h"
#include "inductor/lowering/lower.h"
#include "inductor/weights/linear_layers.h"

namespace framejit::inductor {

using graph::Graph;
using graph::index_of;
using graph::Node;
using graph::Rebuild;
using graph::SymExpr;
using graph::SymSizes;
using graph::ValueId;

namespace {

struct Member {
  size_t node;
  LinearLayer layer;
};
using Family = std::vector<Member>;  // with one input

class Joiner {
 public:
  Joiner(const Graph& graph, const std::vector<bool>& weights, const TargetInfo& target)
      : graph_(graph), known_(find_weight_values(graph, weights)), target_(target), family_of_(graph.nodes.size()) {
    for (ValueId v : graph.outputs)
      if (v != graph::kNoValue) own_memory_.insert(graph::memory_of(graph, v));
    for (const auto& [input, v] : graph.updates) own_memory_.insert(graph::memory_of(graph, v));
    for (const Node& node : graph.nodes)
      if (graph::is_as_strided(*node.op))
        graph::for_each_value(node, [&](ValueId v) {
          if (v != graph::kNoValue) own_memory_.insert(graph::memory_of(graph, v));
        });
  }

  Result<Graph> run() {
    find_families();
    if (families_.empty()) return graph_;
    Rebuild r(graph_, true);
    for (const bool known : {true, false})  // a family needs all of its weights where its first product stands
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
      const bool is_member = layer && !own_memory_.contains(node.results[0]) &&
                             (packs_bfloat16(graph_, *layer, target_) || packs_float32(graph_, *layer, target_));
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
  const TargetInfo& target_;
  std::vector<Family> families_;
  std::vector<size_t> family_of_;  // per node: its number, from 1 on
  std::set<ValueId> own_memory_;   // values whose memory is an output, or that as_strided addresses
  std::set<ValueId> columns_;      // old values that are views of a family's result
};

}  // namespace

Result<Graph> join_products(const Graph& functional, const std::vector<bool>& weights, const TargetInfo& target) {
  return Joiner(functional, weights, target).run();
}

}  // namespace framejit::inductor
