// graph/passes/rebuild.h — what every pass does alike: a new graph that has the old one's inputs, constants, symbols
// and lines, and a map from old values to new ones.
#pragma once

#include <optional>
#include <set>

#include "graph/graph_builder.h"

namespace framejit::graph {

class Rebuild {
 public:
  Rebuild(const Graph& from, bool merge);

  const Graph& from() const { return from_; }
  GraphBuilder& out() { return out_; }

  ValueId get(ValueId old) const { return old == kNoValue ? kNoValue : map_[index_of(old)]; }
  void set(ValueId old, ValueId made) { map_[index_of(old)] = made; }
  Arg map(const Arg& arg) const;
  std::vector<Arg> map_args(const Node& node) const;

  void begin(const Node& node);       // nodes emitted from now on carry this node's line
  // Emits the node with mapped arguments. Its metas are kept where the arguments look as before, else made anew by the
  // shape rule; without a rule the arguments are first brought back to their old layout.
  void copy_node(const Node& node);
  // The same for given arguments; returns the results, kNoValue where the old node had none. `like` gives old results
  // and metas.
  std::vector<ValueId> emit_like(const Node& like, const OpDef* op, std::vector<Arg> args);
  // set(), but a value that is viewed is brought back to its old layout first: the views' strides follow from it.
  void adopt(ValueId old, ValueId made);

  // Outputs, aliases and updates of the old graph, mapped. A fresh output gets memory of its own, and those that view
  // it follow.
  Graph finish();
  Graph finish(std::vector<ValueId> outputs, std::vector<OutputAlias> aliases,
               std::vector<std::pair<uint32_t, ValueId>> updates);

 private:
  void give_own_memory(std::vector<ValueId>& outputs, const std::vector<OutputAlias>& aliases, size_t first,
                       ValueId memory);
  ValueId moved(ValueId v, ValueId from, ValueId to);
  const Graph& from_;
  GraphBuilder out_;
  std::vector<ValueId> map_;
  std::vector<bool> viewed_;  // old values that a view is taken of
  std::vector<LineId> lines_;
};

bool is_one(const Arg& number);  // an integer or a float
bool same_layout(const TensorMeta& a, const TensorMeta& b);  // dtype, device, sizes, strides
// The value with exactly this layout: itself, a clone, or a copy into an empty tensor of these strides.
ValueId with_layout(GraphBuilder& out, ValueId value, const TensorMeta& layout);
// A view with these sizes where the strides allow one, else a view of a contiguous clone.
ValueId reshaped(GraphBuilder& out, ValueId value, const SymSizes& sizes);
ValueId converted(GraphBuilder& out, ValueId value, DType dtype);  // _to_copy, or the value itself
ValueId contiguous_clone(GraphBuilder& out, ValueId value);
// The value whose memory a functional value lies in: itself unless views produced it.
ValueId memory_of(const Graph& graph, ValueId value);
// Values whose memory is looked at from its beginning: another tensor of the same layout does not stand in for them.
std::set<ValueId> addressed_memory(const Graph& graph);

}  // namespace framejit::graph
