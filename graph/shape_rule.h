// graph/shape_rule.h — what a shape rule is given and what it may ask.
//
// A rule gets the arguments in schema order (missing trailing ones count as their defaults: none) and fills one meta
// per result. It returns false if it does not cover the arguments; it must be sure of that before it records anything
// in the ShapeEnv. A Python or wrapped number is a SymExpr, double or bool argument, so tensor(i) is null for it:
// numbers promote only within their category, and 0-dim tensors do not promote tensors with dimensions.
#pragma once

#include <optional>
#include <span>

#include "graph/graph.h"

namespace framejit::graph {

struct RuleArgs {
  std::span<const Arg> args;
  const ValueInfos* values = nullptr;
  DType default_dtype = DType::kFloat32;

  size_t count() const { return args.size(); }
  bool given(size_t i) const;                            // present, not None, not an undefined tensor
  const TensorMeta* tensor(size_t i) const;              // null: absent or a number
  const TensorMeta& meta(ValueId v) const { return (*values)[index_of(v)].meta; }
  bool tensors(size_t i, std::vector<const TensorMeta*>& out) const;  // a list; null entries for undefined ones
  std::optional<SymExpr> size(size_t i) const;
  std::optional<int64_t> integer(size_t i) const;        // a constant integer
  int64_t integer_or(size_t i, int64_t otherwise) const;
  bool sizes(size_t i, SymSizes& out) const;             // list of ints; a single int counts as a list of one
  bool integers(size_t i, std::vector<int64_t>& out) const;  // constant ones only
  bool flag(size_t i, bool otherwise = false) const;
  std::optional<DType> dtype(size_t i) const;
  std::optional<Device> device(size_t i) const;
  // Category of a number argument: kBool, kInt64 or kFloat64; nullopt for tensors and absent arguments.
  std::optional<DType> number(size_t i) const;
  int memory_format(size_t i) const;                     // c10 value, -1 when absent
};

// Runs the rule of `op` on these arguments; false when there is none or it does not cover them.
bool infer_metas(const OpDef& op, std::span<const Arg> args, const ValueInfos& values, ShapeEnv& env,
                 std::vector<TensorMeta>& results, DType default_dtype = DType::kFloat32);

bool is_as_strided(const OpDef& op);     // or a related op: _copy, _scatter, in place
// as_strided and its related ops: their offset is relative to the storage, not to the argument.
bool has_own_offset(const Node& node);

// A definition of ours: a row of graph/ops/<family>.cpp.
struct OpRow {
  std::string name;
  ShapeRule rule;
  uint32_t flags = 0;
  std::string functional = {};  // for in-place forms
};

}  // namespace framejit::graph
