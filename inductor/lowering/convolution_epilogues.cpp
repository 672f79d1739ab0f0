#include "inductor/lowering/convolution_epilogues.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "graph/node_values.h"
#include "graph/passes/rebuild.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::index_of;
using graph::Node;
using graph::SymExpr;
using graph::SymSizes;
using graph::TensorMeta;
using graph::ValueId;

namespace {

constexpr int64_t kChannels = 8;  // the library certainly has such a form for multiples of this

bool has_whole_channels(const SymExpr& size) { return size.is_constant() && size.constant() % kChannels == 0; }

struct Fused {
  size_t convolution;
  ValueId added = graph::kNoValue;
};

class EpilogueFuser {
 public:
  explicit EpilogueFuser(const Graph& graph) : graph_(graph), uses_(graph.values.size(), 0) {
    const auto count = [&](ValueId v) {
      if (v != graph::kNoValue) ++uses_[index_of(v)];
    };
    for (const Node& node : graph.nodes) graph::for_each_value(node, count);
    for (ValueId v : graph.outputs) count(v);
    for (const auto& [input, v] : graph.updates) count(v);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      if (const auto fused = match(graph.nodes[n])) fused_.emplace(n, *fused);
  }

  bool is_empty() const { return fused_.empty(); }

  Graph run() const {
    std::set<size_t> gone;
    for (const auto& [relu, fused] : fused_) {
      gone.insert(fused.convolution);
      if (fused.added != graph::kNoValue) gone.insert(*producer(*graph_.nodes[relu].args[0].get<ValueId>()));
    }
    graph::Rebuild r(graph_, true);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (gone.contains(n)) continue;
      if (const auto fused = fused_.find(n); fused != fused_.end()) emit(r, graph_.nodes[n], fused->second);
      else r.copy_node(graph_.nodes[n]);
    }
    return r.build();
  }

 private:
  std::optional<size_t> producer(ValueId v) const {
    const int32_t node = graph_.values[index_of(v)].node;
    return node < 0 ? std::nullopt : std::optional(static_cast<size_t>(node));
  }
  bool is_read_once(ValueId v) const { return uses_[index_of(v)] == 1; }

  // The convolution that makes `v`, if an addition or relu may become part of it.
  std::optional<size_t> convolution_of(ValueId v) const {
    const auto made = producer(v);
    if (!made || !is_read_once(v)) return std::nullopt;
    const Node& node = graph_.nodes[*made];
    const TensorMeta& meta = graph_.meta(v);
    if (!node.op->is(graph::KnownOp::convolution) || meta.ndim() != 4 ||
        (meta.dtype != DType::kBFloat16 && meta.dtype != DType::kFloat16))
      return std::nullopt;
    const graph::SymSizes& weight = graph_.meta(*node.args[1].get<ValueId>()).sizes;
    if (!has_whole_channels(weight[0]) || !has_whole_channels(weight[1])) return std::nullopt;
    const ValueId* bias = node.args[2].get<ValueId>();
    const bool* transposed = node.args[6].get<bool>();
    if (bias == nullptr || *bias == graph::kNoValue || transposed == nullptr || *transposed) return std::nullopt;
    for (size_t i : {3, 4, 5})
      if (const auto* list = node.args[i].get<SymSizes>(); list == nullptr || list->size() != 2) return std::nullopt;
    return made;
  }

  std::optional<Fused> match(const Node& relu) const {
    if (!relu.op->is(graph::KnownOp::relu)) return std::nullopt;
    const ValueId from = *relu.args[0].get<ValueId>();
    if (const auto made = convolution_of(from)) return Fused{*made};
    const auto sum = producer(from);
    if (!sum || !is_read_once(from)) return std::nullopt;
    const Node& add = graph_.nodes[*sum];
    if (!add.op->is(graph::KnownOp::add_tensor) || (add.args.size() > 2 && !graph::is_one(add.args[2])))
      return std::nullopt;
    for (size_t i : {0, 1}) {
      const ValueId *one = add.args[i].get<ValueId>(), *other = add.args[1 - i].get<ValueId>();
      if (one == nullptr || other == nullptr || *one == *other) continue;
      const auto made = convolution_of(*one);
      if (made && graph::same_layout(graph_.meta(*one), graph_.meta(*other))) return Fused{*made, *other};
    }
    return std::nullopt;
  }

  void emit(graph::Rebuild& r, const Node& relu, const Fused& fused) const {
    const Node& convolution = graph_.nodes[fused.convolution];
    const std::vector<Arg> from = r.map_args(convolution);
    std::vector<Arg> args{from[0], from[1]};
    const bool adds = fused.added != graph::kNoValue;
    if (adds) args.insert(args.end(), {r.get(fused.added), Arg(1.0)});
    args.insert(args.end(), {from[2], from[3], from[4], from[5], from[8]});
    r.begin(relu);
    r.set(relu.results[0], r.out().emit(adds ? "cudnn_convolution_add_relu" : "cudnn_convolution_relu",
                                        std::move(args), graph_.meta(convolution.results[0])));
  }

  const Graph& graph_;
  std::vector<size_t> uses_;        // per value
  std::map<size_t, Fused> fused_;   // by the node of relu
};

// The bias that torch would add in a separate call after the convolution. As an addition in the graph, it becomes part
// of what follows.
ValueId bias_of(const Graph& graph, const Node& node) {
  if (!node.op->is(graph::KnownOp::convolution)) return graph::kNoValue;
  const TensorMeta& made = graph.meta(node.results[0]);
  const ValueId* bias = node.args[2].get<ValueId>();
  return bias != nullptr && made.ndim() > 2 && is_half(made.dtype) && made.device == kernel_device(graph)
             ? *bias
             : graph::kNoValue;
}

Graph add_biases(const Graph& graph) {
  graph::Rebuild r(graph, true);
  for (const Node& node : graph.nodes) {
    const ValueId bias = bias_of(graph, node);
    if (bias == graph::kNoValue) {
      r.copy_node(node);
      continue;
    }
    r.begin(node);
    const TensorMeta& made = graph.meta(node.results[0]);
    std::vector<Arg> args = r.map_args(node);
    args[2] = Arg{};
    SymSizes sizes(made.ndim() - 1, SymExpr(1));
    sizes[0] = made.sizes[1];
    const ValueId bare = r.out().emit("convolution", std::move(args), made);
    const ValueId column = graph::reshaped(r.out(), r.get(bias), sizes);
    const ValueId sum = r.out().emit("add.Tensor", {bare, column, SymExpr(1)});
    r.set(node.results[0], graph::with_layout(r.out(), sum, made));
  }
  return r.build();
}

}  // namespace

Graph fuse_epilogues(Graph functional, const TargetInfo& target) {
  if (target.traits.fuses_convolutions) {
    const EpilogueFuser fuser(functional);
    if (!fuser.is_empty()) functional = fuser.run();
  }
  const auto has_bias = [&](const Node& node) { return bias_of(functional, node) != graph::kNoValue; };
  const bool adds =
      target.traits.adds_biases_last && std::any_of(functional.nodes.begin(), functional.nodes.end(), has_bias);
  return adds ? add_biases(functional) : functional;
}

}  // namespace framejit::inductor
