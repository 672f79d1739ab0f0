// graph/node_values.h — the values among a node's arguments, including those in lists, in order; kNoValue (an absent
// one) is visited like any other. And the value in whose memory another lies.
#pragma once

#include <algorithm>
#include <string_view>

#include "graph/graph.h"

namespace framejit::graph {

template <class Visit>
void for_each_value(const Arg& arg, Visit&& visit) {
  if (const ValueId* v = arg.get<ValueId>()) visit(*v);
  if (const auto* list = arg.get<std::vector<ValueId>>())
    for (ValueId v : *list) visit(v);
}

template <class Visit>
void for_each_value(const Node& node, Visit&& visit) {
  for (const Arg& arg : node.args) for_each_value(arg, visit);
}

inline bool has_value(const Arg& arg, ValueId v) {
  bool found = false;
  for_each_value(arg, [&](ValueId other) { found = found || other == v; });
  return found;
}

inline bool has_argument(const Node& node, ValueId v) {
  return std::any_of(node.args.begin(), node.args.end(), [&](const Arg& arg) { return has_value(arg, v); });
}

// Null: the op has no argument of this name, or the node leaves it to the schema's default.
inline const Arg* named_argument(const Node& node, std::string_view name) {
  const auto& names = node.op->arg_names;
  const auto at = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  return at < std::min(names.size(), node.args.size()) ? &node.args[at] : nullptr;
}

// Whether it advances a generator. Attention without dropout does not.
inline bool draws_numbers(const Node& node) {
  if (!node.op->has(kRandom)) return false;
  const auto& names = node.op->arg_names;
  if (std::find(names.begin(), names.end(), "dropout_p") == names.end()) return true;
  const Arg* dropout = named_argument(node, "dropout_p");
  if (dropout == nullptr) return false;  // the schema's default is 0
  const double* p = dropout->get<double>();
  return p == nullptr || *p != 0;
}

// The value in whose memory a functional value lies: itself unless views produced it.
inline ValueId memory_of(const Graph& graph, ValueId value) {
  while (true) {
    const Node* node = graph.maker(value);
    const ValueId* base = node && node->op->has(kView) && !node->args.empty() ? node->args[0].get<ValueId>() : nullptr;
    if (base == nullptr) return value;
    value = *base;
  }
}

}  // namespace framejit::graph
