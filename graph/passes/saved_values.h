// graph/passes/saved_values.h — which values a forward saves for its backward.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "graph/joint.h"
#include "graph/node_values.h"

namespace framejit::graph {

struct SavedValue {
  ValueId value;
  Saved holder;    // where the backward finds it
  bool is_copied;  // the program may write to its memory before the backward
};

struct SavedValues {
  std::vector<SavedValue> values;
  int64_t bytes = 0;          // of those that no input or output holds
  std::vector<bool> depends;  // per value of the joint graph: whether it depends on tangents
};

// `unversioned`: inputs and outputs that eager keeps, but whose versions it does not check before each backward that
// reads them. They are saved as copies.
SavedValues choose_saved(const Graph& joint, const JointLayout& layout, int64_t budget,
                         const std::set<ValueId>& unversioned);

// Whether one of its arguments is among `values`.
inline bool reads_any(const Node& node, const std::vector<bool>& values) {
  bool any = false;
  for_each_value(node, [&](ValueId v) { any = any || (v != kNoValue && values[index_of(v)]); });
  return any;
}

// Whether it may raise for the numbers in its arguments. An integer that is divided by zero is an error.
bool may_fail(const Graph& graph, const Node& node);
inline uint32_t checkpoint_of(const Graph& graph, const Node& node) { return graph.lines[node.line].checkpoint; }
std::optional<uint32_t> input_of(const Graph& joint, const JointLayout& layout, ValueId v);
bool is_updated(const Graph& joint, uint32_t input);

}  // namespace framejit::graph
