// inductor/lowering/memory_formats.cpp — see memory_formats.h.
//
// Vertices are the nodes whose result follows the format of its operands: convolutions and poolings, which have a
// preference, and elementwise ops, concatenations and the like, which have none. Values of other nodes, inputs,
// outputs, and values that other nodes read keep the recorded format.
#include "inductor/lowering/memory_formats.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "graph/minimum_cut.h"
#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "graph/ops/rule_kit.h"
#include "graph/passes/rebuild.h"
#include "graph/weight_values.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Rebuild;
using graph::TensorMeta;
using graph::ValueId;

namespace {

enum class Kind : uint8_t { dense,
                            strided,
                            grouped,
                            depthwise,
                            max_pool,
                            avg_pool,
                            pool_kernel };
constexpr int64_t kAny = INT64_MAX;
struct CostRow {
  Kind kind;
  int64_t least, most, narrow, wide, wide_packed, bf16, bf16_packed, rearranged;
};
constexpr CostRow kCosts[] = {
#define FORMAT_COST(kind, least, most, narrow, wide, wide_packed, bf16, bf16_packed, rearranged) \
  {Kind::kind, least, most, narrow, wide, wide_packed, bf16, bf16_packed, rearranged},
#include "inductor/lowering/format_costs.def"
#undef FORMAT_COST
};

CostRow cost_of(Kind kind, int64_t window) {
  for (const CostRow& row : kCosts)
    if (row.kind == kind && row.least <= window && window <= row.most) return row;
  return {kind, 0, kAny};
}

bool is_ambiguous(const TensorMeta& m) { return m.is_contiguous() == graph::is_channels_last(m); }  // both, or neither

class FormatChooser {
 public:
  FormatChooser(const Graph& graph, const TargetInfo& target, FormatRule rule, const std::vector<bool>& weights)
      : graph_(graph),
        known_(find_weight_values(graph, weights)),
        target_(target),
        rule_(rule),
        vertex_(graph.nodes.size(), SIZE_MAX),
        producer_(graph.values.size(), SIZE_MAX) {}

  Graph run() {
    find_vertices();
    if (!has_preference_) return graph_;
    graph::MinimumCut cut(count_ + 1);
    fixed_ = count_;  // the side of contiguous values
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (vertex_[n] != SIZE_MAX) join_operands(cut, n);
    for (const Node& node : graph_.nodes) join_readers(cut, node);
    for (ValueId v : graph_.outputs) join_recorded(cut, v);
    for (const auto& [input, v] : graph_.updates) join_recorded(cut, v);
    cut.prefer(fixed_, -kFixed);
    side_ = cut.on_first_side();
    Graph chosen = rebuild();
    const bool assumes = chosen.shapes.facts().size() > graph_.shapes.facts().size();
    return assumes ? graph_ : chosen;
  }

 private:
  static constexpr int64_t kFixed = int64_t{1} << 60;
  static constexpr int64_t kWanted = int64_t{1}
                                     << 44;  // more than conversions cost; and the sum of many still fits below kFixed

  const ValueId* value(const Node& node, size_t i) const {
    const ValueId* v = i < node.args.size() ? node.args[i].get<ValueId>() : nullptr;
    return v == nullptr || *v == graph::kNoValue ? nullptr : v;
  }
  int64_t numel(ValueId v) const { return graph_.shapes.hint(graph_.meta(v).numel()); }
  int64_t window_of(const SymSizes& sizes, size_t from) const {
    int64_t longest = 1;
    for (size_t d = from; d < sizes.size(); ++d) longest = std::max(longest, graph_.shapes.hint(sizes[d]));
    return longest;
  }
  static bool all_ones(const Node& node, size_t i) {
    const auto* list = i < node.args.size() ? node.args[i].get<SymSizes>() : nullptr;
    return list == nullptr || std::all_of(list->begin(), list->end(), [](const SymExpr& e) { return e == SymExpr(1); });
  }

  // Operands whose format the result follows; none for nodes that are not vertices.
  std::vector<ValueId> carried(const Node& node) const {
    std::vector<ValueId> found;
    const auto take = [&](ValueId v) {
      if (v != graph::kNoValue && graph_.meta(v).ndim() == 4) found.push_back(v);
    };
    const bool preserves = (node.op->is(graph::KnownOp::clone) && !value_given(node, 1)) ||
                           (node.op->is(graph::KnownOp::to_copy) && !value_given(node, 6));
    if (graph::is_in(graph::OpList::keeps_format, node.op->name) || preserves) {
      if (const ValueId* v = value(node, 0)) take(*v);
    } else if (node.op->is(graph::KnownOp::cat)) {
      if (const auto* list = node.args[0].get<std::vector<ValueId>>()) std::for_each(list->begin(), list->end(), take);
    } else if (node.op->has(graph::kPointwise)) {
      const graph::SymSizes& sizes = graph_.meta(node.results[0]).sizes;
      for (size_t i = 0; i < node.args.size(); ++i)
        if (const ValueId* v = value(node, i); v != nullptr && graph_.meta(*v).sizes == sizes) take(*v);
    }
    return found;
  }
  static bool value_given(const Node& node, size_t i) { return i < node.args.size() && !node.args[i].is_none(); }

