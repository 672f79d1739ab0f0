#include "inductor/weights/padded_products.h"

#include <algorithm>

#include "graph/node_values.h"
#include "graph/passes/rebuild.h"
#include "graph/weight_values.h"
#include "inductor/lowering/lower.h"
#include "inductor/weights/linear_layers.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Rebuild;
using graph::SymExpr;
using graph::SymSizes;
using graph::TensorMeta;
using graph::ValueId;

namespace {

constexpr int64_t kElementsOfAWord = 8;  // elements of half precision

class Padder {
 public:
  Padder(const Graph& graph, const std::vector<bool>& weights, const TargetInfo& target)
      : graph_(graph),
        known_(find_weight_values(graph, weights.empty() ? std::vector<bool>(graph.inputs.size(), false) : weights)),
        target_(target) {}

  bool is_padded(const Node& node) const {
    const bool adds = node.op->is(graph::KnownOp::addmm);
    if (!adds && !node.op->is(graph::KnownOp::mm)) return false;
    const ValueId factor = value_of(node.args[adds ? 2 : 1]);
    const TensorMeta &x = graph_.meta(value_of(node.args[adds ? 1 : 0])), &made = graph_.meta(node.results[0]);
    if (!is_half(made.dtype) || made.dtype != x.dtype || made.device != kernel_device(graph_)) return false;
    if (adds && !adds_a_row(node)) return false;
    if (!x.sizes[1].is_constant() || !made.sizes[1].is_constant()) return false;
    const int64_t columns = made.sizes[1].constant(), rows = graph_.shapes.hint(made.sizes[0]);
    return x.sizes[1].constant() % kElementsOfAWord == 0 && columns % kElementsOfAWord != 0 &&
           columns >= target_.costs.padded_columns &&
           rows >= (is_written_anyway(factor) ? target_.costs.padded_rows : target_.costs.padded_copied_rows);
  }

  Graph run() const {
    Rebuild r(graph_, true);
    for (const Node& node : graph_.nodes) {
      if (is_padded(node)) emit(r, node);
      else r.copy_node(node);
    }
    return r.build();
  }

 private:
  bool adds_a_row(const Node& node) const {
    const TensorMeta& addend = graph_.meta(value_of(node.args[0]));
    return addend.ndim() == 1 && addend.dtype == graph_.meta(node.results[0]).dtype &&
           addend.sizes[0] == graph_.meta(node.results[0]).sizes[1] &&
           std::all_of(node.args.begin() + 3, node.args.end(), [](const Arg& arg) { return graph::is_one(arg); });
  }

  // Whether something computes the factor anyway, in each call or once. Then it can compute more columns.
  bool is_written_anyway(ValueId factor) const {
    if (known_.is_weight(factor)) return true;
    const Node* node = graph_.maker(factor);
    while (node != nullptr && node->op->has(graph::kView)) node = graph_.maker(value_of(node->args[0]));
    return node != nullptr && node->op->is(graph::KnownOp::to_copy);
  }

  static ValueId with_zeros(Rebuild& r, ValueId value, SymSizes missing) {
    const TensorMeta meta = r.out().meta(value);
    const ValueId zeros = r.out().emit("full", {std::move(missing), 0.0, meta.dtype, Arg{}, meta.device, Arg{}});
    return r.out().emit("cat", {std::vector<ValueId>{value, zeros}, SymExpr(static_cast<int64_t>(meta.ndim()) - 1)});
  }

  // If the factor's columns are contiguous, they stay so.
  static ValueId widened(Rebuild& r, ValueId factor, const SymExpr& missing) {
    const TensorMeta meta = r.out().meta(factor);
    if (!(meta.strides[0] == SymExpr(1))) return with_zeros(r, factor, {meta.sizes[0], missing});
    const auto turned = [&](ValueId v) { return r.out().emit("permute", {v, SymSizes{SymExpr(1), SymExpr(0)}}); };
    const ValueId zeros =
        r.out().emit("full", {SymSizes{missing, meta.sizes[0]}, 0.0, meta.dtype, Arg{}, meta.device, Arg{}});
    return turned(r.out().emit("cat", {std::vector<ValueId>{turned(factor), zeros}, SymExpr(0)}));
  }

  void emit(Rebuild& r, const Node& node) const {
    r.begin(node);
    const TensorMeta& made = graph_.meta(node.results[0]);
    const int64_t columns = made.sizes[1].constant(), missing = kElementsOfAWord - columns % kElementsOfAWord;
    std::vector<Arg> args = r.map_args(node);
    const bool adds = node.op->is(graph::KnownOp::addmm);
    Arg& factor = args[adds ? 2 : 1];
    factor = widened(r, value_of(factor), SymExpr(missing));
    if (adds) args[0] = with_zeros(r, value_of(args[0]), {SymExpr(missing)});
    const ValueId product = r.out().emit(node.op->name, std::move(args));
    const ValueId result =
        r.out().emit("slice.Tensor", {product, SymExpr(1), SymExpr(0), SymExpr(columns), SymExpr(1)});
    r.set(node.results[0], graph::with_layout(r.out(), result, made));
  }

  const Graph& graph_;
  const graph::WeightValues known_;
  const TargetInfo& target_;
};

}  // namespace

Graph pad_products(Graph functional, const std::vector<bool>& weights, const TargetInfo& target) {
  if (!target.traits.pads_products) return functional;
  const Padder padder(functional, weights, target);
  const auto is_padded = [&](const Node& node) { return padder.is_padded(node); };
  return std::none_of(functional.nodes.begin(), functional.nodes.end(), is_padded) ? std::move(functional)
                                                                                   : padder.run();
}

}  // namespace framejit::inductor
