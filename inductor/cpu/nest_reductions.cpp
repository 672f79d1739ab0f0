#include "inductor/cpu/nest_reductions.h"

namespace framejit::inductor {

using llvm::Value;

Accumulators Reductions::neutral(unsigned lanes) {
  Accumulators out;
  for (size_t i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (!is_carried(inst)) continue;
    Accumulator a{ops_.neutral(inst.reduce, plan_.insts[i].accumulator, lanes)};
    if (plan_.is_compensated && is_float_sum(inst)) a.lost = a.value;
    if (is_position(inst.reduce))
      // The result if all values equal the neutral element.
      a.position = ops_.splat(positions_.zero(), lanes);
    out.push_back(a);
  }
  return out;
}

void Reductions::accumulate(Accumulators& set) {
  for (InstId i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (inst.op != LoopOp::kReduce) continue;  // scans have already stepped, where their values were needed
    Accumulator& a = set[plan_.insts[i].place];
    const unsigned lanes = LaneOps::lanes_of(a.value);
    Value* x = ops_.splat(values_[inst.operands[0]], lanes);
    Value* active = lanes != 0 && plan_.lanes.is_reduced ? mask_ : nullptr;
    if (is_position(inst.reduce)) {
      positions_.pick(inst, a, x, ops_.splat(positions_.here(), lanes), active);
    } else {
      const DType dtype = plan_.insts[i].accumulator;
      Value* next = ops_.combine(inst.reduce, dtype, a.value,
                                 dtype == operand_dtype(inst) ? x : ops_.cast(x, operand_dtype(inst), dtype));
      a.value = active == nullptr ? next : b_.CreateSelect(active, next, a.value);
    }
  }
}

// The accumulators with which a block starts: sums of floats at zero, all others unchanged.
Accumulators Reductions::restarted(const Accumulators& set) {
  Accumulators out = set;
  for_each_carried(set, [&](size_t k, const LoopInst& inst) {
    if (is_float_sum(inst)) out[k] = {llvm::Constant::getNullValue(set[k].value->getType())};
  });
  return out;
}

// The accumulators after a block. The sum of two floats is exactly s + lost (Knuth); infinities leave NaN in `lost`,
// see with_lost().
Accumulators Reductions::joined(const Accumulators& total, const Accumulators& block) {
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

void Reductions::for_each_carried(const Accumulators& set,
                                  llvm::function_ref<void(size_t k, const LoopInst& inst)> body) {
  if (set.empty()) return;  // the tail has none if lanes are not reduced
  size_t k = 0;
  for (const LoopInst& inst : nest_.body)
    if (is_carried(inst)) body(k++, inst);
}

Value* Reductions::with_lost(const Accumulator& a) {
  if (a.lost == nullptr) return a.value;
  Value* lost =
      b_.CreateSelect(b_.CreateFCmpORD(a.lost, a.lost), a.lost, llvm::Constant::getNullValue(a.lost->getType()));
  return b_.CreateFAdd(a.value, lost);
}

// Converts from the accumulator's type to the value of the instruction.
Value* Reductions::rounded(InstId i, Value* value) {
  const LoopInst& inst = nest_.body[i];
  const DType dtype = plan_.insts[i].accumulator;
  return dtype == operand_dtype(inst) ? value : ops_.cast(value, dtype, operand_dtype(inst));
}

void Reductions::fold_lanes(Accumulators& main, Accumulators& tail) {
  for (InstId i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (inst.op != LoopOp::kReduce) continue;
    const size_t at = plan_.insts[i].place;
    if (!plan_.lanes.is_reduced) {
      values_[i] = is_position(inst.reduce) ? positions_.whole(main[at]) : rounded(i, with_lost(main[at]));
    } else if (is_position(inst.reduce)) {
      values_[i] = positions_.best(inst, main[at], tail[at]);
    } else {
      const DType dtype = plan_.insts[i].accumulator;
      Value* folded = ops_.halve(inst.reduce, dtype, with_lost(main[at]), width());
      Value* left = with_lost(tail[at]);
      // Without a tail, or without a main loop, one of them is still the neutral element.
      if (!llvm::isa<llvm::Constant>(left))
        folded = llvm::isa<llvm::Constant>(folded) ? left : ops_.combine(inst.reduce, dtype, folded, left);
      values_[i] = rounded(i, ops_.halve(inst.reduce, dtype, folded, 0));
    }
  }
}

}  // namespace framejit::inductor
