// inductor/cpu/nest_reductions.cpp — accumulators: how they start, step, meet and end.
#include <utility>

#include <llvm/IR/MDBuilder.h>

#include "inductor/cpu/nest_emitter.h"

namespace framejit::inductor {

using llvm::Value;

Accumulators NestEmitter::neutral(unsigned lanes) {
  Accumulators out;
  for (size_t i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (!is_carried(inst)) continue;
    Accumulator a{ops_.neutral(inst.reduce, plan_.insts[i].accumulator, lanes)};
    if (plan_.is_compensated && is_float_sum(inst)) a.lost = a.value;
    if (is_position(inst.reduce))
      a.position = ops_.splat(position_zero(), lanes);  // of the neutral element: it is best where all are equal to it
    out.push_back(a);
  }
  return out;
}

void NestEmitter::accumulate(Accumulators& set) {
  for (InstId i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (inst.op != LoopOp::kReduce) continue;  // scans have stepped where their values were needed
    Accumulator& a = set[plan_.insts[i].place];
    const unsigned lanes = LaneOps::lanes_of(a.value);
    Value* x = ops_.splat(values_[inst.operands[0]], lanes);
    Value* active = lanes != 0 && lanes_are_reduced() ? mask_ : nullptr;
    if (is_position(inst.reduce)) {
      pick(inst, a, x, ops_.splat(reduced_position(), lanes), active);
    } else {
      const DType dtype = plan_.insts[i].accumulator;
      Value* next = ops_.combine(inst.reduce, dtype, a.value,
                                 dtype == operand_dtype(inst) ? x : ops_.cast(x, operand_dtype(inst), dtype));
      a.value = active == nullptr ? next : b_.CreateSelect(active, next, a.value);
    }
  }
}

// One step of a running result, and its value here. Of twins the position steps, where the first of them stands.
void NestEmitter::scan(InstId i, Accumulators& set) {
  const InstId twin = plan_.insts[i].twin;
  if (twin == kNoInst) return step(i, set);
  const InstId position = is_position(nest_.body[i].reduce) ? i : twin, value = position == i ? twin : i;
  if (i > twin) return;
  step(position, set);
  set[plan_.insts[value].place].value = values_[value] = set[plan_.insts[position].place].value;
}

void NestEmitter::step(InstId i, Accumulators& set) {
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
  Value* position = is_position(inst.reduce) ? ops_.splat(reduced_position(), lanes) : nullptr;
  if (lanes == 0) {
    if (is_float(dtype)) takes = max ? b_.CreateFCmpUGE(x, a.value) : b_.CreateFCmpULE(x, a.value);
    take_if(takes, a, x, position);
  } else {
    if (is_float(dtype)) takes = b_.CreateOr(takes, b_.CreateFCmpUNO(x, x));
    take(takes, a, x, position);
  }
  values_[i] = position == nullptr ? a.value : whole_positions(a);
}

void NestEmitter::take(Value* takes, Accumulator& a, Value* x, Value* position) {
  a.value = b_.CreateSelect(takes, x, a.value);
  if (position != nullptr) a.position = b_.CreateSelect(takes, position, a.position);
}

// By a branch: a new extremum is rare in most data, and what is carried need not wait for the comparison. One
// comparison lets NaN on either side in; which side it is asked only then.
void NestEmitter::take_if(Value* takes, Accumulator& a, Value* x, Value* position) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* taken = llvm::BasicBlock::Create(b_.getContext(), "taken", s_.function);
  llvm::BasicBlock* behind = llvm::BasicBlock::Create(b_.getContext(), "kept", s_.function);
  b_.CreateCondBr(takes, taken, behind);
  b_.SetInsertPoint(taken);
  llvm::BasicBlock* unordered = nullptr;
  Value* is_new = nullptr;
  if (x->getType()->isFloatingPointTy()) {
    unordered = llvm::BasicBlock::Create(b_.getContext(), "unordered", s_.function);
    b_.CreateCondBr(b_.CreateFCmpUNO(x, a.value), unordered, behind,
                    llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
    b_.SetInsertPoint(unordered);
    is_new = b_.CreateFCmpUNO(x, x);
  }
  const auto chosen = [&](Value* old, Value* next) {
    return is_new == nullptr || next == nullptr ? nullptr : b_.CreateSelect(is_new, next, old);
  };
  Value *chosen_value = chosen(a.value, x), *chosen_position = chosen(a.position, position);
  b_.CreateBr(behind);
  b_.SetInsertPoint(behind);
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

// The accumulators with which a block starts: sums of floats at zero, all others as they stand.
Accumulators NestEmitter::restarted(const Accumulators& set) {
  Accumulators out = set;
  for_each_carried(set, [&](size_t k, const LoopInst& inst) {
    if (is_float_sum(inst)) out[k] = {llvm::Constant::getNullValue(set[k].value->getType())};
  });
  return out;
}

// What stands after a block. The sum of two floats is exactly s + lost (Knuth); infinities leave NaN in `lost`, see
// finished().
Accumulators NestEmitter::joined(const Accumulators& total, const Accumulators& block) {
  Accumulators out = block;
  for_each_carried(total, [&](size_t k, const LoopInst& inst) {
    if (!is_float_sum(inst)) return;
    const Accumulator& t = total[k];
    Value *x = block[k].value, *s = b_.CreateFAdd(t.value, x);
    out[k] = {s};
    if (t.lost == nullptr) return;
    Value* of_x = b_.CreateFSub(s, t.value);
    Value* lost = b_.CreateFAdd(b_.CreateFSub(t.value, b_.CreateFSub(s, of_x)), b_.CreateFSub(x, of_x));
    out[k].lost = b_.CreateFAdd(t.lost, lost);
  });
  return out;
}

void NestEmitter::for_each_carried(const Accumulators& set,
                                   llvm::function_ref<void(size_t k, const LoopInst& inst)> body) {
  if (set.empty()) return;  // the tail's, where lanes are not reduced
  size_t k = 0;
  for (const LoopInst& inst : nest_.body)
    if (is_carried(inst)) body(k++, inst);
}

Value* NestEmitter::finished(const Accumulator& a) {
  if (a.lost == nullptr) return a.value;
  Value* lost =
      b_.CreateSelect(b_.CreateFCmpORD(a.lost, a.lost), a.lost, llvm::Constant::getNullValue(a.lost->getType()));
  return b_.CreateFAdd(a.value, lost);
}

// a becomes (x, position) where x is better, or equally good and earlier; positions that count up never are. NaN is
// best.
void NestEmitter::pick(const LoopInst& inst, Accumulator& a, Value* x, Value* position, Value* active) {
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

Value* NestEmitter::position_zero() { return plan_.has_short_positions ? b_.getInt32(0) : b_.getInt64(0); }

// Linear index of the current point among the reduced ones, as it is carried.
Value* NestEmitter::reduced_position() {
  SymExpr linear = 0;
  for (size_t d = nest_.ranges.size(); d < nest_.dim_count(); ++d) linear = linear * nest_.extent(d) + symbols_.dim(d);
  const unsigned lanes = plan_.positions_count_up ? std::exchange(lanes_, 0) : lanes_;
  Value* position = eval(linear);
  lanes_ = lanes;
  return plan_.has_short_positions ? b_.CreateTrunc(position, b_.getInt32Ty()) : position;
}

// The positions that are carried, in full.
Value* NestEmitter::whole_positions(const Accumulator& a) {
  const unsigned lanes = LaneOps::lanes_of(a.position);
  Value* whole = b_.CreateSExt(a.position, ops_.value_type(DType::kInt64, lanes));
  const bool is_main = lanes > width_;
  return plan_.positions_count_up && lanes_are_reduced()
             ? b_.CreateAdd(whole, iota(lanes, plan_.lanes.is_split && is_main))
             : whole;
}

// From how it was accumulated to the value of the instruction.
Value* NestEmitter::rounded(InstId i, Value* value) {
  const LoopInst& inst = nest_.body[i];
  const DType dtype = plan_.insts[i].accumulator;
  return dtype == operand_dtype(inst) ? value : ops_.cast(value, dtype, operand_dtype(inst));
}

void NestEmitter::finish_reductions(Accumulators& main, Accumulators& tail) {
  for (InstId i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (inst.op != LoopOp::kReduce) continue;
    const size_t at = plan_.insts[i].place;
    if (!lanes_are_reduced()) {
      values_[i] = is_position(inst.reduce) ? whole_positions(main[at]) : rounded(i, finished(main[at]));
    } else if (is_position(inst.reduce)) {
      values_[i] = best_position(inst, main[at], tail[at]);
    } else {
      const DType dtype = plan_.insts[i].accumulator;
      Value* folded = ops_.halve(inst.reduce, dtype, finished(main[at]), width_);
      Value* left = finished(tail[at]);
      // Without a tail, or without a main loop, one of them is still the neutral element.
      if (!llvm::isa<llvm::Constant>(left))
        folded = llvm::isa<llvm::Constant>(folded) ? left : ops_.combine(inst.reduce, dtype, folded, left);
      values_[i] = rounded(i, ops_.halve(inst.reduce, dtype, folded, 0));
    }
  }
}

// The earliest of the lanes' positions whose value is the best of all.
Value* NestEmitter::best_position(const LoopInst& inst, const Accumulator& main, const Accumulator& tail) {
  const DType dtype = operand_dtype(inst);
  const ReduceOp better = inst.reduce == ReduceOp::kArgmax ? ReduceOp::kMax : ReduceOp::kMin;
  Value* best = ops_.halve(better, dtype,
                           ops_.combine(better, dtype, ops_.halve(better, dtype, main.value, width_), tail.value), 0);
  const auto earliest = [&](const Accumulator& a) {
    const unsigned lanes = LaneOps::lanes_of(a.value);
    Value* pair[2] = {a.value, ops_.splat(best, lanes)};
    Value* is_best = ops_.scalar_op(ScalarOp::k_eq, dtype, pair);
    if (is_float(dtype)) is_best = b_.CreateOr(is_best, b_.CreateFCmpUNO(a.value, a.value));
    Value* position = b_.CreateSelect(is_best, whole_positions(a), ops_.splat(b_.getInt64(INT64_MAX), lanes));
    return ops_.halve(ReduceOp::kMin, DType::kInt64, position, width_);
  };
  return ops_.halve(ReduceOp::kMin, DType::kInt64,
                    ops_.combine(ReduceOp::kMin, DType::kInt64, earliest(main), earliest(tail)), 0);
}
}  // namespace framejit::inductor
