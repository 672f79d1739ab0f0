// graph/passes/canonicalize.cpp — removes no-ops, merges chains of views, merges equal pure nodes.
//
// In: a functional graph.  Out: the same values with fewer nodes. A row gets the mapped arguments and returns the value
// that replaces the node, or nothing. Copies are removed, because values of a functional graph are immutable; if a copy
// made an output fresh, Rebuild::build() restores it. A change of dtype is never removed, because it rounds. A cast
// that narrows moves before a view.
#include <set>
#include <unordered_map>

#include "graph/ops/rule_kit.h"
#include "graph/passes/passes.h"
#include "graph/passes/rebuild.h"
#include "graph/shape_rule.h"

namespace framejit::graph {
namespace {

struct Context {
  Rebuild& r;
  const Node& node;  // of the old graph
  std::vector<Arg> args;

  GraphBuilder& out() const { return r.out(); }
  ValueId value(size_t i) const { return args[i].get<ValueId>() != nullptr ? *args[i].get<ValueId>() : kNoValue; }
  const TensorMeta& meta(ValueId v) const { return r.out().meta(v); }
  const TensorMeta& recorded() const { return r.from().meta(node.results[0]); }
  RuleArgs rule() const { return {args, &r.out().peek().values}; }
};
using Simplify = ValueId (*)(Context& c);

ValueId identity(Context& c) { return c.value(0); }

ValueId if_same_layout(Context& c) {
  const ValueId self = c.value(0);
  return self != kNoValue && same_layout(c.meta(self), c.recorded()) ? self : kNoValue;
}

ValueId view(Context& c) {
  if (const ValueId same = if_same_layout(c); same != kNoValue) return same;
  const Node* inner = c.out().peek().maker(c.value(0), KnownOp::view);
  if (inner == nullptr) return kNoValue;
  const std::vector<Arg> args{inner->args[0], c.recorded().sizes};
  std::vector<TensorMeta> metas;
  if (!infer_metas(*c.node.op, args, c.out().peek().values, c.out().shapes(), metas)) return kNoValue;
  if (!same_layout(metas[0], c.recorded())) return kNoValue;
  const ValueId base = *inner->args[0].get<ValueId>();
  if (same_layout(c.meta(base), metas[0])) return base;
  return c.out().emit("view", args, metas[0]);
}

std::vector<int64_t> order_of(const Arg& arg) {
  std::vector<int64_t> order;
  const auto* list = arg.get<SymSizes>();
  for (const SymExpr& e : *list)
    order.push_back(e.constant() < 0 ? e.constant() + static_cast<int64_t>(list->size()) : e.constant());
  return order;
}

ValueId permute(Context& c) {
  std::vector<int64_t> order = order_of(c.args[1]);
  ValueId base = c.value(0);
  if (const Node* inner = c.out().peek().maker(base, KnownOp::permute)) {
    const std::vector<int64_t> first = order_of(inner->args[1]);
    for (int64_t& dim : order) dim = first[static_cast<size_t>(dim)];
    base = *inner->args[0].get<ValueId>();
  }
  bool sorted = true;
  SymSizes spelled;
  for (size_t i = 0; i < order.size(); ++i) {
    sorted = sorted && order[i] == static_cast<int64_t>(i);
    spelled.emplace_back(order[i]);
  }
  return sorted ? base : c.out().emit("permute", {base, spelled});
}

// A slice that takes everything has the layout of its argument.
ValueId slice(Context& c) {
  const auto step = c.rule().integer(4);
  return (!step || *step == 1) ? if_same_layout(c) : kNoValue;
}

ValueId cat(Context& c) {
  const auto* list = c.args[0].get<std::vector<ValueId>>();
  return list != nullptr && list->size() == 1 && same_layout(c.meta((*list)[0]), c.recorded()) ? (*list)[0] : kNoValue;
}

// x * 1 and x / 1 are x. x + 0 is not, because of -0.0.
ValueId times_one(Context& c) { return is_one(c.args[1]) ? if_same_layout(c) : kNoValue; }

// A cast of a view to fewer bytes becomes a view of the cast. So it has the dimensions of the op that it may fuse with.
ValueId cast(Context& c) {
  if (const ValueId same = if_same_layout(c); same != kNoValue) return same;
  const Node* inner = c.out().peek().maker(c.value(0), KnownOp::view);
  if (inner == nullptr) return kNoValue;
  const ValueId base = *inner->args[0].get<ValueId>();
  const TensorMeta &from = c.meta(base), &to = c.recorded();
  const bool narrows = is_float(from.dtype) && is_float(to.dtype) && row_of(to.dtype).bytes < row_of(from.dtype).bytes;
  if (!narrows || !from.is_contiguous() || !to.is_contiguous() || !(from.device == to.device) ||
      c.out().peek().maker(base) == nullptr)
    return kNoValue;
  std::vector<Arg> args = c.args;
  args[0] = base;
  return c.out().emit("view", {c.out().emit("_to_copy", std::move(args)), to.sizes}, to);
}

const std::unordered_map<std::string_view, Simplify>& rows() {
  static const std::unordered_map<std::string_view, Simplify> table = {{"alias", identity},
                                                                       {"detach", identity},
                                                                       {"lift_fresh", identity},
                                                                       {"view", view},
                                                                       {"_unsafe_view", view},
                                                                       {"permute", permute},
                                                                       {"expand", if_same_layout},
                                                                       {"clone", if_same_layout},
                                                                       {"_to_copy", cast},
                                                                       {"slice.Tensor", slice},
                                                                       {"cat", cat},
                                                                       {"mul.Tensor", times_one},
                                                                       {"mul.Scalar", times_one},
                                                                       {"div.Tensor", times_one},
                                                                       {"div.Scalar", times_one}};
  return table;
}

// The memory that outputs and their views hold.
std::set<ValueId> held_memory(const Graph& graph) {
  std::set<ValueId> held;
  for (const ValueId output : graph.outputs)
    if (output != kNoValue) held.insert(memory_of(graph, output));
  return held;
}

}  // namespace

Result<Graph> canonicalize(Graph graph) {
  Rebuild r(graph, true);
  const std::set<ValueId> kept = addressed_memory(graph), held = held_memory(graph);
  // If an output is a copy of a part, a view in its place would keep the whole memory alive.
  const auto holds_more = [&](ValueId result, ValueId simpler) {
    return held.contains(result) &&
           !(r.out().meta(memory_of(r.out().peek(), simpler)).numel() == graph.meta(result).numel());
  };
  for (const Node& node : graph.nodes) {
    if (node.op->has(kMutates))
      return Error{Reason::not_functional, "needs a functional graph, but " + node.op->name + " writes"};
    r.begin(node);
    const auto row = rows().find(node.op->name);
    if (row != rows().end() && node.results.size() == 1 && node.results[0] != kNoValue &&
        !kept.contains(node.results[0])) {
      Context context{r, node, r.map_args(node)};
      const ValueId simpler = row->second(context);
      if (simpler != kNoValue && !holds_more(node.results[0], simpler)) {
        r.set(node.results[0], simpler);
        continue;
      }
    }
    r.copy_node(node);
  }
  return r.build();
}

}  // namespace framejit::graph
