// graph/graph_builder.h — the sole maker of graphs.
//
// emit() folds and merges (CSE) pure nodes when `merge` is on; the recorder builds with it off, passes with it on.
// mark() and rollback() drop the nodes of a call that raised.
#pragma once

#include <unordered_map>

#include "graph/graph.h"

namespace framejit::graph {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name = "f", bool merge = false);

  ShapeEnv& shapes() { return graph_.shapes; }
  const Graph& peek() const { return graph_; }
  const TensorMeta& meta(ValueId v) const { return graph_.meta(v); }

  ValueId add_input(TensorMeta meta, uint32_t storage, std::string source_name);
  ValueId add_constant(TensorMeta meta, uint32_t storage);
  ValueId new_value(TensorMeta meta, uint32_t storage);  // will be a result of the next add_node
  uint32_t new_storage() { return next_storage_++; }
  uint32_t new_opaque() { return graph_.opaque_count++; }
  LineId intern_line(const Line& line);
  void set_line(LineId line) { line_ = line; }

  // Recorded dialect: the caller gives metas and storages of the results.
  size_t add_node(Node node);
  // Functional dialect: one single-tensor op by name; metas come from its shape rule (it must have one) unless given.
  ValueId emit(std::string_view op, std::vector<Arg> args);
  ValueId emit(std::string_view op, std::vector<Arg> args, TensorMeta meta);
  // The same for several results.
  std::vector<ValueId> emit_many(std::string_view op, std::vector<Arg> args, std::vector<TensorMeta> metas);

  // The results of an equal pure node that was emitted before, if merging is on; null otherwise.
  const std::vector<ValueId>* find_equal(const OpDef& op, const std::vector<Arg>& args) const;

  struct Mark { size_t nodes, values, facts; };
  Mark mark() const;
  void rollback(const Mark& mark);

  Graph build(std::vector<ValueId> outputs, std::vector<OutputAlias> aliases = {},
              std::vector<std::pair<uint32_t, ValueId>> updates = {});

 private:
  Graph graph_;
  bool merge_;
  LineId line_ = 0;
  uint32_t next_storage_ = 1;
  std::unordered_multimap<uint64_t, size_t> seen_;  // hash of a pure node -> its index
};

}  // namespace framejit::graph
