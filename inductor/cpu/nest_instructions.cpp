#include "inductor/cpu/nest_instructions.h"

#include <algorithm>

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

// The checked index; leaves the kernel with 1 if it is out of range.
void Instructions::check(InstId i) {
  const LoopInst& inst = nest_.body[i];
  Value* at = values_[inst.operands[0]];
  const unsigned lanes = LaneOps::lanes_of(at);
  Value* limit = ops_.splat(indices_.eval(inst.index[0]), lanes);
  if (inst.wrap) {
    Value* negative = b_.CreateICmpSLT(at, ops_.splat(b_.getInt64(0), lanes));
    at = b_.CreateSelect(negative, b_.CreateAdd(at, limit), at);
  }
  if (lanes != 0 && mask_ != nullptr) at = b_.CreateSelect(mask_, at, llvm::Constant::getNullValue(at->getType()));
  Value* bad = b_.CreateICmpUGE(at, limit);
  if (lanes != 0 && mask_ != nullptr) bad = b_.CreateAnd(bad, mask_);
  if (lanes != 0) bad = b_.CreateOrReduce(bad);
  values_[i] = at;
  if (bad == b_.getFalse()) return;
  BasicBlock* good = BasicBlock::Create(b_.getContext(), "in_range", s_.function);
  b_.CreateCondBr(bad, s_.failed, good);
  b_.SetInsertPoint(good);
}

void Instructions::emit(InstId i) {
  const LoopInst& inst = nest_.body[i];
  switch (inst.op) {
    case LoopOp::kConstant: values_[i] = ops_.constant(inst.dtype, inst.constant); return;
    case LoopOp::kIndex: values_[i] = indices_.eval(inst.index[0]); return;
    case LoopOp::kLoad: return memory_.load(i);
    case LoopOp::kStore: return memory_.store(i);
    case LoopOp::kCheck: return check(i);
    case LoopOp::kCast: values_[i] = ops_.cast(values_[inst.operands[0]], operand_dtype(inst), inst.dtype); return;
    case LoopOp::kReduce:
    case LoopOp::kScan: return;
    case LoopOp::kScalar: break;
  }
  values_[i] = plan_.insts[i].is_border ? masks_.border(i) : scalar(inst);
}

Value* Instructions::scalar(const LoopInst& inst) {
  if (inst.scalar == ScalarOp::k_round_bf16) {
    const InstId x = inst.operands[0];
    const Bf16Rounding rounding = plan_.insts[x].bf16;
    return rounding == Bf16Rounding::kExact ? values_[x] : ops_.round_bf16(values_[x], rounding);
  }
  const bool is_select = inst.scalar == ScalarOp::k_select;
  Value* operands[3] = {};
  unsigned lanes = 0;
  const size_t count = static_cast<size_t>(inst.operand_count());
  for (size_t k = 0; k < count; ++k) lanes = std::max(lanes, LaneOps::lanes_of(values_[inst.operands[k]]));
  for (size_t k = 0; k < count; ++k) operands[k] = ops_.splat(values_[inst.operands[k]], lanes);
  return ops_.scalar_op(inst.scalar, nest_.body[inst.operands[is_select ? 1 : 0]].dtype, {operands, count});
}

}  // namespace framejit::inductor
