// graph/passes/rebuild.h — what every pass needs: a new graph with the old one's inputs, constants, symbols and lines,
// and a map from old values to new ones.
#pragma once

#include <optional>
#include <set>

#include "graph/graph_builder.h"
#include "graph/node_values.h"

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

  void begin(const Node& node);       // nodes emitted from now on carry the line of this node
  // Emits the node with mapped arguments. Its metas are kept if the layouts of its arguments are unchanged, otherwise
  // its shape rule infers them again; without a rule, and for random ops, the old layouts of the arguments are restored
  // first.
  void copy_node(const Node& node);
  // The same for given arguments; returns the results, kNoValue where the old node had none. `like` gives the old
  // results and metas.
  std::vector<ValueId> emit_like(const Node& like, const OpDef* op, std::vector<Arg> args);
  // set(), but a value that has views gets its old layout first: the strides of the views follow from it.
  void adopt(ValueId old, ValueId made);

  // Outputs, aliases and updates of the old graph, mapped. A fresh output gets its own memory, and its views follow.
  Graph build();
  Graph build(std::vector<ValueId> outputs, std::vector<OutputAlias> aliases,
              std::vector<std::pair<uint32_t, ValueId>> updates);

 private:
  void give_own_memory(std::vector<ValueId>& outputs, const std::vector<OutputAlias>& aliases, size_t first,
                       ValueId memory);
  ValueId moved(ValueId v, ValueId from, ValueId to);
  const Graph& from_;
  GraphBuilder out_;
  std::vector<ValueId> map_;
  std::vector<bool> viewed_;  // old values that have views
  std::vector<LineId> lines_;
};

bool is_one(const Arg& number);  // an integer or a float
bool same_layout(const TensorMeta& a, const TensorMeta& b);  // dtype, device, sizes, strides
// The value with exactly this layout: itself, a clone, or a copy into an empty tensor of these strides.
ValueId with_layout(GraphBuilder& out, ValueId value, const TensorMeta& layout);
// A view with these sizes if the strides allow one, otherwise a view of a contiguous clone.
ValueId reshaped(GraphBuilder& out, ValueId value, const SymSizes& sizes);
ValueId converted(GraphBuilder& out, ValueId value, DType dtype);  // _to_copy, or the value itself
ValueId contiguous_clone(GraphBuilder& out, ValueId value);
// Values whose memory must keep the recorded layout: it is an output or an update, or as_strided addresses it.
std::set<ValueId> settled_memory(const Graph& graph);
// Values whose memory is addressed from its beginning: another tensor of the same layout cannot replace them.
std::set<ValueId> addressed_memory(const Graph& graph);

}  // namespace framejit::graph
