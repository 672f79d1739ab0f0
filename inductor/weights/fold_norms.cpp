#include "inductor/weights/fold_norms.h"

#include <algorithm>
#include <optional>

#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/weight_values.h"
#include "inductor/lowering/users.h"

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

// The ops after a convolution, each of which only the next one reads.
struct Norm {
  size_t convolution, last;  // nodes
  ValueId factor, term;      // as they are read: [1, channels, 1, 1], for example
};

class Folder {
 public:
  Folder(const Graph& graph, const std::vector<bool>& weights)
      : graph_(graph), known_(find_weight_values(graph, weights)), users_(graph) {}

  Result<Graph> run() {
    std::vector<std::optional<Norm>> ends(graph_.nodes.size());
    bool any = false;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (const auto norm = norm_after(n)) ends[norm->last] = norm, any = true;
    if (!any) return graph_;
    graph::Rebuild r(graph_, true);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (ends[n]) emit(r, *ends[n]);
      else r.copy_node(graph_.nodes[n]);
    }
    return graph::dce(r.build());
  }

 private:
  // The only reader of the result of node n, if it is this op.
  std::optional<size_t> next(size_t n, graph::KnownOp op) const {
    const auto user = users_.only_user(graph_.nodes[n].results[0]);
    return user && graph_.nodes[*user].op->is(op) ? user : std::nullopt;
  }

  bool is_cast_to(size_t n, DType dtype) const { return graph_.meta(graph_.nodes[n].results[0]).dtype == dtype; }

  // The other operand of an addition or product of results, if it varies only by channel and is made from weights.
  std::optional<ValueId> by_channel(size_t n, ValueId result) const {
    const Node& node = graph_.nodes[n];
    const ValueId *left = node.args[0].get<ValueId>(), *right = node.args[1].get<ValueId>();
    if (left == nullptr || right == nullptr || *left == *right) return std::nullopt;
    const ValueId other = *left == result ? *right : *left;
    const TensorMeta &of = graph_.meta(other), &made = graph_.meta(node.results[0]);
    const size_t after = made.ndim() - 2;  // dimensions after the channels
    if (!known_.is_weight(other) || of.dtype != made.dtype || of.ndim() < after + 1) return std::nullopt;
    if (!(made.sizes == graph_.meta(result).sizes)) return std::nullopt;
    for (size_t d = 0; d < of.ndim(); ++d)
      if (!(of.sizes[d] == (d + after + 1 == of.ndim() ? made.sizes[1] : SymExpr(1)))) return std::nullopt;
    return other;
  }

  std::optional<Norm> norm_after(size_t n) const {
    const Node& node = graph_.nodes[n];
    if (!node.op->is(graph::KnownOp::convolution)) return std::nullopt;
    const ValueId *weight = node.args[1].get<ValueId>(), *bias = node.args[2].get<ValueId>();
    const bool* transposed = node.args[6].get<bool>();
    const bool has_bias = bias != nullptr && *bias != graph::kNoValue;
    if (!known_.is_weight(*weight) || (has_bias && !known_.is_weight(*bias)) || !transposed || *transposed)
      return std::nullopt;
    const DType dtype = graph_.meta(node.results[0]).dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kBFloat16) return std::nullopt;
    std::optional<size_t> at = n;
    if (dtype != DType::kFloat32 && (!(at = next(*at, graph::KnownOp::to_copy)) || !is_cast_to(*at, DType::kFloat32)))
      return std::nullopt;
    Norm norm{.convolution = n};
    ValueId result = graph_.nodes[*at].results[0];
    if (!(at = next(*at, graph::KnownOp::mul_tensor))) return std::nullopt;
    const auto factor = by_channel(*at, result);
    if (!factor) return std::nullopt;
    result = graph_.nodes[*at].results[0];
    if (!(at = next(*at, graph::KnownOp::add_tensor)) || !graph::is_one(graph_.nodes[*at].args[2])) return std::nullopt;
    const auto term = by_channel(*at, result);
    if (!term) return std::nullopt;
    if (dtype != DType::kFloat32 && (!(at = next(*at, graph::KnownOp::to_copy)) || !is_cast_to(*at, dtype)))
      return std::nullopt;
    norm.factor = *factor, norm.term = *term, norm.last = *at;
    return norm;
  }

  // A cast to half precision is left out: the folded weight is rounded once, later.
  ValueId wide(graph::Rebuild& r, ValueId old) const {
    if (const Node* cast = graph_.maker(old, graph::KnownOp::to_copy)) {
      const ValueId source = *cast->args[0].get<ValueId>();
      if (graph_.meta(source).dtype == DType::kFloat32) return r.get(source);
    }
    return graph::converted(r.out(), r.get(old), DType::kFloat32);
  }

  void emit(graph::Rebuild& r, const Norm& norm) {
    const Node& convolution = graph_.nodes[norm.convolution];
    r.begin(convolution);
    std::vector<Arg> args = r.map_args(convolution);
    const ValueId weight = *convolution.args[1].get<ValueId>();
    const TensorMeta& made = graph_.meta(convolution.results[0]);
    const SymSizes channels{made.sizes[1]};
    SymSizes outermost(graph_.meta(weight).ndim(), SymExpr(1));
    outermost[0] = made.sizes[1];
    const ValueId factor = graph::reshaped(r.out(), r.get(norm.factor), channels);
    const ValueId scaled = r.out().emit("mul.Tensor", {wide(r, weight), graph::reshaped(r.out(), factor, outermost)});
    ValueId term = graph::reshaped(r.out(), r.get(norm.term), channels);
    const ValueId* bias = convolution.args[2].get<ValueId>();
    if (bias != nullptr && *bias != graph::kNoValue)
      term = r.out().emit("add.Tensor", {r.out().emit("mul.Tensor", {wide(r, *bias), factor}), term, SymExpr(1)});
    args[1] = graph::with_layout(r.out(), graph::converted(r.out(), scaled, made.dtype), graph_.meta(weight));
    args[2] = graph::converted(r.out(), term, made.dtype);
    const ValueId result = r.out().emit("convolution", std::move(args), made);
    r.adopt(graph_.nodes[norm.last].results[0],
            graph::with_layout(r.out(), result, graph_.meta(graph_.nodes[norm.last].results[0])));
  }

  const Graph& graph_;
  const graph::WeightValues known_;
  const Users users_;
};

}  // namespace

Result<Graph> fold_norms(const Graph& functional, const std::vector<bool>& weights) {
  return Folder(functional, weights).run();
}

}  // namespace framejit::inductor
