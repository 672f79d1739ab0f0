#include "inductor/weights/pack_products.h"

#include <algorithm>
#include <optional>

#include "graph/ops/rule_kit.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/weight_values.h"
#include "inductor/lowering/lower.h"
#include "inductor/weights/linear_layers.h"
#include "inductor/lowering/users.h"

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

TensorMeta packed(const TensorMeta& weight) {
  TensorMeta meta;
  meta.dtype = weight.dtype;
  meta.device = weight.device;
  meta.sizes = weight.sizes;
  meta.strides = graph::contiguous_strides(weight.sizes);
  meta.is_packed = true;
  return meta;
}

Arg optional_tensor(ValueId v) { return v == graph::kNoValue ? Arg{} : Arg{v}; }

bool scales_by_one(const Arg& factor) { return graph::is_one(factor); }

class Packer {
 public:
  Packer(const Graph& graph, const std::vector<bool>& weights, const TargetInfo& target)
      : graph_(graph),
        known_(find_weight_values(graph, weights)),
        users_(graph),
        target_(target),
        device_(kernel_device(graph)),
        replaced_(graph.nodes.size()) {}

  Result<Graph> linear() {
    const auto emit = [this](Rebuild& r, const Node& node) { return emit_linear(r, node); };
    return each(emit);
  }
  Result<Graph> float32() {
    const auto emit = [this](Rebuild& r, const Node& node) { return emit_float32(r, node); };
    return each(emit);
  }
  Result<Graph> convolutions() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (is_packed_convolution(graph_.nodes[n]))
        if (const auto added = addition_after(graph_.nodes[n])) replaced_[n] = *added;
    const auto emit = [this](Rebuild& r, const Node& node) { return emit_convolution(r, node); };
    return each(emit);
  }

 private:
  template <class Emit>
  Result<Graph> each(Emit emit) {
    if (!target_.traits.packs_weights) return graph_;
    Rebuild r(graph_, true);
    for (const Node& node : graph_.nodes) {
      r.begin(node);
      const auto made = emit(r, node);
      if (!made) r.copy_node(node);
      else if (*made != graph::kNoValue) r.adopt(node.results[0], *made);
    }
    return graph::dce(r.build());
  }

  bool multiplies(DType dtype) const {
    return dtype == DType::kFloat32 || (dtype == DType::kBFloat16 && target_.multiplies_bf16);
  }
  // ---- linear layers

  std::optional<ValueId> emit_linear(Rebuild& r, const Node& node) {
    const auto layer = linear_layer(graph_, known_, node);
    if (!layer || !packs_bfloat16(graph_, *layer, target_)) return std::nullopt;
    const ValueId weight = contiguous(r, columns_first(r.out(), r.get(layer->weight)));
    const ValueId pack = r.out().emit("mkldnn::_reorder_linear_weight", {weight, Arg{}}, packed(r.out().meta(weight)));
    return r.out().emit("mkldnn::_linear_pointwise",
                        {r.get(layer->x), pack, optional_tensor(r.get(layer->bias)), std::string("none"), SymSizes{},
                         std::string()},
                        graph_.meta(node.results[0]));
  }

  static ValueId contiguous(Rebuild& r, ValueId v) {
    return r.out().meta(v).is_contiguous() ? v : graph::contiguous_clone(r.out(), v);
  }

  // ---- products of float32: MKL packs for a number of rows

  std::optional<ValueId> emit_float32(Rebuild& r, const Node& node) {
    const auto layer = node.op->is(graph::KnownOp::mm) ? linear_layer(graph_, known_, node) : std::nullopt;
    if (!layer || !packs_float32(graph_, *layer, target_)) return std::nullopt;
    const auto sizes = weight_for_sizes(r, layer->weight);
    if (!sizes) return std::nullopt;
    const SymExpr& rows = graph_.meta(layer->x).sizes[0];
    const ValueId whole = contiguous(r, columns_first(r.out(), r.get(layer->weight)));
    const ValueId pack = r.out().emit("mkl::_mkl_reorder_linear_weight", {whole, rows}, packed(r.out().meta(whole)));
    return r.out().emit("mkl::_mkl_linear", {r.get(layer->x), pack, *sizes, Arg{}, rows}, graph_.meta(node.results[0]));
  }

  // The op also takes the plain weight, but only for its sizes: with this number of rows it does not read the data. So
  // a computed weight need not exist. For joined weights, a row of the first one stands for all of them.
  std::optional<ValueId> weight_for_sizes(Rebuild& r, ValueId weight) const {
    const ValueId held = graph::memory_of(graph_, weight);
    const Node* node = graph_.maker(held);
    if (node == nullptr) return columns_first(r.out(), r.get(weight));
    const auto* parts = node->op->is(graph::KnownOp::cat) ? node->args[0].get<std::vector<ValueId>>() : nullptr;
    const TensorMeta& meta = graph_.meta(weight);
    const SymSizes sizes{meta.sizes[1], meta.sizes[0]};
    if (parts == nullptr || !(graph_.meta(held).sizes == sizes)) return std::nullopt;
    const SymExpr zero = 0, one = 1;
    if (graph_.meta((*parts)[0]).numel() == zero) return std::nullopt;
    const ValueId row = r.out().emit("slice.Tensor", {r.get((*parts)[0]), zero, zero, one, one});
    return r.out().emit("expand", {row, sizes, false});
  }

  // ---- convolutions

  bool is_packed_convolution(const Node& node) const {
    if (!node.op->is(graph::KnownOp::convolution)) return false;
    const TensorMeta &input = graph_.meta(value_of(node.args[0])), &weight = graph_.meta(value_of(node.args[1])),
                     &made = graph_.meta(node.results[0]);
    const bool* transposed = node.args[6].get<bool>();
    const ValueId bias = value_of(node.args[2]);
    return known_.is_weight(value_of(node.args[1])) && transposed != nullptr && !*transposed && made.ndim() == 4 &&
           made.device == device_ && input.dtype == weight.dtype && multiplies(made.dtype) &&
           graph::is_channels_last(input) && graph::is_channels_last(made) && is_sized(input) && is_sized(made) &&
           (bias == graph::kNoValue || graph_.meta(bias).dtype == made.dtype);
  }

  // The addition of a tensor of the same layout, if it is the only reader of a convolution.
  std::optional<size_t> addition_after(const Node& node) const {
    const auto user = users_.only_user(node.results[0]);
    if (!user || !graph_.nodes[*user].op->is(graph::KnownOp::add_tensor)) return std::nullopt;
    const Node& add = graph_.nodes[*user];
    const ValueId left = value_of(add.args[0]), right = value_of(add.args[1]);
    if (left == graph::kNoValue || right == graph::kNoValue || !scales_by_one(add.args[2])) return std::nullopt;
    const ValueId other = left == node.results[0] ? right : left;
    const bool fits = graph::same_layout(graph_.meta(other), graph_.meta(node.results[0])) &&
                      graph::same_layout(graph_.meta(add.results[0]), graph_.meta(node.results[0]));
    const int32_t made_by = graph_.values[graph::index_of(other)].node;
    const bool is_made = made_by < static_cast<int32_t>(&node - graph_.nodes.data());
    return fits && is_made ? user : std::nullopt;
  }

  // The library packs for the sizes of the input: with other sizes it would rearrange the weight in each call.
  static bool is_sized(const TensorMeta& meta) {
    return std::all_of(meta.sizes.begin(), meta.sizes.end(),
                       [](const SymExpr& e) { return e.is_constant() && e.constant() > 0; });
  }

  ValueId pack_of(Rebuild& r, const Node& node) const {
    const ValueId weight = r.get(value_of(node.args[1]));
    return r.out().emit(
        "mkldnn::_reorder_convolution_weight",
        {weight, node.args[4], node.args[3], node.args[5], node.args[8], graph_.meta(value_of(node.args[0])).sizes},
        packed(r.out().meta(weight)));
  }

  // kNoValue: the addition that follows computes it.
  std::optional<ValueId> emit_convolution(Rebuild& r, const Node& node) {
    const auto n = static_cast<size_t>(&node - graph_.nodes.data());
    const auto convolution = std::find(replaced_.begin(), replaced_.end(), std::optional(n));
    if (convolution != replaced_.end())
      return emit_with_addition(r, graph_.nodes[static_cast<size_t>(convolution - replaced_.begin())], node);
    if (!is_packed_convolution(node)) return std::nullopt;
    if (replaced_[n]) return graph::kNoValue;
    const Arg bias = optional_tensor(r.get(value_of(node.args[2])));
    return r.out().emit("mkldnn::_convolution_pointwise",
                        {r.get(value_of(node.args[0])), pack_of(r, node), bias, node.args[4], node.args[3],
                         node.args[5], node.args[8], std::string("none"), SymSizes{}, std::string()},
                        graph_.meta(node.results[0]));
  }

  ValueId emit_with_addition(Rebuild& r, const Node& node, const Node& add) const {
    const ValueId left = value_of(add.args[0]), right = value_of(add.args[1]);
    const ValueId other = left == node.results[0] ? right : left;
    const Arg bias = optional_tensor(r.get(value_of(node.args[2])));
    return r.out().emit(
        "mkldnn::_convolution_pointwise.binary",
        {r.get(value_of(node.args[0])), r.get(other), pack_of(r, node), bias, node.args[4], node.args[3], node.args[5],
         node.args[8], std::string("add"), SymExpr(1), Arg{}, SymSizes{}, Arg{}},
        graph_.meta(add.results[0]));
  }

  const Graph& graph_;
  const graph::WeightValues known_;
  const Users users_;
  const TargetInfo& target_;
  const graph::Device device_;
  std::vector<std::optional<size_t>> replaced_;  // per node: the addition that computes it as well
};

}  // namespace

Result<Graph> pack_linear(const Graph& functional, const std::vector<bool>& weights, const TargetInfo& target) {
  return Packer(functional, weights, target).linear();
}

Result<Graph> pack_float32(const Graph& functional, const std::vector<bool>& weights, const TargetInfo& target) {
  return Packer(functional, weights, target).float32();
}

Result<Graph> pack_convolutions(const Graph& functional, const std::vector<bool>& weights, const TargetInfo& target) {
  return Packer(functional, weights, target).convolutions();
}

}  // namespace framejit::inductor
