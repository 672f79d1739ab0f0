// inductor/cpu/nest_masks.cpp — masks, and loads that read only where one holds.
//
// Most masks say on which side of a border a place lies. Where lanes step through the place one by one, that is a
// comparison of one lane's place with the border, and most often all lanes are on one side: such a load reads as if it
// had no mask, or not at all, behind a branch that is easily predicted. Only lanes on both sides are read one by one
// under the mask.
#include <algorithm>
#include <utility>

#include "inductor/cpu/nest_emitter.h"

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

// A comparison of a place that the lanes step through one by one with one that they share.
bool NestEmitter::is_border(const LoopInst& inst) const {
  if (!has_vector() || inst.op != LoopOp::kScalar || (inst.scalar != ScalarOp::k_lt && inst.scalar != ScalarOp::k_ge))
    return false;
  const LoopInst &place = nest_.body[inst.operands[0]], &limit = nest_.body[inst.operands[1]];
  if (place.op != LoopOp::kIndex || (limit.op != LoopOp::kIndex && limit.op != LoopOp::kConstant)) return false;
  SymExpr step, rest;
  const SymExpr lane = symbols_.dim(n_.vector_dim);
  if (mentions_values(place.index[0], symbols_) || !split_linear(place.index[0], lane, step, rest) ||
      !(step == SymExpr(1)))
    return false;
  return limit.op == LoopOp::kConstant || (!mentions_values(limit.index[0], symbols_) &&
                                           split_linear(limit.index[0], lane, step, rest) && step == SymExpr(0));
}

// Instructions that are needed for nothing but borders, which compute with the first lane's place.
std::vector<bool> NestEmitter::only_borders() const {
  std::vector<bool> aside(nest_.body.size(), false), used(nest_.body.size(), false);
  for (size_t i = nest_.body.size(); i-- > 0;) {
    const LoopInst& inst = nest_.body[i];
    aside[i] = (inst.op == LoopOp::kIndex || inst.op == LoopOp::kConstant) && inst.dtype == DType::kInt64 && !used[i];
    if (is_border(inst)) continue;
    std::vector<InstId> uses;
    collect_uses(inst, symbols_, uses);
    for (InstId use : uses) used[use] = true;
  }
  return aside;
}

Value* NestEmitter::border(const LoopInst& inst) {
  const unsigned lanes = std::exchange(lanes_, 0);
  Value* first = eval(nest_.body[inst.operands[0]].index[0]);
  lanes_ = lanes;
  Value* limit = values_[inst.operands[1]];
  Value* distance = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(limit, first),
                                             b_.getInt64(lanes));  // exact without a sign, however far
  Value* below = ops_.first_lanes(b_.CreateSelect(b_.CreateICmpSLT(first, limit), distance, b_.getInt64(0)), lanes);
  return inst.scalar == ScalarOp::k_lt ? below : b_.CreateNot(below);
}

std::optional<NestEmitter::Lanes> NestEmitter::lanes_of_mask(InstId i) {
  const LoopInst& inst = nest_.body[i];
  if (LaneOps::lanes_of(values_[i]) == 0) return Lanes{values_[i], values_[i]};
  if (inst.op == LoopOp::kScalar && inst.scalar == ScalarOp::k_bit_and) {
    const auto a = lanes_of_mask(inst.operands[0]), b = lanes_of_mask(inst.operands[1]);
    return a && b ? std::optional(Lanes{b_.CreateAnd(a->any, b->any), b_.CreateAnd(a->all, b->all)}) : std::nullopt;
  }
  if (!is_border(inst)) return std::nullopt;
  const unsigned lanes = std::exchange(lanes_, 0);
  Value* first = eval(nest_.body[inst.operands[0]].index[0]);
  lanes_ = lanes;
  Value *limit = values_[inst.operands[1]], *last = b_.CreateAdd(first, b_.getInt64(lanes - 1));
  if (inst.scalar == ScalarOp::k_lt) return Lanes{b_.CreateICmpSLT(first, limit), b_.CreateICmpSLT(last, limit)};
  return Lanes{b_.CreateICmpSGE(last, limit), b_.CreateICmpSGE(first, limit)};
}

// The mask computed here, so that nothing of it is carried to where no lane needs it.
Value* NestEmitter::mask_value(InstId i) {
  const LoopInst& inst = nest_.body[i];
  if (LaneOps::lanes_of(values_[i]) == 0) return b_.CreateVectorSplat(lanes_, values_[i]);
  if (is_border(inst)) return border(inst);
  if (inst.op == LoopOp::kScalar && inst.scalar == ScalarOp::k_bit_and)
    return b_.CreateAnd(mask_value(inst.operands[0]), mask_value(inst.operands[1]));
  return values_[i];
}

Value* NestEmitter::either(Value* condition, llvm::function_ref<Value*()> yes, llvm::function_ref<Value*()> no) {
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

void NestEmitter::emit_masked_load(InstId i) {
  const LoopInst& inst = nest_.body[i];
  const bool has_lanes = in_vector() && (LaneOps::lanes_of(values_[inst.operands[0]]) != 0 ||
                                         LaneOps::lanes_of(values_[inst.operands[1]]) != 0 || has_lanes_at(inst));
  const auto wide = [&](Value* v) { return has_lanes ? ops_.splat(v, lanes_) : v; };
  Value* other = wide(values_[inst.operands[1]]);
  const auto whole = [&] { return wide(loaded(inst, mask_)); };
  if (LaneOps::lanes_of(values_[inst.operands[0]]) == 0) {
    values_[i] = either(values_[inst.operands[0]], whole, [&] { return other; });
    return;
  }
  const auto in_part = [&]() -> Value* {
    Value* mask = mask_value(inst.operands[0]);
    if (mask_ != nullptr) mask = b_.CreateAnd(mask, mask_);
    if (has_lanes_at(inst)) return b_.CreateSelect(mask, loaded(inst, mask), other);
    return either(
        b_.CreateOrReduce(mask), [&]() -> Value* { return b_.CreateSelect(mask, wide(loaded(inst, nullptr)), other); },
        [&] { return other; });
  };
  const auto known = lanes_of_mask(inst.operands[0]);
  if (!known) {
    values_[i] = in_part();
    return;
  }
  values_[i] = either(known->any, [&] { return either(known->all, whole, in_part); }, [&] { return other; });
}

}  // namespace framejit::inductor
