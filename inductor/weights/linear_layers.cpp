#include "inductor/weights/linear_layers.h"

#include <algorithm>

#include "graph/passes/rebuild.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::Graph;
using graph::Node;
using graph::SymExpr;
using graph::SymSizes;
using graph::TensorMeta;
using graph::ValueId;

ValueId value_of(const graph::Arg& arg) {
  const ValueId* v = arg.get<ValueId>();
  return v == nullptr ? graph::kNoValue : *v;
}

namespace {

bool is_work(const Graph& graph, const LinearLayer& layer, const TargetInfo& target) {
  const TensorMeta &x = graph.meta(layer.x), &weight = graph.meta(layer.weight);
  double work = 1;
  for (const SymExpr& size : {x.sizes[0], x.sizes[1], weight.sizes[1]})
    work *= static_cast<double>(graph.shapes.hint(size));
  return work >= static_cast<double>(target.costs.packed_work);
}

bool packs(const Graph& graph, const LinearLayer& layer, const TargetInfo& target, DType dtype) {
  const TensorMeta &x = graph.meta(layer.x), &weight = graph.meta(layer.weight);
  return target.traits.packs_weights && x.dtype == dtype && x.device == kernel_device(graph) &&
         !(weight.numel() == SymExpr(0)) && !(x.numel() == SymExpr(0)) && x.strides[1] == SymExpr(1) &&
         is_work(graph, layer, target);
}

}  // namespace

std::optional<LinearLayer> linear_layer(const Graph& graph, const graph::WeightValues& known, const Node& node) {
  const bool adds = node.op->is(graph::KnownOp::addmm);
  if (!adds && !node.op->is(graph::KnownOp::mm)) return std::nullopt;
  LinearLayer layer{value_of(node.args[adds ? 1 : 0]), value_of(node.args[adds ? 2 : 1]), graph::kNoValue};
  const TensorMeta& made = graph.meta(node.results[0]);
  if (!known.is_weight(layer.weight) || graph.meta(layer.weight).dtype != graph.meta(layer.x).dtype ||
      !made.is_contiguous())
    return std::nullopt;
  if (adds) {
    layer.bias = value_of(node.args[0]);
    const TensorMeta& added = graph.meta(layer.bias);
    const bool is_bias = added.ndim() == 1 && added.sizes[0] == made.sizes[1] && added.dtype == made.dtype;
    if (!is_bias || !std::all_of(node.args.begin() + 3, node.args.end(), graph::is_one)) return std::nullopt;
  }
  return layer;
}

bool packs_bfloat16(const Graph& graph, const LinearLayer& layer, const TargetInfo& target) {
  return target.multiplies_bf16 && packs(graph, layer, target, DType::kBFloat16);
}

bool packs_float32(const Graph& graph, const LinearLayer& layer, const TargetInfo& target) {
  const SymExpr& rows = graph.meta(layer.x).sizes[0];
  return target.costs.packed_rows > 0 && rows.is_constant() && rows.constant() >= target.costs.packed_rows &&
         graph.meta(layer.weight).numel().is_constant() && packs(graph, layer, target, DType::kFloat32);
}

ValueId columns_first(graph::GraphBuilder& out, ValueId weight) {
  const Graph& graph = out.peek();
  if (const Node* permuted = graph.maker(weight, graph::KnownOp::permute)) {
    const ValueId base = value_of(permuted->args[0]);
    if (graph.meta(base).is_contiguous()) return base;
  }
  return out.emit("permute", {weight, SymSizes{SymExpr(1), SymExpr(0)}});
}

}  // namespace framejit::inductor
