#include "inductor/lowering/short_attention.h"

#include <algorithm>
#include <optional>

#include "graph/node_values.h"
#include "graph/op_lists.h"
#include "graph/passes/rebuild.h"
#include "inductor/lowering/lower.h"
#include "inductor/lowering/one_query.h"
#include "inductor/lowering/users.h"

namespace framejit::inductor {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::SymExpr;
using graph::SymSizes;
using graph::TensorMeta;
using graph::ValueId;

namespace {

constexpr int64_t kSize = 64, kQueriesOfABlock = 64;  // of the kernel

class Finder {
 public:
  Finder(const Graph& graph, const TargetInfo& target) : graph_(graph), target_(target), users_(graph) {}

  bool is_short(const Node& node) const {
    if (!is_in(graph::OpList::takes_columns, node.op->name) || graph::draws_numbers(node)) return false;
    if (is_one_query_attention(graph_, node, target_)) return false;
    for (size_t i = 1; i < node.results.size(); ++i)
      if (node.results[i] != graph::kNoValue && users_.is_read(node.results[i])) return false;
    const Arg* arg = named_argument(node, "is_causal");
    const bool* causal = arg == nullptr ? nullptr : arg->get<bool>();
    return causal != nullptr && (!*causal || mask_of(node) == graph::kNoValue) && fits(node) && scale_of(node);
  }

  void emit(graph::Rebuild& r, const Node& node) const {
    r.begin(node);
    const auto operand = [&](size_t i) { return r.get(*node.args[i].get<ValueId>()); };
    const ValueId mask = mask_of(node);
    r.adopt(node.results[0],
            r.out().emit("framejit::short_attention",
                         {operand(0), operand(1), operand(2), mask == graph::kNoValue ? Arg() : Arg(r.get(mask)),
                          *named_argument(node, "is_causal")->get<bool>(), *scale_of(node)},
                         graph_.meta(node.results[0])));
  }

 private:
  static ValueId mask_of(const Node& node) {
    const Arg* arg = named_argument(node, "attn_bias");
    const ValueId* mask = arg == nullptr ? nullptr : arg->get<ValueId>();
    return mask == nullptr ? graph::kNoValue : *mask;
  }

  static std::optional<double> scale_of(const Node& node) {
    const Arg* arg = named_argument(node, "scale");
    if (arg == nullptr || arg->is_none()) return 0.125;  // one over the root of kSize
    const double* scale = arg->get<double>();
    return scale == nullptr ? std::nullopt : std::optional(*scale);
  }

  bool fits(const Node& node) const {
    const TensorMeta &q = meta(node, 0), &k = meta(node, 1), &v = meta(node, 2), &made = graph_.meta(node.results[0]);
    if (q.ndim() != 4 || !is_half(q.dtype) || q.device != kernel_device(graph_)) return false;
    for (const TensorMeta* m : {&q, &k, &v})
      if (m->ndim() != 4 || m->dtype != q.dtype || !(m->sizes[3] == SymExpr(kSize)) || !has_whole_rows(*m))
        return false;
    if (!(k.sizes == v.sizes) || !(q.sizes[0] == k.sizes[0]) || !(q.sizes[1] == k.sizes[1])) return false;
    if (!q.sizes[1].is_constant() || !q.sizes[2].is_constant() || !k.sizes[2].is_constant()) return false;
    const int64_t queries = q.sizes[2].constant(), keys = k.sizes[2].constant();
    const int64_t blocks =
        graph_.shapes.hint(q.sizes[0]) * q.sizes[1].constant() * ((queries + kQueriesOfABlock - 1) / kQueriesOfABlock);
    const int64_t most =
        mask_of(node) == graph::kNoValue ? target_.costs.short_attention_keys : target_.costs.short_attention_masked;
    if (queries < 1 || keys < 1 || keys > most || blocks > target_.costs.short_attention_blocks) return false;
    const SymExpr row = q.sizes[1] * SymExpr(kSize);
    return made.strides == SymSizes{q.sizes[2] * row, SymExpr(kSize), row, SymExpr(1)} && takes_mask(node, q, k);
  }

  bool takes_mask(const Node& node, const TensorMeta& q, const TensorMeta& k) const {
    if (mask_of(node) == graph::kNoValue) return true;
    const TensorMeta& mask = graph_.meta(mask_of(node));
    const SymSizes scores{q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[2]};
    if (mask.ndim() != 4 || mask.dtype != q.dtype || mask.device != q.device) return false;
    for (size_t d = 0; d < 4; ++d)
      if (!(mask.sizes[d] == SymExpr(1)) && !(mask.sizes[d] == scores[d])) return false;
    return true;
  }

  // Rows are dense, and each begins at a whole word of 16 bytes if the tensor does.
  static bool has_whole_rows(const TensorMeta& m) {
    if (!(m.strides[3] == SymExpr(1))) return false;
    for (const SymExpr& e : {m.strides[1], m.strides[2], m.offset})
      if (!e.is_constant() || e.constant() % 8 != 0) return false;
    return true;
  }

  const TensorMeta& meta(const Node& node, size_t i) const { return graph_.meta(*node.args[i].get<ValueId>()); }

  const Graph& graph_;
  const TargetInfo& target_;
  const Users users_;
};

}  // namespace

Graph short_attention(Graph functional, const TargetInfo& target) {
  if (!target.traits.attends_in_kernel) return functional;
  const Finder finder(functional, target);
  const auto is_short = [&](const Node& node) { return finder.is_short(node); };
  if (std::none_of(functional.nodes.begin(), functional.nodes.end(), is_short)) return functional;
  graph::Rebuild r(functional, true);
  for (const Node& node : functional.nodes) {
    if (is_short(node)) finder.emit(r, node);
    else r.copy_node(node);
  }
  return r.build();
}

}  // namespace framejit::inductor
