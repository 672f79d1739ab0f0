// inductor/cpu/nest_searches.cpp — positions of extrema, found by blocks.
//
// Carrying a position for each lane costs one comparison and two selects per step, although it seldom changes. So the
// main loop of argmax and argmin only asks whether any lane of a whole block is better than the best number so far. If
// one is, which is rare, it finds the best number of the block. The last such block is computed once more after the
// loop: its lanes are the accumulators.
#include "inductor/cpu/nest_searches.h"

#include <algorithm>

#include <llvm/IR/MDBuilder.h>

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

void Search::emit(Value* from, Value* to, Accumulator& found) {
  const LoopInst& inst = *std::find_if(nest_.body.begin(), nest_.body.end(), is_carried);
  const DType dtype = operand_dtype(inst);
  const ReduceOp better = inst.reduce == ReduceOp::kArgmax ? ReduceOp::kMax : ReduceOp::kMin;
  const auto block_at = [&](Value* index) {
    dims_[plan_.lanes.dim] = index;
    body_();
    return ops_.splat(values_[inst.operands[0]], lanes_);
  };
  // `lost`: whether NaN was found. After that, no number is better than an infinity, and no other NaN is taken.
  Accumulators set{{ops_.neutral(inst.reduce, dtype, 0), from, is_float(dtype) ? b_.getFalse() : nullptr}};
  emit_carrying(s_, from, to, b_.getInt64(lanes_), {&set}, [&](Value* index) {
    Value* x = block_at(index);
    look_at(better, dtype, x, index, set[0]);
  });
  // At most one iteration: a row of symbolic length may have no whole block.
  emit_loop(s_, from, to, {&found.value, &found.position}, [&](Value*) {
    found.value = block_at(set[0].position);
    found.position = ops_.splat(positions_.here(), lanes_);
    return b_.CreateSub(to, from);
  });
}

void Search::look_at(ReduceOp better, DType dtype, Value* x, Value* index, Accumulator& best) {
  const bool max = better == ReduceOp::kMax;
  Value *pair[2] = {x, ops_.splat(best.value, lanes_)}, *takes = nullptr;
  if (is_float(dtype)) {
    takes = max ? b_.CreateFCmpUGT(pair[0], pair[1]) : b_.CreateFCmpULT(pair[0], pair[1]);
  } else {
    takes = ops_.scalar_op(max ? ScalarOp::k_gt : ScalarOp::k_lt, dtype, pair);
  }
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* taken = BasicBlock::Create(b_.getContext(), "taken", s_.function);
  BasicBlock* after = BasicBlock::Create(b_.getContext(), "kept", s_.function);
  b_.CreateCondBr(b_.CreateOrReduce(takes), taken, after,
                  llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(taken);
  Accumulator next{ops_.halve(better, dtype, x, 0), index, nullptr};
  if (best.lost != nullptr) {
    Value* is_nan = b_.CreateFCmpUNO(next.value, next.value);
    next.value = b_.CreateSelect(is_nan, ops_.neutral(max ? ReduceOp::kMin : ReduceOp::kMax, dtype, 0), next.value);
    next.position = b_.CreateSelect(best.lost, best.position, next.position);
    next.lost = b_.CreateOr(best.lost, is_nan);
  }
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  for (const auto member : {&Accumulator::value, &Accumulator::position, &Accumulator::lost}) {
    if (best.*member == nullptr) continue;
    llvm::PHINode* phi = b_.CreatePHI((best.*member)->getType(), 2);
    phi->addIncoming(best.*member, before);
    phi->addIncoming(next.*member, taken);
    best.*member = phi;
  }
}

}  // namespace framejit::inductor
