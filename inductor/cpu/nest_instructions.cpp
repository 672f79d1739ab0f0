// inductor/cpu/nest_instructions.cpp — index expressions, addresses, loads, stores, checks, arithmetic.
#include "inductor/cpu/nest_emitter.h"
#include "inductor/loop/index_expr.h"

#include <algorithm>

namespace framejit::inductor {

using llvm::BasicBlock;
using llvm::Value;

// The value of an index expression: a vector of i64 if it depends on the lane.
Value* NestEmitter::eval(const SymExpr& e) {
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

Value* NestEmitter::eval_symbol(graph::SymbolId id) {
  if (symbols_.is_value(id)) return values_[symbols_.inst_of(id)];
  if (!symbols_.is_dim(id)) return s_.symbols[id];
  Value* base = dims_[symbols_.dim_of(id)];
  if (!in_vector() || symbols_.dim_of(id) != plan_.lanes.dim) return base;
  return b_.CreateAdd(b_.CreateVectorSplat(lanes_, base), iota(lanes_, is_split()));
}

NestEmitter::Address NestEmitter::address_of(const LoopInst& inst, Access access) {
  const SymExpr& e = inst.index[0];
  const auto behind = [&](Value* address, Value* offset) {
    return b_.CreateGEP(ops_.memory_type(kernel_.buffers[inst.buffer].dtype, 0), address, offset);
  };
  Value* const buffer = s_.buffers[inst.buffer];
  if (access == Access::kScattered) return {buffer, eval(e)};
  if (access == Access::kOne) return {behind(buffer, eval(e))};
  if (access == Access::kOfLane) return {behind(buffer, b_.CreateMul(eval(e), b_.getInt64(lanes_)))};
  SymExpr coefficient, rest;
  split_linear(e, symbols_.dim(plan_.lanes.dim), coefficient, rest);
  // What the loop does not change first: nothing is left to reduce in strength.
  return {behind(behind(buffer, eval(rest)), dims_[plan_.lanes.dim])};
}

// What stands at the address, in the lanes of the mask (null: all).
Value* NestEmitter::loaded(InstId i, Value* mask) {
  const LoopInst& inst = nest_.body[i];
  const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
  const Access access = plan_.insts[i].access;
  const Address a = address_of(inst, access);
  if (access == Access::kScattered)
    return ops_.gather(buffer.dtype, a.base, a.offsets, mask != nullptr ? mask : all_lanes());
  if (access == Access::kContiguous) prefetch_ahead(i, a.base);
  if (access == Access::kContiguous && is_split()) return load_split(inst, a.base);
  return ops_.load(buffer.dtype, a.base, access == Access::kOne ? 0 : lanes_, mask, !buffer.is_written);
}

void NestEmitter::emit_load(InstId i) {
  if (nest_.body[i].is_masked()) return emit_masked_load(i);
  values_[i] = plan_.insts[i].access == Access::kTile ? tile_row(i) : loaded(i, mask_);
}

Value* NestEmitter::all_lanes() {
  return llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), lanes_));
}
Value* NestEmitter::all_or_mask() { return mask_ != nullptr ? mask_ : all_lanes(); }

void NestEmitter::emit_store(InstId i) {
  const LoopInst& inst = nest_.body[i];
  const DType dtype = kernel_.buffers[inst.buffer].dtype;
  const Access access = plan_.insts[i].access;
  const Address a = address_of(inst, access);
  Value* value = values_[inst.operands[0]];
  const bool joins = inst.mode == StoreMode::kJoin;
  const Bf16Rounding rounding = joins ? Bf16Rounding::kAny : plan_.insts[inst.operands[0]].bf16;
  const auto joined = [&](Value* old) { return ops_.combine(inst.reduce, operand_dtype(inst), old, value); };
  if (access != Access::kOne) value = ops_.splat(value, lanes_);
  if (access == Access::kScattered) {
    if (joins) value = joined(ops_.gather(dtype, a.base, a.offsets, all_or_mask()));
    ops_.scatter(dtype, a.base, a.offsets, value, all_or_mask());
  } else if (access != Access::kOne && is_split()) {
    store_split(inst, a.base, value, rounding);
  } else if (access != Access::kOne) {
    if (joins) value = joined(ops_.load(dtype, a.base, lanes_, mask_, false));
    ops_.store(dtype, a.base, value, mask_, rounding);
  } else {  // all lanes go to one place: there is one element
    if (LaneOps::lanes_of(value) != 0) value = b_.CreateExtractElement(value, uint64_t{0});
    if (joins) value = joined(ops_.load(dtype, a.base, 0, nullptr, false));
    ops_.store(dtype, a.base, value, nullptr, rounding);
  }
}

// The checked index; leaves the kernel with 1 when it is out of range.
void NestEmitter::emit_check(InstId i) {
  const LoopInst& inst = nest_.body[i];
  Value* at = values_[inst.operands[0]];
  const unsigned lanes = LaneOps::lanes_of(at);
  Value* limit = ops_.splat(eval(inst.index[0]), lanes);
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

void NestEmitter::emit_inst(InstId i) {
  const LoopInst& inst = nest_.body[i];
  switch (inst.op) {
    case LoopOp::kConstant: values_[i] = ops_.constant(inst.dtype, inst.constant); return;
    case LoopOp::kIndex: values_[i] = eval(inst.index[0]); return;
    case LoopOp::kLoad: return emit_load(i);
    case LoopOp::kStore: return emit_store(i);
    case LoopOp::kCheck: return emit_check(i);
    case LoopOp::kCast: values_[i] = ops_.cast(values_[inst.operands[0]], operand_dtype(inst), inst.dtype); return;
    case LoopOp::kReduce:
    case LoopOp::kScan: return;
    case LoopOp::kScalar: break;
  }
  if (plan_.insts[i].is_border) {
    values_[i] = border(inst);
    return;
  }
  if (inst.scalar == ScalarOp::k_round_bf16) {
    const InstId x = inst.operands[0];
    values_[i] =
        plan_.insts[x].bf16 == Bf16Rounding::kExact ? values_[x] : ops_.round_bf16(values_[x], plan_.insts[x].bf16);
    return;
  }
  const bool is_select = inst.scalar == ScalarOp::k_select;
  Value* operands[3] = {};
  unsigned lanes = 0;
  const size_t count = static_cast<size_t>(inst.operand_count());
  for (size_t k = 0; k < count; ++k) lanes = std::max(lanes, LaneOps::lanes_of(values_[inst.operands[k]]));
  for (size_t k = 0; k < count; ++k) operands[k] = ops_.splat(values_[inst.operands[k]], lanes);
  values_[i] = ops_.scalar_op(inst.scalar, nest_.body[inst.operands[is_select ? 1 : 0]].dtype, {operands, count});
}
}  // namespace framejit::inductor
