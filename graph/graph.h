// graph/graph.h — the FX-like IR: a flat SSA list of op calls over tensors, immutable once finished.
//
// Two dialects share it: the recorded ATen graph (views alias, in-place ops write) and the functional graph (no writes;
// input updates are listed in `updates`). A value is a tensor; integers are SymExprs inside arguments. GraphBuilder is
// the sole maker.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graph/op_def.h"
#include "graph/shape_env.h"
#include "graph/tensor_meta.h"
#include "runtime/base/result.h"
#include "runtime/torch_arg.h"

namespace framejit::graph {

enum class ValueId : uint32_t {};
inline constexpr ValueId kNoValue{UINT32_MAX};  // an undefined tensor, an absent optional
inline uint32_t index_of(ValueId v) { return static_cast<uint32_t>(v); }

using runtime::None;
using runtime::OpaqueSlot;
using runtime::TorchEnum;

// One argument, in schema order. A Python or wrapped number is SymExpr (int), double or bool, never a value.
struct Arg {
  using Payload =
      std::variant<None, ValueId, std::vector<ValueId>, SymExpr, std::vector<SymExpr>, double, std::vector<double>,
                   bool, std::vector<bool>, std::string, DType, Device, TorchEnum, OpaqueSlot>;
  Payload payload;
  Arg() = default;
  template <class T> Arg(T value) : payload(std::move(value)) {}
  template <class T> const T* get() const { return std::get_if<T>(&payload); }
  bool is_none() const { return std::holds_alternative<None>(payload); }
  friend bool operator==(const Arg&, const Arg&) = default;
};

struct Line {  // the user's line that caused a node
  std::string file;
  int number = 0;
  std::string function;
  uint32_t checkpoint = 0;  // the call of torch.utils.checkpoint that the node lies in, numbered from 1; 0: in none
};
using LineId = uint32_t;  // index into Graph::lines; 0 is "unknown"

struct Node {
  const OpDef* op = nullptr;
  std::vector<Arg> args;
  std::vector<ValueId> results;        // all results in order, lists flattened; kNoValue for an undefined one
  std::vector<int16_t> result_lists;   // per schema return: -1 a single tensor, n >= 0 a list of n. Empty: all single
  LineId line = 0;
};

struct ValueInfo {
  TensorMeta meta;
  int32_t node = -1;      // producer, or -1 for inputs and constants
  uint32_t storage = 0;   // recorded dialect: values with the same storage alias
};

enum class OutputKind : uint8_t { kFresh, kInput, kViewOfInput, kViewOfOutput };
struct OutputAlias {
  OutputKind kind = OutputKind::kFresh;
  uint32_t of = 0;  // index of the input or output
};

using ValueInfos = std::deque<ValueInfo>;  // a deque, because passes hold references to metas while they add values

struct Graph {
  std::string name = "f";
  ShapeEnv shapes;
  ValueInfos values;
  std::vector<ValueId> inputs;
  std::vector<std::string> input_names;       // printable sources, same order
  std::vector<ValueId> constants;             // captured tensors: the recorder keeps them; slot = position here
  std::vector<Node> nodes;
  std::vector<ValueId> outputs;
  std::vector<OutputAlias> output_aliases;    // same order as outputs
  std::vector<std::pair<uint32_t, ValueId>> updates;  // (input index, value to be copied into it), functional dialect
  std::vector<Line> lines{Line{}};
  uint32_t opaque_count = 0;

  const TensorMeta& meta(ValueId v) const { return values[index_of(v)].meta; }
  const Node* maker(ValueId v) const {  // the node that makes it; null for an input, a constant, and kNoValue
    const int32_t node = v == kNoValue ? -1 : values[index_of(v)].node;
    return node < 0 ? nullptr : &nodes[static_cast<size_t>(node)];
  }
  const Node* maker(ValueId v, KnownOp op) const {  // null also if it is of another op
    const Node* node = maker(v);
    return node != nullptr && node->op->is(op) ? node : nullptr;
  }
};

std::string print(const Graph& graph);                  // graph/graph_text.cpp
Result<void> verify(const Graph& graph);  // graph/graph_verify.cpp: defined before use, arity, metas complete

}  // namespace framejit::graph
