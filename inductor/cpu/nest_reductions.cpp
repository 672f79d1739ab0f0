// inductor/cpu/nest_reductions.cpp — accumulators: how they start, step, meet and end.
#include "inductor/cpu/nest_emitter.h"

namespace framejit::inductor {

using llvm::Value;

namespace {

bool is_position(ReduceOp op) { return op == ReduceOp::kArgmax || op == ReduceOp::kArgmin; }
bool is_float_sum(const LoopInst& inst) { return inst.op == LoopOp::kReduce && inst.reduce == ReduceOp::kSum && is_float(inst.dtype); }

}  // namespace

Accumulators NestEmitter::neutral(unsigned lanes) {
  Accumulators out;
  for (const LoopInst& inst : nest_.body) {
    if (inst.op != LoopOp::kReduce) continue;
    Accumulator a{ops_.neutral(inst.reduce, operand_dtype(inst), lanes)};
    if (is_compensated_ && is_float_sum(inst)) a.lost = a.value;
    if (is_position(inst.reduce)) a.position = ops_.splat(b_.getInt64(INT64_MAX), lanes);
    out.push_back(a);
  }
  return out;
}

void NestEmitter::accumulate(Accumulators& set) {
  size_t k = 0;
  for (const LoopInst& inst : nest_.body) {
    if (inst.op != LoopOp::kReduce) continue;
    Accumulator& a = set[k++];
    const unsigned lanes = LaneOps::lanes_of(a.value);
    Value* x = ops_.splat(values_[inst.operands[0]], lanes);
    Value* active = lanes != 0 && vector_is_reduced() ? mask_ : nullptr;
    if (is_position(inst.reduce)) {
      pick(inst, a, x, ops_.splat(reduced_position(), lanes), active);
    } else {
      Value* next = ops_.combine(inst.reduce, operand_dtype(inst), a.value, x);
      a.value = active == nullptr ? next : b_.CreateSelect(active, next, a.value);
    }
  }
}

// The accumulators with which a block starts: sums of floats at zero, all others as they stand.
Accumulators NestEmitter::restarted(const Accumulators& set) {
  Accumulators out = set;
  size_t k = 0;
  for (const LoopInst& inst : nest_.body) {
    if (inst.op != LoopOp::kReduce || k >= set.size()) continue;
    if (is_float_sum(inst)) out[k] = {llvm::Constant::getNullValue(set[k].value->getType())};
    ++k;
  }
  return out;
}

// What stands after a block. The sum of two floats is exactly s + lost (Knuth); infinities leave NaN in `lost`, see finished().
Accumulators NestEmitter::joined(const Accumulators& total, const Accumulators& block) {
  Accumulators out = block;
  size_t k = 0;
  for (const LoopInst& inst : nest_.body) {
    if (inst.op != LoopOp::kReduce || k >= total.size()) continue;
    const Accumulator& t = total[k];
    Value *x = block[k].value, *s = nullptr;
    if (is_float_sum(inst)) {
      s = b_.CreateFAdd(t.value, x);
      out[k] = {s};
    }
    if (s != nullptr && t.lost != nullptr) {
      Value* of_x = b_.CreateFSub(s, t.value);
      Value* lost = b_.CreateFAdd(b_.CreateFSub(t.value, b_.CreateFSub(s, of_x)), b_.CreateFSub(x, of_x));
      out[k].lost = b_.CreateFAdd(t.lost, lost);
    }
    ++k;
  }
  return out;
}

Value* NestEmitter::finished(const Accumulator& a) {
  if (a.lost == nullptr) return a.value;
  Value* lost = b_.CreateSelect(b_.CreateFCmpORD(a.lost, a.lost), a.lost, llvm::Constant::getNullValue(a.lost->getType()));
  return b_.CreateFAdd(a.value, lost);
}

// a becomes (x, position) where x is better, or equally good and earlier. NaN is best.
void NestEmitter::pick(const LoopInst& inst, Accumulator& a, Value* x, Value* position, Value* active) {
  const DType dtype = operand_dtype(inst);
  const bool max = inst.reduce == ReduceOp::kArgmax;
  Value* pair[2] = {x, a.value};
  Value* better = ops_.scalar_op(max ? ScalarOp::k_gt : ScalarOp::k_lt, dtype, pair);
  Value* equal = ops_.scalar_op(ScalarOp::k_eq, dtype, pair);
  if (is_float(dtype)) {
    Value *x_nan = b_.CreateFCmpUNO(x, x), *a_nan = b_.CreateFCmpUNO(a.value, a.value);
    better = b_.CreateOr(better, b_.CreateAnd(x_nan, b_.CreateNot(a_nan)));
    equal = b_.CreateOr(equal, b_.CreateAnd(x_nan, a_nan));
  }
  Value* take = b_.CreateOr(better, b_.CreateAnd(equal, b_.CreateICmpSLT(position, a.position)));
  if (active != nullptr) take = b_.CreateAnd(take, active);
  a.value = b_.CreateSelect(take, x, a.value);
  a.position = b_.CreateSelect(take, position, a.position);
}

// Linear index of the current point among the reduced ones; lanes if the vector dimension is reduced.
Value* NestEmitter::reduced_position() {
  SymExpr linear = 0;
  for (size_t d = nest_.ranges.size(); d < nest_.dim_count(); ++d) linear = linear * nest_.extent(d) + symbols_.dim(d);
  return eval(linear);
}

void NestEmitter::finish_reductions(Accumulators& main, Accumulators& tail) {
  size_t k = 0;
  for (size_t i = 0; i < nest_.body.size(); ++i) {
    const LoopInst& inst = nest_.body[i];
    if (inst.op != LoopOp::kReduce) continue;
    const size_t at = k++;
    if (!vector_is_reduced()) {
      values_[i] = is_position(inst.reduce) ? main[at].position : finished(main[at]);
    } else if (is_position(inst.reduce)) {
      values_[i] = best_position(inst, main[at], tail[at]);
    } else {
      Value* folded = ops_.halve(inst.reduce, inst.dtype, finished(main[at]), width_);
      values_[i] = ops_.halve(inst.reduce, inst.dtype, ops_.combine(inst.reduce, inst.dtype, folded, finished(tail[at])), 0);
    }
  }
}

Value* NestEmitter::best_position(const LoopInst& inst, const Accumulator& main, const Accumulator& tail) {
  const auto lane = [&](const Accumulator& a, unsigned k) {
    return Accumulator{b_.CreateExtractElement(a.value, k), b_.CreateExtractElement(a.position, k)};
  };
  Accumulator best = lane(main, 0);
  for (const Accumulator* set : {&main, &tail})
    for (unsigned k = set == &main ? 1 : 0; k < LaneOps::lanes_of(set->value); ++k) {
      const Accumulator other = lane(*set, k);
      pick(inst, best, other.value, other.position, nullptr);
    }
  return best.position;
}
}  // namespace framejit::inductor
