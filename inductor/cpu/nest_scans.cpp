#include "inductor/cpu/nest_scans.h"

#include <llvm/IR/MDBuilder.h>

namespace framejit::inductor {

using llvm::Value;

// One step of a running result, and its value here. Twins, an extremum and its position, step together at the first.
void Scans::scan(InstId i, Accumulators& set) {
  const InstId twin = plan_.insts[i].twin;
  if (twin == kNoInst) return step(i, set);
  const InstId position = is_position(nest_.body[i].reduce) ? i : twin, value = position == i ? twin : i;
  if (i > twin) return;
  step(position, set);
  set[plan_.insts[value].place].value = values_[value] = set[plan_.insts[position].place].value;
}

void Scans::step(InstId i, Accumulators& set) {
  const LoopInst& inst = nest_.body[i];
  Accumulator& a = set[plan_.insts[i].place];
  const unsigned lanes = LaneOps::lanes_of(a.value);
  Value* x = ops_.splat(values_[inst.operands[0]], lanes);
  const DType dtype = operand_dtype(inst);
  const bool max = inst.reduce == ReduceOp::kMax || inst.reduce == ReduceOp::kArgmax;
  if (!max && inst.reduce != ReduceOp::kMin && inst.reduce != ReduceOp::kArgmin) {
    values_[i] = a.value = ops_.combine(inst.reduce, dtype, a.value, x);
    return;
  }
  Value* pair[2] = {x, a.value};
  Value* takes = ops_.scalar_op(max ? ScalarOp::k_ge : ScalarOp::k_le, dtype, pair);
  Value* position = is_position(inst.reduce) ? ops_.splat(positions_.here(), lanes) : nullptr;
  if (lanes == 0) {
    if (is_float(dtype)) takes = max ? b_.CreateFCmpUGE(x, a.value) : b_.CreateFCmpULE(x, a.value);
    take_if(takes, a, x, position);
  } else {
    if (is_float(dtype)) takes = b_.CreateOr(takes, b_.CreateFCmpUNO(x, x));
    take(takes, a, x, position);
  }
  values_[i] = position == nullptr ? a.value : positions_.whole(a);
}

void Scans::take(Value* takes, Accumulator& a, Value* x, Value* position) {
  a.value = b_.CreateSelect(takes, x, a.value);
  if (position != nullptr) a.position = b_.CreateSelect(takes, position, a.position);
}

// With a branch: a new extremum is rare in most data, and the carried value need not wait for the comparison. One
// comparison lets NaN through on either side; only then does the code find out which side it is.
void Scans::take_if(Value* takes, Accumulator& a, Value* x, Value* position) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* taken = llvm::BasicBlock::Create(b_.getContext(), "taken", s_.function);
  llvm::BasicBlock* after = llvm::BasicBlock::Create(b_.getContext(), "kept", s_.function);
  b_.CreateCondBr(takes, taken, after);
  b_.SetInsertPoint(taken);
  llvm::BasicBlock* unordered = nullptr;
  Value* is_new = nullptr;
  if (x->getType()->isFloatingPointTy()) {
    unordered = llvm::BasicBlock::Create(b_.getContext(), "unordered", s_.function);
    b_.CreateCondBr(b_.CreateFCmpUNO(x, a.value), unordered, after,
                    llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
    b_.SetInsertPoint(unordered);
    is_new = b_.CreateFCmpUNO(x, x);
  }
  const auto chosen = [&](Value* old, Value* next) {
    return is_new == nullptr || next == nullptr ? nullptr : b_.CreateSelect(is_new, next, old);
  };
  Value *chosen_value = chosen(a.value, x), *chosen_position = chosen(a.position, position);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  const auto joined = [&](Value* old, Value* next, Value* picked) {
    llvm::PHINode* phi = b_.CreatePHI(old->getType(), 3);
    phi->addIncoming(next, taken);
    phi->addIncoming(old, before);
    if (unordered != nullptr) phi->addIncoming(picked, unordered);
    return phi;
  };
  a.value = joined(a.value, x, chosen_value);
  if (position != nullptr) a.position = joined(a.position, position, chosen_position);
}

}  // namespace framejit::inductor
