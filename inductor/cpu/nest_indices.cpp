#include "inductor/cpu/nest_indices.h"

#include <algorithm>
#include <utility>

#include "inductor/loop/index_expr.h"

namespace framejit::inductor {

using llvm::Value;

Value* Indices::eval(const SymExpr& e) {
  if (e.is_constant()) return b_.getInt64(static_cast<uint64_t>(e.constant()));
  const SymExpr::Node& node = *e.node();
  if (node.op == graph::SymOp::kSymbol) return eval_symbol(node.symbol);
  std::vector<Value*> v;
  for (const SymExpr& x : node.operands) v.push_back(eval(x));
  unsigned lanes = 0;
  for (Value* x : v) lanes = std::max(lanes, LaneOps::lanes_of(x));
  for (Value*& x : v) x = ops_.splat(x, lanes);
  const auto constant = [&](int64_t c) { return ops_.splat(b_.getInt64(static_cast<uint64_t>(c)), lanes); };
  switch (node.op) {
    case graph::SymOp::kSymbol: break;
    case graph::SymOp::kSum:
    case graph::SymOp::kProduct: {
      const bool sum = node.op == graph::SymOp::kSum;
      Value* total = v[0];
      for (size_t k = 1; k < v.size(); ++k) total = sum ? b_.CreateAdd(total, v[k]) : b_.CreateMul(total, v[k]);
      if (node.coefficient == (sum ? 0 : 1)) return total;
      return sum ? b_.CreateAdd(total, constant(node.coefficient)) : b_.CreateMul(total, constant(node.coefficient));
    }
    case graph::SymOp::kFloorDiv:
    case graph::SymOp::kMod: {
      Value* pair[2] = {v[0], v[1]};
      return ops_.scalar_op(node.op == graph::SymOp::kFloorDiv ? ScalarOp::k_floor_div : ScalarOp::k_rem, DType::kInt64,
                            pair);
    }
    case graph::SymOp::kMin: return b_.CreateSelect(b_.CreateICmpSLT(v[0], v[1]), v[0], v[1]);
    case graph::SymOp::kMax: return b_.CreateSelect(b_.CreateICmpSGT(v[0], v[1]), v[0], v[1]);
  }
  return v[0];
}

Value* Indices::shared(const SymExpr& e) {
  const unsigned lanes = std::exchange(lanes_, 0);
  Value* value = eval(e);
  lanes_ = lanes;
  return value;
}

Value* Indices::iota(unsigned lanes, bool is_split) {
  return is_split ? ops_.split_lanes(ops_.iota(lanes)) : ops_.iota(lanes);
}

Value* Indices::eval_symbol(graph::SymbolId id) {
  if (symbols_.is_value(id)) return values_[symbols_.inst_of(id)];
  if (!symbols_.is_dim(id)) return s_.symbols[id];
  Value* base = dims_[symbols_.dim_of(id)];
  if (!in_lanes() || symbols_.dim_of(id) != plan_.lanes.dim) return base;
  return b_.CreateAdd(b_.CreateVectorSplat(lanes_, base), iota(lanes_, is_split()));
}

Indices::Address Indices::address(const LoopInst& inst, Access access) {
  const SymExpr& e = inst.index[0];
  const auto plus = [&](Value* address, Value* offset) {
    return b_.CreateGEP(ops_.memory_type(kernel_.buffers[inst.buffer].dtype, 0), address, offset);
  };
  Value* const buffer = s_.buffers[inst.buffer];
  if (access == Access::kScattered) return {buffer, eval(e)};
  if (access == Access::kOne) return {plus(buffer, eval(e))};
  if (access == Access::kOfLane) return {plus(buffer, b_.CreateMul(eval(e), b_.getInt64(lanes_)))};
  SymExpr coefficient, rest;
  split_linear(e, symbols_.dim(plan_.lanes.dim), coefficient, rest);
  // The part that the loop does not change is added first, so nothing is left for strength reduction.
  return {plus(plus(buffer, eval(rest)), dims_[plan_.lanes.dim])};
}

}  // namespace framejit::inductor
