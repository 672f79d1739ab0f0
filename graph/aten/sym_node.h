// graph/aten/sym_node.h — SymExpr as c10::SymInt: what ATen's C++ code and Python see of a symbolic size.
//
// Integers are expressions. Comparisons are relations that the ShapeEnv decides (proven, or guarded) when C++ asks for
// their truth. Floats, and anything that has no expression, make the size a constant, with a fact. No answer goes
// unrecorded.
#pragma once

#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/shape_env.h"

namespace framejit::graph {

// What C++ or Python has learned of an open float: its number, or only whether it equals another one.
struct FloatRead {
  uint32_t value;  // of the graph
  std::optional<double> other = {};
  bool is_equal = false;
};

// Owns the symbols of nodes and learns of every decision. Nodes keep it alive, because Python may hold a SymInt for a
// long time.
class SymOwner {
 public:
  virtual ~SymOwner() = default;
  virtual ShapeEnv& shapes() = 0;
  virtual std::string why() const = 0;  // the user's line, for facts
  virtual void float_is_read(const FloatRead& read) = 0;
};

c10::SymInt sym_int_of(const SymExpr& e, const std::shared_ptr<SymOwner>& owner);
// Throws CaptureBreakError for a node that is not ours.
SymExpr expr_of(const c10::SymInt& value);
std::vector<c10::SymInt> sym_ints_of(const SymSizes& sizes, const std::shared_ptr<SymOwner>& owner);

// An open float: a Python float that differs from call to call, held by a 0-dim value of the graph. Scalars carry it to
// the recorder. Code that reads its number gets that of this trace, and the owner is notified.
c10::SymFloat open_float(uint32_t value, double now, const std::shared_ptr<SymOwner>& owner);
struct OpenFloat { uint32_t value; double now; };
std::optional<OpenFloat> as_open_float(const c10::SymFloat& number);  // nullopt for other symbolic floats
// Whether an open float is this number. The owner is notified of the answer; the number stays open.
bool is_open_float_equal(const c10::SymFloat& open, double other);
// The node inside one of torch's nodes that refer to a Python object, or null; torch makes such a node for each float
// that Python passes.
using WrappedNodeFn = const c10::SymNodeImpl* (*)(const c10::SymNodeImpl& node);
void set_wrapped_node_reader(WrappedNodeFn reader);

// Answers of the ShapeEnv about layouts; each is proven or guarded.
bool decide_contiguous(ShapeEnv& env, const SymSizes& sizes, const SymSizes& strides, const std::vector<size_t>& order,
                       const std::string& why);
bool decide_dense(ShapeEnv& env, const SymSizes& sizes, const SymSizes& strides, const std::string& why);

}  // namespace framejit::graph
