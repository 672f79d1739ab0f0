// graph/op_def.h — what is known about an ATen op, once per process.
//
// Ops have ATen's names without "aten::" ("add.Tensor", "relu", "sum.dim_IntList"); other namespaces keep theirs
// ("mkldnn::_linear_pointwise"). A definition comes from a row of ours (graph/ops), or is declared at run time from the
// dispatcher's schema. A declared op has no shape rule and no decomposition, and can only be an extern call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/known_ops.h"

namespace framejit::graph {

struct Arg;
struct TensorMeta;
class ShapeEnv;
class GraphBuilder;

enum OpFlags : uint32_t {
  kMutates = 1,  // writes at least one argument
  kRandom = 2,  // advances a generator: never removed, reordered or merged
  kDataDependent = 4,  // result or its size depends on the data
  kView = 8,  // a result shares an argument's storage
  kSideEffect = 16,  // must run even if unused, and each time (asserts, ops of users)
  kPointwise = 32,  // sizes and strides follow from broadcasting, whatever the sizes are
  kChecksData = 64,  // raises for some data (an index out of range), used or not
  kDivides = 128,  // raises for an integer zero in argument 1, used or not
  kTakesAlpha = 256,  // argument 2 scales argument 1, and must not be a fraction if the operands are integers
  kRuleIsComplete = 512,  // eager raises if the shape rule does not cover the arguments
  kKeepsPlace = 1024,  // a result has the storage offset of argument 0
  kRequiresOperands = 2048,  // its own kernel checks that the operands of the in-place form fit
  kRefusesNumbers = 4096,  // raises for some numbers: they cannot be values of the graph
};

// Such an op runs once, in its place: a second run may give another result, or repeat the effect.
constexpr uint32_t kRunsOnce = kMutates | kRandom | kDataDependent | kSideEffect;

// The arguments as a shape rule sees them: tensors as metas, the others as Arg.
struct RuleArgs;
// Fills one meta per result; false if the rule does not cover these arguments.
using ShapeRule = bool (*)(const RuleArgs& args, ShapeEnv& env, std::vector<TensorMeta>& results);

struct OpDef {
  std::string name;
  KnownOp known = KnownOp::none;  // the table of ops sets it
  uint32_t flags = 0;
  std::vector<std::string> arg_names;
  std::vector<int8_t> write_args;    // indices of arguments that are written
  std::vector<int8_t> result_alias;  // per result: index of the argument whose storage it shares, or -1
  std::string functional;  // for an op that writes, or hides that it is a view: its form in functional graphs, "" if
                           // none is known
  bool drops_out_args = false;       // the functional form takes no out= arguments
  ShapeRule shape_rule = nullptr;
  bool has(OpFlags f) const { return (flags & f) != 0; }
  bool is(KnownOp op) const { return known == op; }
};

// Without the overload: "add" of "add.Tensor".
inline std::string_view base_name(std::string_view op) { return op.substr(0, op.find('.')); }

// The process-wide table. Definitions are never removed or moved; find() and declare() are thread-safe.
const OpDef* find_op(std::string_view name);
const OpDef* declare_op(OpDef definition);  // keeps an existing one, and adds what it lacks, from the schema
void forget_op(std::string_view name);  // the next declare_op() makes a new one; graphs may still name the old one

}  // namespace framejit::graph
