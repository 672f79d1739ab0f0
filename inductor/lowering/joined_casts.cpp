#include "inductor/lowering/joined_casts.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/node_values.h"
#include "graph/ops/rule_kit.h"
#include "graph/passes/rebuild.h"
#include "inductor/lowering/few_rows.h"
#include "inductor/lowering/lower.h"
#include "inductor/lowering/users.h"

namespace framejit::inductor {

using graph::Graph;
using graph::index_of;
using graph::Node;
using graph::SymExpr;
using graph::SymSizes;
using graph::TensorMeta;
using graph::ValueId;

namespace {

constexpr size_t kFewest = 4;  // casts that are worth a call of their own

// Whether it concatenates casts along the first dimension: they lie one after the other in the result.
bool is_stack_of_rows(const Graph& graph, const Node& node) {
  if (!node.op->is(graph::KnownOp::cat)) return false;
  const auto* dim = node.args[1].get<SymExpr>();
  const auto* rows = node.args[0].get<std::vector<ValueId>>();
  const auto is_cast = [&](ValueId v) { return graph.maker(v, graph::KnownOp::to_copy) != nullptr; };
  return dim != nullptr && *dim == SymExpr(0) && rows != nullptr && std::ranges::all_of(*rows, is_cast);
}

// Rearranges a cast with four dimensions as channels_last.
bool is_cast_put_last(const Graph& graph, const Node& node) {
  if (!node.op->is(graph::KnownOp::clone)) return false;
  const auto* from = node.args[0].get<ValueId>();
  return from != nullptr && graph.maker(*from, graph::KnownOp::to_copy) != nullptr &&
         graph.meta(node.results[0]).ndim() == 4 && graph::is_channels_last(graph.meta(node.results[0]));
}

// Values that a kernel reads, also through views, stacks of rows and clones in channels_last; and outputs.
std::vector<bool> read_by_kernels(const Graph& graph, const TargetInfo& target) {
  std::vector<bool> read(graph.values.size(), false);
  const auto mark = [&](ValueId v) {
    if (v != graph::kNoValue) read[index_of(v)] = true;
  };
  for (ValueId v : graph.outputs) mark(v);
  for (const auto& [input, v] : graph.updates) mark(v);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool passes_on =
        node->op->has(graph::kView) || is_stack_of_rows(graph, *node) || is_cast_put_last(graph, *node);
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
      : graph_(graph),
        users_(graph),
        inputs_(graph.inputs.begin(), graph.inputs.end()),
        read_(read_by_kernels(graph, target)) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (!is_cast(graph.nodes[n])) continue;
      const auto user = users_.only_user(graph.nodes[n].results[0]);
      const bool is_last = user && is_cast_put_last(graph, graph.nodes[*user]);
      groups_[{result_of(n).dtype, is_last}].push_back({is_last ? *user : n, {n}});
    }
    std::erase_if(groups_, [](const auto& group) { return group.second.size() < kFewest; });
    for (auto& [kind, results] : groups_)
      if (!kind.is_last) join_stacks(results);
  }

  bool is_empty() const { return groups_.empty(); }

  Graph run() const {
    std::set<size_t> joined;
    for (const auto& [kind, results] : groups_) {
      for (const Written& result : results) {
        joined.insert(result.node);
        joined.insert(result.casts.begin(), result.casts.end());
      }
    }
    graph::Rebuild r(graph_, true);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      r.begin(graph_.nodes[n]);
      for (const auto& [kind, results] : groups_)
        if (first_cast(results) == n) emit(r, kind, results);
      if (!joined.contains(n)) r.copy_node(graph_.nodes[n]);
    }
    return r.build();
  }

 private:
  // A result of the call: a cast, a stack of casts, or a cast that is put into channels_last.
  struct Written {
    size_t node;
    std::vector<size_t> casts;
  };
  // Of a call.
  struct Kind {
    DType dtype;
    bool is_last;
    auto operator<=>(const Kind&) const = default;
  };

  const TensorMeta& result_of(size_t node) const { return graph_.meta(graph_.nodes[node].results[0]); }

  static size_t first_cast(const std::vector<Written>& results) {
    size_t first = SIZE_MAX;
    for (const Written& result : results) first = std::min(first, result.casts.front());
    return first;
  }

  bool is_cast(const Node& node) const {
    if (!node.op->is(graph::KnownOp::to_copy)) return false;
    const ValueId* from = node.args[0].get<ValueId>();
    if (from == nullptr || !inputs_.contains(*from) || read_[index_of(node.results[0])]) return false;
    const TensorMeta &wide = graph_.meta(*from), &narrow = graph_.meta(node.results[0]);
    return wide.dtype == DType::kFloat32 && (narrow.dtype == DType::kBFloat16 || narrow.dtype == DType::kFloat16) &&
           wide.device == narrow.device && is_dense(wide) && narrow.strides == wide.strides;
  }

  // Stacks take the place of the casts that only they read.
  void join_stacks(std::vector<Written>& results) const {
    std::map<size_t, size_t> place;  // of a cast
    for (size_t k = 0; k < results.size(); ++k) place[results[k].node] = k;
    std::set<size_t> gone;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto* rows =
          is_stack_of_rows(graph_, graph_.nodes[n]) ? graph_.nodes[n].args[0].get<std::vector<ValueId>>() : nullptr;
      if (rows == nullptr || !is_dense(result_of(n))) continue;
      Written stack{n, {}};
      for (ValueId v : *rows) {
        const auto made = static_cast<size_t>(graph_.values[index_of(v)].node);
        if (place.contains(made) && users_.only_user(v)) stack.casts.push_back(made);
      }
      if (stack.casts.size() != rows->size()) continue;
      gone.insert(stack.casts.begin(), stack.casts.end());
      results[place[stack.casts.front()]] = std::move(stack);
    }
    std::erase_if(results, [&](const Written& result) { return gone.contains(result.node); });
  }

  void emit(graph::Rebuild& r, Kind kind, const std::vector<Written>& results) const {
    std::vector<ValueId> sources;
    SymSizes counts;
    std::vector<TensorMeta> metas;
    for (const Written& result : results) {
      for (size_t n : result.casts) sources.push_back(r.get(*graph_.nodes[n].args[0].get<ValueId>()));
      counts.emplace_back(static_cast<int64_t>(result.casts.size()));
      metas.push_back(result_of(result.node));
    }
    const std::vector<ValueId> made =
        kind.is_last ? r.out().emit_many("framejit::cast_all_last", {sources, kind.dtype}, std::move(metas))
                     : r.out().emit_many("framejit::cast_all", {sources, counts, kind.dtype}, std::move(metas));
    for (size_t k = 0; k < results.size(); ++k) r.set(graph_.nodes[results[k].node].results[0], made[k]);
  }

  const Graph& graph_;
  const Users users_;
  const std::set<ValueId> inputs_;
  const std::vector<bool> read_;
  std::map<Kind, std::vector<Written>> groups_;
};

}  // namespace

Graph join_casts(Graph functional, const TargetInfo& target) {
  if (!target.traits.casts_together) return functional;
  const CastJoiner joiner(functional, target);
  return joiner.is_empty() ? std::move(functional) : joiner.run();
}

}  // namespace framejit::inductor
