// inductor/cpu/nest_masks.cpp — masks, and loads that read only where one holds.
//
// Most masks say on which side of a border a position lies, or whether it is one certain place. If lanes step through
// the position one by one, comparing the position of one lane is enough, and usually all lanes are on one side. Then a
// load reads as if it had no mask, or not at all, after a branch that is easy to predict. Only if lanes lie on both
// sides are they read one by one under the mask.
#include "inductor/cpu/nest_masks.h"

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

Value* Masks::position_of_first_lane(InstId i) { return indices_.shared(nest_.body[i].index[0]); }

// How many lanes come before the one at `place`; the number of lanes if no lane is there.
Value* Masks::lanes_before(Value* first, Value* place) {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(place, first),
                                  b_.getInt64(lanes_));  // exact as an unsigned comparison, for any distance
}

Value* Masks::distance_of_place(InstId i) {
  const LoopInst& inst = nest_.body[i];
  const size_t position = plan_.insts[inst.operands[0]].has_lanes ? 0 : 1;
  return lanes_before(position_of_first_lane(inst.operands[position]), values_[inst.operands[1 - position]]);
}

Value* Masks::border(InstId i) {
  const LoopInst& inst = nest_.body[i];
  if (plan_.insts[i].is_place) {
    Value* at = b_.CreateTrunc(distance_of_place(i), b_.getInt32Ty());
    Value* is_there = b_.CreateICmpEQ(ops_.lane_numbers(lanes_), b_.CreateVectorSplat(lanes_, at));
    return inst.scalar == ScalarOp::k_eq ? is_there : b_.CreateNot(is_there);
  }
  Value* first = position_of_first_lane(inst.operands[0]);
  Value* limit = values_[inst.operands[1]];
  Value* distance = lanes_before(first, limit);
  Value* below = ops_.first_lanes(b_.CreateSelect(b_.CreateICmpSLT(first, limit), distance, b_.getInt64(0)), lanes_);
  return inst.scalar == ScalarOp::k_lt ? below : b_.CreateNot(below);
}

// For a mask of borders.
Masks::Lanes Masks::lanes_of(InstId i) {
  const LoopInst& inst = nest_.body[i];
  if (!plan_.insts[i].has_lanes) return {values_[i], values_[i]};
  if (!plan_.insts[i].is_border) {
    const Lanes a = lanes_of(inst.operands[0]), b = lanes_of(inst.operands[1]);
    Value* any = b_.CreateAnd(a.any, b.any);
    return {any, b_.CreateAnd(a.all, b.all)};
  }
  if (plan_.insts[i].is_place) {
    Value* is_near = b_.CreateICmpULT(distance_of_place(i), b_.getInt64(lanes_));
    if (inst.scalar == ScalarOp::k_ne) return {b_.getTrue(), b_.CreateNot(is_near)};
    return {is_near, b_.getFalse()};
  }
  Value* first = position_of_first_lane(inst.operands[0]);
  Value *limit = values_[inst.operands[1]], *last = b_.CreateAdd(first, b_.getInt64(lanes_ - 1));
  Value *low = inst.scalar == ScalarOp::k_lt ? first : last, *high = inst.scalar == ScalarOp::k_lt ? last : first;
  const auto holds = [&](Value* place) {
    return inst.scalar == ScalarOp::k_lt ? b_.CreateICmpSLT(place, limit) : b_.CreateICmpSGE(place, limit);
  };
  Value* any = holds(low);
  return {any, holds(high)};
}

// The mask is computed where it is needed, so that no part of it occupies registers elsewhere.
Value* Masks::value(InstId i) {
  const LoopInst& inst = nest_.body[i];
  if (!plan_.insts[i].has_lanes) return b_.CreateVectorSplat(lanes_, values_[i]);
  if (plan_.insts[i].is_border) return border(i);
  if (inst.op == LoopOp::kScalar && inst.scalar == ScalarOp::k_bit_and)
    return b_.CreateAnd(value(inst.operands[0]), value(inst.operands[1]));
  return values_[i];
}

Value* Masks::either(Value* condition, llvm::function_ref<Value*()> yes, llvm::function_ref<Value*()> no) {
  BasicBlock* blocks[3];
  for (BasicBlock*& block : blocks) block = BasicBlock::Create(b_.getContext(), "either", s_.function);
  b_.CreateCondBr(condition, blocks[0], blocks[1]);
  Value* values[2] = {};
  for (int k = 0; k < 2; ++k) {
    b_.SetInsertPoint(blocks[k]);
    values[k] = k == 0 ? yes() : no();
    blocks[k] = b_.GetInsertBlock();
    b_.CreateBr(blocks[2]);
  }
  b_.SetInsertPoint(blocks[2]);
  llvm::PHINode* phi = b_.CreatePHI(values[0]->getType(), 2);
  for (int k = 0; k < 2; ++k) phi->addIncoming(values[k], blocks[k]);
  return phi;
}

Value* Masks::load(InstId i, llvm::function_ref<Value*(Value* mask)> loaded) {
  const LoopInst& inst = nest_.body[i];
  const InstPlan& plan = plan_.insts[i];
  const auto wide = [&](Value* v) { return plan.has_lanes ? ops_.splat(v, lanes_) : v; };
  Value* other = wide(values_[inst.operands[1]]);
  const auto whole = [&] { return wide(loaded(mask_)); };
  const auto in_part = [&]() -> Value* {
    Value* mask = value(inst.operands[0]);
    if (mask_ != nullptr) mask = b_.CreateAnd(mask, mask_);
    if (plan.access != Access::kOne) return b_.CreateSelect(mask, loaded(mask), other);
    return either(
        b_.CreateOrReduce(mask), [&]() -> Value* { return b_.CreateSelect(mask, wide(loaded(nullptr)), other); },
        [&] { return other; });
  };
  if (plan.mask == MaskKind::kLanes) return in_part();
  if (plan.mask == MaskKind::kShared) return either(values_[inst.operands[0]], whole, [&] { return other; });
  const Lanes lanes = lanes_of(inst.operands[0]);
  return either(lanes.any, [&] { return either(lanes.all, whole, in_part); }, [&] { return other; });
}

}  // namespace framejit::inductor
