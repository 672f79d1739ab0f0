#include "inductor/weights/hoist.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/graph_builder.h"
#include "graph/node_values.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/weight_values.h"

namespace framejit::inductor {

using graph::Graph;
using graph::GraphBuilder;
using graph::index_of;
using graph::Node;
using graph::ValueId;

namespace {

constexpr int64_t kMuch = 64;  // a derived value may be larger by this part: columns of zeros (padded_products.h)

class Hoister {
 public:
  Hoister(const Graph& graph, const std::vector<bool>& weights)
      : graph_(graph), known_(find_weight_values(graph, weights)) {}

  Result<Hoisted> run() {
    pin_what_leaves();
    while (!choose()) {}
    Hoisted made;
    graph::Rebuild r(graph_, true);
    for (ValueId v : chosen_) {
      made.derivations.push_back(derivation_of(v));
      graph::TensorMeta meta = graph_.meta(v);
      r.set(v, r.out().add_input(std::move(meta), r.out().new_storage(), "derived"));
    }
    for (const Node& node : graph_.nodes)
      if (!is_replaced(node)) r.copy_node(node);
    FJ_TRY(made.graph, graph::dce(r.build()));
    return made;
  }

 private:
  void pin(ValueId v) {
    if (v != graph::kNoValue) pinned_.insert(memory_of(graph_, v));
  }
  void pin_what_leaves() {
    for (ValueId v : graph_.outputs) pin(v);
    for (const auto& [input, v] : graph_.updates) pin(v);
  }

  bool is_hoisted(ValueId v) const { return std::find(chosen_.begin(), chosen_.end(), v) != chosen_.end(); }
  bool is_replaced(const Node& node) const { return node.results.size() == 1 && is_hoisted(node.results[0]); }

  // Weights that other nodes read become derived values. If one must not become one, each call computes it from others
  // that may. False: there was such a value, and the choice starts again.
  bool choose() {
    chosen_.clear();
    std::set<ValueId> seen;
    for (const Node& node : graph_.nodes) {
      if (known_.makes_known(node)) continue;
      bool again = false;
      for_each_value(node, [&](ValueId v) {
        if (again || !known_.is_weight(v)) return;
        const ValueId base = memory_of(graph_, v);
        if (graph_.maker(base) == nullptr || !known_.is_weight(base) || !seen.insert(base).second) return;
        if (may_be_derived(base)) return chosen_.push_back(base);
        for (ValueId made : graph_.maker(base)->results) known_.is_known[index_of(made)] = false;
        for (ValueId made : graph_.maker(base)->results) known_.has_weight[index_of(made)] = false;
        again = true;
      });
      if (again) return false;
    }
    return true;
  }
  bool may_be_derived(ValueId v) const {
    if (pinned_.contains(v) || graph_.maker(v)->results.size() != 1) return false;
    if (graph_.meta(v).is_packed) return true;
    int64_t bytes = 0;
    for (ValueId operand : operands_of(v)) bytes += bytes_of(graph_.meta(operand));
    return bytes_of(graph_.meta(v)) <= bytes + bytes / kMuch;
  }

  // Nodes that a value needs, in order, and the values that they begin with.
  std::vector<size_t> nodes_of(ValueId v) const {
    std::set<size_t> nodes;
    std::vector<ValueId> open{v};
    while (!open.empty()) {
      const int32_t made_by = graph_.values[index_of(open.back())].node;
      open.pop_back();
      if (made_by < 0 || !nodes.insert(static_cast<size_t>(made_by)).second) continue;
      for_each_value(graph_.nodes[static_cast<size_t>(made_by)], [&](ValueId arg) {
        if (arg != graph::kNoValue) open.push_back(arg);
      });
    }
    return {nodes.begin(), nodes.end()};
  }
  std::vector<ValueId> operands_of(ValueId v) const {
    std::vector<ValueId> operands;
    for (size_t n : nodes_of(v))
      for_each_value(graph_.nodes[n], [&](ValueId arg) {
        const bool is_operand = arg != graph::kNoValue && graph_.maker(arg) == nullptr;
        if (is_operand && std::find(operands.begin(), operands.end(), arg) == operands.end()) operands.push_back(arg);
      });
    return operands;
  }

  uint32_t number_of(ValueId operand) const {
    const auto input = std::find(graph_.inputs.begin(), graph_.inputs.end(), operand);
    if (input != graph_.inputs.end()) return static_cast<uint32_t>(input - graph_.inputs.begin());
    const auto constant = std::find(graph_.constants.begin(), graph_.constants.end(), operand);
    return static_cast<uint32_t>(graph_.inputs.size()) + static_cast<uint32_t>(constant - graph_.constants.begin());
  }

  // Names and lines are left out, so that equal derivations print alike.
  Derivation derivation_of(ValueId v) const {
    Derivation derivation;
    GraphBuilder out("derive");
    std::map<ValueId, ValueId> map{{graph::kNoValue, graph::kNoValue}};
    for (ValueId operand : operands_of(v)) {
      derivation.operands.push_back(number_of(operand));
      graph::TensorMeta meta = graph_.meta(operand);
      meta.requires_grad = false;
      map[operand] = out.add_input(std::move(meta), out.new_storage(), "w" + std::to_string(map.size() - 1));
    }
    for (size_t n : nodes_of(v)) {
      Node node = graph_.nodes[n];
      node.line = 0;
      for (graph::Arg& arg : node.args) {
        if (auto* one = std::get_if<ValueId>(&arg.payload)) *one = map.at(*one);
        if (auto* list = std::get_if<std::vector<ValueId>>(&arg.payload))
          for (ValueId& item : *list) item = map.at(item);
      }
      for (ValueId& result : node.results)
        if (result != graph::kNoValue) result = map[result] = out.new_value(graph_.meta(result), out.new_storage());
      out.add_node(std::move(node));
    }
    derivation.graph = out.build({map.at(v)});
    return derivation;
  }

  const Graph& graph_;
  graph::WeightValues known_;
  std::set<ValueId> pinned_;
  std::vector<ValueId> chosen_;
};

}  // namespace

Result<Hoisted> hoist_weights(const Graph& functional, const std::vector<bool>& weights) {
  return Hoister(functional, weights).run();
}

}  // namespace framejit::inductor
