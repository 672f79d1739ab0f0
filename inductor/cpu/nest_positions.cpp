#include "inductor/cpu/nest_positions.h"

namespace framejit::inductor {

using llvm::Value;

Value* Positions::zero() { return plan_.has_short_positions ? b_.getInt32(0) : b_.getInt64(0); }

Value* Positions::here() {
  SymExpr linear = 0;
  for (size_t d = nest_.ranges.size(); d < nest_.dim_count(); ++d) linear = linear * nest_.extent(d) + symbols_.dim(d);
  Value* position = plan_.positions_count_up ? indices_.shared(linear) : indices_.eval(linear);
  return plan_.has_short_positions ? b_.CreateTrunc(position, b_.getInt32Ty()) : position;
}

Value* Positions::whole(const Accumulator& a) {
  const unsigned lanes = LaneOps::lanes_of(a.position);
  Value* full = b_.CreateSExt(a.position, ops_.value_type(DType::kInt64, lanes));
  const bool is_main = lanes > width();
  return plan_.positions_count_up && plan_.lanes.is_reduced
             ? b_.CreateAdd(full, indices_.iota(lanes, plan_.lanes.is_split && is_main))
             : full;
}

// a becomes (x, position) where x is better, or equally good and earlier; positions that count up are never earlier.
// NaN is best.
void Positions::pick(const LoopInst& inst, Accumulator& a, Value* x, Value* position, Value* active) {
  const DType dtype = operand_dtype(inst);
  const bool max = inst.reduce == ReduceOp::kArgmax;
  Value *pair[2] = {x, a.value}, *take = nullptr;
  if (is_float(dtype)) {
    take = b_.CreateAnd(max ? b_.CreateFCmpUGT(x, a.value) : b_.CreateFCmpULT(x, a.value),
                        b_.CreateFCmpORD(a.value, a.value));
  } else {
    take = ops_.scalar_op(max ? ScalarOp::k_gt : ScalarOp::k_lt, dtype, pair);
  }
  if (!plan_.positions_count_up) {
    Value* equal = ops_.scalar_op(ScalarOp::k_eq, dtype, pair);
    if (is_float(dtype))
      equal = b_.CreateOr(equal, b_.CreateAnd(b_.CreateFCmpUNO(x, x), b_.CreateFCmpUNO(a.value, a.value)));
    take = b_.CreateOr(take, b_.CreateAnd(equal, b_.CreateICmpSLT(position, a.position)));
  }
  if (active != nullptr) take = b_.CreateAnd(take, active);
  a.value = b_.CreateSelect(take, x, a.value);
  a.position = b_.CreateSelect(take, position, a.position);
}

// The earliest position among the lanes whose value is the best of all.
Value* Positions::best(const LoopInst& inst, const Accumulator& main, const Accumulator& tail) {
  const DType dtype = operand_dtype(inst);
  const ReduceOp better = inst.reduce == ReduceOp::kArgmax ? ReduceOp::kMax : ReduceOp::kMin;
  Value* extremum = ops_.halve(
      better, dtype, ops_.combine(better, dtype, ops_.halve(better, dtype, main.value, width()), tail.value), 0);
  const auto earliest = [&](const Accumulator& a) {
    const unsigned lanes = LaneOps::lanes_of(a.value);
    Value* pair[2] = {a.value, ops_.splat(extremum, lanes)};
    Value* is_best = ops_.scalar_op(ScalarOp::k_eq, dtype, pair);
    if (is_float(dtype)) is_best = b_.CreateOr(is_best, b_.CreateFCmpUNO(a.value, a.value));
    Value* position = b_.CreateSelect(is_best, whole(a), ops_.splat(b_.getInt64(INT64_MAX), lanes));
    return ops_.halve(ReduceOp::kMin, DType::kInt64, position, width());
  };
  return ops_.halve(ReduceOp::kMin, DType::kInt64,
                    ops_.combine(ReduceOp::kMin, DType::kInt64, earliest(main), earliest(tail)), 0);
}

}  // namespace framejit::inductor