  bool is_vertex(const Node& node) const {
    if (node.results.empty() || node.results[0] == graph::kNoValue || graph_.meta(node.results[0]).ndim() != 4 ||
        carried(node).empty())
      return false;
    if (!node.op->is(graph::KnownOp::convolution)) return true;
    const DType dtype = graph_.meta(node.results[0]).dtype;
    const bool* transposed = node.args[6].get<bool>();
    const bool has_formats = dtype == DType::kFloat32 || dtype == DType::kBFloat16 ||
                             (dtype == DType::kFloat16 && target_.traits.half_convolutions_are_last);
    return has_formats && transposed != nullptr && !*transposed &&
           all_ones(node, 5);
  }

  void find_vertices() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!is_vertex(node)) continue;
      vertex_[n] = count_++;
      for (ValueId v : node.results)
        if (v != graph::kNoValue) producer_[graph::index_of(v)] = n;
      has_preference_ = has_preference_ || preference(node) != 0;
    }
  }

  // Picoseconds that channels_last saves.
  int64_t preference(const Node& node) const {
    if (target_.traits.half_convolutions_are_last) {
      const DType dtype = graph_.meta(node.results[0]).dtype;
      return node.op->is(graph::KnownOp::convolution) && is_half(dtype) ? kWanted : 0;
    }
    const int64_t results = numel(node.results[0]);
    const bool is_max = node.op->is(graph::KnownOp::max_pool2d_with_indices);
    if (is_max || node.op->is(graph::KnownOp::avg_pool2d)) {
      const auto* window = node.args[1].get<SymSizes>();
      if (window == nullptr) return 0;
      int64_t elements = results;
      for (size_t d = 0; d < 2; ++d) elements *= graph_.shapes.hint((*window)[window->size() == 1 ? 0 : d]);
      const Kind kind = is_pool_kernel(graph_, target_, node) ? Kind::pool_kernel : is_max ? Kind::max_pool
                                                                                  : Kind::avg_pool;
      return saved(cost_of(kind, window_of(*window, 0)), graph_.meta(node.results[0]).dtype, false) * elements;
    }
    if (!node.op->is(graph::KnownOp::convolution)) return 0;
    if (rule_ == FormatRule::kChannelsLast) return kWanted;
    const ValueId weight = *value(node, 1);
    const TensorMeta& w = graph_.meta(weight);
    const int64_t groups =
        node.args[8].get<SymExpr>() == nullptr ? 1 : graph_.shapes.hint(*node.args[8].get<SymExpr>());
    const int64_t per_group = graph_.shapes.hint(w.sizes[1]), window = window_of(w.sizes, 2);
    const Kind plain = window == 1 && !all_ones(node, 3) ? Kind::strided : Kind::dense;
    const CostRow cost = cost_of(groups == 1 || per_group > 32 ? plain
                                 : per_group == 1              ? Kind::depthwise
                                                               : Kind::grouped,
                                 window);
    const int64_t weights = graph_.shapes.hint(w.numel());
    // If a kernel writes the weight anyway, or it already has the format, only the library rearranges it.
    const bool is_ready =
        (graph::is_channels_last(w) && !w.is_contiguous()) || graph_.values[graph::index_of(weight)].node >= 0;
    const bool is_known = known_.is_weight(weight);
    return saved(cost, w.dtype, is_known && target_.traits.packs_weights) * results *
               (weights / std::max<int64_t>(graph_.shapes.hint(w.sizes[0]), 1)) -
           (is_known ? 0 : cost.rearranged * weights / (is_ready ? 2 : 1));
  }

  int64_t saved(const CostRow& row, DType dtype, bool is_packed) const {
    if (!target_.registers.are_wide()) return row.narrow;
    if (dtype == DType::kBFloat16 && target_.multiplies_bf16) return is_packed ? row.bf16_packed : row.bf16;
    return is_packed ? row.wide_packed : row.wide;
  }

  void join_operands(graph::MinimumCut& cut, size_t n) {
    cut.prefer(vertex_[n], preference(graph_.nodes[n]));
    for (ValueId v : carried(graph_.nodes[n])) {
      const size_t made = producer_[graph::index_of(v)];
      if (made != SIZE_MAX) cut.join(vertex_[made], vertex_[n], target_.costs.conversion * numel(v));
      else join_format(cut, vertex_[n], graph_.meta(v), numel(v));
    }
  }

  void join_format(graph::MinimumCut& cut, size_t vertex, const TensorMeta& meta, int64_t elements) const {
    if (is_ambiguous(meta)) return;
    if (graph::is_channels_last(meta)) cut.prefer(vertex, target_.costs.conversion * elements);
    else cut.join(vertex, fixed_, target_.costs.conversion * elements);
  }

  void join_recorded(graph::MinimumCut& cut, ValueId v) const {
    if (v == graph::kNoValue || producer_[graph::index_of(v)] == SIZE_MAX) return;
    join_format(cut, vertex_[producer_[graph::index_of(v)]], graph_.meta(v), numel(v));
  }

  void join_readers(graph::MinimumCut& cut, const Node& node) const {
    if (vertex_[static_cast<size_t>(&node - graph_.nodes.data())] != SIZE_MAX) return;
    graph::for_each_value(node, [&](ValueId v) { join_recorded(cut, v); });
  }

  Graph rebuild() {
    Rebuild r(graph_, true);
    laid_.assign(graph_.values.size(), graph::kNoValue);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (vertex_[n] == SIZE_MAX || stays(n)) {
        r.copy_node(node);
        continue;
      }
      r.begin(node);
      const std::vector<ValueId> results = r.emit_like(node, node.op, operands(r, node, side_[vertex_[n]]));
      for (size_t k = 0; k < results.size(); ++k) {
        if (node.results[k] == graph::kNoValue) continue;
        laid_[graph::index_of(node.results[k])] = results[k];
        r.adopt(node.results[k], results[k]);
      }
    }
    return r.build();
  }

  // Whether it keeps its recorded format, which may be neither contiguous nor channels_last. This is for targets where
  // only convolutions prefer a format.
  bool stays(size_t n) const {
    if (!target_.traits.half_convolutions_are_last || side_[vertex_[n]]) return false;
    bool follows = false;
    graph::for_each_value(graph_.nodes[n], [&](ValueId v) {
      follows = follows || (v != graph::kNoValue && laid_[graph::index_of(v)] != graph::kNoValue);
    });
    return !follows;
  }

  std::vector<Arg> operands(Rebuild& r, const Node& node, bool last) const {
    const std::vector<ValueId> follows = carried(node);
    const auto laid = [&](ValueId v) {
      const ValueId known = v == graph::kNoValue ? graph::kNoValue : laid_[graph::index_of(v)];
      const ValueId made = known != graph::kNoValue ? known : r.get(v);
      return std::find(follows.begin(), follows.end(), v) == follows.end() ? r.get(v) : in_format(r.out(), made, last);
    };
    std::vector<Arg> args = r.map_args(node);
    for (size_t i = 0; i < args.size(); ++i) {
      if (const ValueId* v = node.args[i].get<ValueId>()) args[i] = laid(*v);
      if (const auto* list = node.args[i].get<std::vector<ValueId>>())
        std::transform(list->begin(), list->end(), std::get<std::vector<ValueId>>(args[i].payload).begin(), laid);
    }
    if (node.op->is(graph::KnownOp::convolution)) args[1] = in_format(r.out(), *args[1].get<ValueId>(), last);
    return args;
  }

  static ValueId in_format(graph::GraphBuilder& out, ValueId v, bool last) {
    const TensorMeta& meta = out.meta(v);
    if (last ? graph::is_channels_last(meta) : meta.is_contiguous()) return v;
    return last ? out.emit("clone", {v, graph::TorchEnum{'m', graph::kChannelsLastFormat}})
                : graph::contiguous_clone(out, v);
  }

  const Graph& graph_;
  const graph::WeightValues known_;
  const TargetInfo& target_;
  const FormatRule rule_;
  std::vector<size_t> vertex_;    // per node
  std::vector<size_t> producer_;  // per value: the node, if it is a vertex
  size_t count_ = 0, fixed_ = 0;
  bool has_preference_ = false;
  std::vector<bool> side_;        // per vertex: channels_last
  std::vector<ValueId> laid_;     // per value of a vertex: the new value, in the chosen format
};

}  // namespace

Graph choose_memory_formats(const Graph& functional, const TargetInfo& target, FormatRule rule,
                            const std::vector<bool>& weights) {
  if (!target.traits.formats_differ) return functional;
  return FormatChooser(functional, target, rule, weights).run();
}

}  // namespace framejit::inductor
