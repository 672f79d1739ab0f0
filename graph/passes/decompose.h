// graph/passes/decompose.h — one decomposition: an op's arguments in, values of simpler ops out.
//
// A decomposition returns false to leave the node unchanged; what it emitted is dropped. It fills one value per result
// of the node, with the same dtype and sizes. Strides may differ (those of outputs are restored, consumers are inferred
// again). Half-precision inputs are computed in float32 and rounded once at the end, as the kernels do.
#pragma once

#include <unordered_map>

#include "graph/passes/rebuild.h"
#include "graph/shape_rule.h"

namespace framejit::graph {

struct Decomposing {
  GraphBuilder& out;
  const Node& node;           // of the old graph
  std::vector<Arg> args;      // in the new graph
  const std::vector<TensorMeta> metas;  // of the node's results
  std::vector<ValueId> results;

  RuleArgs rule() const { return {args, &out.peek().values}; }
  bool has(size_t i) const { return rule().given(i); }
  ValueId value(size_t i) const { return *args[i].get<ValueId>(); }
  const TensorMeta& meta(ValueId v) const { return out.meta(v); }
  ValueId emit(std::string_view op, std::vector<Arg> arguments) { return out.emit(op, std::move(arguments)); }

  ValueId wide(ValueId v);                             // float32 for half precision, otherwise itself
  ValueId add(Arg a, Arg b) { return emit("add.Tensor", {std::move(a), std::move(b), SymExpr(1)}); }
  ValueId sub(Arg a, Arg b) { return emit("sub.Tensor", {std::move(a), std::move(b), SymExpr(1)}); }
  ValueId mul(Arg a, Arg b) { return emit("mul.Tensor", {std::move(a), std::move(b)}); }
  ValueId div(Arg a, Arg b) { return emit("div.Tensor", {std::move(a), std::move(b)}); }
  ValueId sum(ValueId v, const SymSizes& dims, bool keepdim) {
    return emit("sum.dim_IntList", {v, dims, keepdim, Arg{}});
  }
  ValueId full(const SymSizes& sizes, Arg number, DType dtype, Device device) {
    return emit("full", {sizes, std::move(number), dtype, Arg{}, device, Arg{}});
  }
  ValueId narrow(ValueId v, size_t result) { return converted(out, v, metas[result].dtype); }  // the recorded dtype
};

using Decomposition = bool (*)(Decomposing& d);
using Decompositions = std::unordered_map<std::string_view, Decomposition>;

// The op on one tensor that an op on lists becomes: "add.Tensor" for "_foreach_add.List"; "" for other ops.
std::string_view single_of_list_op(std::string_view op);

// Whether a row of the table handles the op (it may still leave a node unchanged).
bool is_decomposed(std::string_view op);

void add_norm_decompositions(Decompositions& table);
void add_pointwise_decompositions(Decompositions& table);
void add_shape_decompositions(Decompositions& table);
void add_nn_decompositions(Decompositions& table);
void add_list_decompositions(Decompositions& table);
void add_reduction_decompositions(Decompositions& table);

// Number of elements that a reduction over `dims` combines; reduced_dims of the shape rules finds the dims.
SymExpr reduced_count(const TensorMeta& meta, const std::vector<bool>& reduced);

}  // namespace framejit::graph
