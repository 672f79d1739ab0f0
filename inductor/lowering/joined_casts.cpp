#include "inductor/lowering/joined_casts.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/node_values.h"
#include "graph/passes/rebuild.h"
#include "inductor/lowering/few_rows.h"
#include "inductor/lowering/lower.h"

namespace framejit::inductor {

using graph::Graph;
using graph::index_of;
using graph::Node;
using graph::TensorMeta;
using graph::ValueId;

namespace {

constexpr size_t kFewest = 4;  // casts that are worth a call of their own

// Values that a kernel reads, through views too, and those that leave the graph.
std::vector<bool> read_by_kernels(const Graph& graph, const TargetInfo& target) {
  std::vector<bool> read(graph.values.size(), false);
  const auto mark = [&](ValueId v) {
    if (v != graph::kNoValue) read[index_of(v)] = true;
  };
  for (ValueId v : graph.outputs) mark(v);
  for (const auto& [input, v] : graph.updates) mark(v);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool passes_on = node->op->has(graph::kView);
    const bool is_read = passes_on
                             ? std::any_of(node->results.begin(), node->results.end(),
                                           [&](ValueId v) { return v != graph::kNoValue && read[index_of(v)]; })
                             : find_lowering(node->op->name) != nullptr || is_few_row_product(graph, *node, target);
    if (is_read) graph::for_each_value(*node, mark);
  }
  return read;
}

bool is_dense(const TensorMeta& meta) {
  return std::all_of(meta.sizes.begin(), meta.sizes.end(), [](const auto& size) { return size.is_constant(); }) &&
         meta.strides == graph::contiguous_strides(meta.sizes);
}

class CastJoiner {
 public:
  CastJoiner(const Graph& graph, const TargetInfo& target)
      : graph_(graph), inputs_(graph.inputs.begin(), graph.inputs.end()) {
    const std::vector<bool> read = read_by_kernels(graph, target);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      if (is_candidate(graph.nodes[n], read)) groups_[result_of(n).dtype].push_back(n);
    std::erase_if(groups_, [](const auto& group) { return group.second.size() < kFewest; });
  }

  bool is_empty() const { return groups_.empty(); }

  Graph run() const {
    std::set<size_t> joined;
    for (const auto& [dtype, nodes] : groups_) joined.insert(nodes.begin(), nodes.end());
    graph::Rebuild r(graph_, true);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      r.begin(graph_.nodes[n]);
      for (const auto& [dtype, nodes] : groups_)
        if (nodes.front() == n) emit(r, dtype, nodes);
      if (!joined.contains(n)) r.copy_node(graph_.nodes[n]);
    }
    return r.build();
  }

 private:
  const TensorMeta& result_of(size_t node) const { return graph_.meta(graph_.nodes[node].results[0]); }

  bool is_candidate(const Node& node, const std::vector<bool>& read) const {
    if (node.op->name != "_to_copy") return false;
    const ValueId* from = node.args[0].get<ValueId>();
    if (from == nullptr || !inputs_.contains(*from) || read[index_of(node.results[0])]) return false;
    const TensorMeta &wide = graph_.meta(*from), &narrow = graph_.meta(node.results[0]);
    return wide.dtype == DType::kFloat32 && (narrow.dtype == DType::kBFloat16 || narrow.dtype == DType::kFloat16) &&
           wide.device == narrow.device && is_dense(wide) && narrow.strides == wide.strides;
  }

  void emit(graph::Rebuild& r, DType dtype, const std::vector<size_t>& nodes) const {
    std::vector<ValueId> sources;
    std::vector<TensorMeta> metas;
    for (size_t n : nodes) {
      sources.push_back(r.get(*graph_.nodes[n].args[0].get<ValueId>()));
      metas.push_back(result_of(n));
    }
    const std::vector<ValueId> results = r.out().emit_many("framejit::cast_all", {sources, dtype}, std::move(metas));
    for (size_t k = 0; k < nodes.size(); ++k) r.set(graph_.nodes[nodes[k]].results[0], results[k]);
  }

  const Graph& graph_;
  const std::set<ValueId> inputs_;
  std::map<DType, std::vector<size_t>> groups_;  // nodes
};

}  // namespace

Graph join_casts(Graph functional, const TargetInfo& target) {
  if (!target.traits.casts_together) return functional;
  const CastJoiner joiner(functional, target);
  return joiner.is_empty() ? std::move(functional) : joiner.run();
}

}  // namespace framejit::inductor
