// inductor/lowering/users.h — the readers of a value.
#pragma once

#include <optional>
#include <vector>

#include "graph/node_values.h"

namespace framejit::inductor {

class Users {
 public:
  explicit Users(const graph::Graph& graph) : count_(graph.values.size()), last_(graph.values.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for_each_value(graph.nodes[n], [&](graph::ValueId v) { note(v, n); });
    for (graph::ValueId v : graph.outputs) note(v, SIZE_MAX);
    for (const auto& [input, v] : graph.updates) note(v, SIZE_MAX);
  }
  // The node that reads it, once, if nothing else does and it is not an output.
  std::optional<size_t> only_user(graph::ValueId v) const {
    const size_t n = last_[index_of(v)];
    return count_[index_of(v)] == 1 && n != SIZE_MAX ? std::optional(n) : std::nullopt;
  }
  bool is_read(graph::ValueId v) const { return count_[index_of(v)] != 0; }  // being an output counts

 private:
  void note(graph::ValueId v, size_t reader) {
    if (v == graph::kNoValue) return;
    ++count_[index_of(v)];
    last_[index_of(v)] = reader;
  }
  std::vector<size_t> count_, last_;
};

}  // namespace framejit::inductor
